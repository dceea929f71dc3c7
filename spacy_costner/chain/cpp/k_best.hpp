// The k best paths.
//
// The k best paths that end in a tag extend the k best paths that end in each previous tag:
//
//     delta_t[., j] = the k largest of delta_{t-1}[r, i] + transitions[i, j], + emissions[t, j]
//
// They are found by merging the descending lists delta_{t-1}[., i] (Huang & Chiang, 2005, "Better k-best Parsing",
// algorithm 2).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "chain.hpp"

namespace costner {

class KBest {
  public:
    KBest(const Chain& chain, int64_t k)
        : chain_(chain), k_(k), n_tags_(chain.n_tags), heads_(n_tags_), ranks_(n_tags_) {}

    // Finds the paths of a non-empty sequence, best first, and writes their tags, (k, N), and scores, (k, B). The score
    // is minus infinity if there is no further path.
    void run(int64_t s, int64_t* tags, double* scores) {
        begin_ = chain_.begins[s];
        const int64_t length = chain_.lengths[s];

        // The recursion: the k best paths to each tag at each token
        entries_.assign(length * n_tags_ * k_, {});
        for (int64_t j = 0; j < n_tags_; j++) row(0, j)[0].score = chain_.start[j] + emission(s, 0, j);
        for (int64_t t = 1; t < length; t++)
            for (int64_t j = 0; j < n_tags_; j++) {
                for (int64_t i = 0; i < n_tags_; i++) added_[i] = chain_.transitions[i * n_tags_ + j];
                merge(t - 1, row(t, j));
                for (int64_t r = 0; r < k_; r++) row(t, j)[r].score += emission(s, t, j);
            }

        // The k best paths overall, and their tags from the last token to the first
        std::fill(added_.begin(), added_.end(), 0.0);
        last_.assign(k_, {});
        merge(length - 1, last_.data());
        for (int64_t path = 0; path < k_; path++) {
            scores[path * chain_.n_sequences + s] = last_[path].score;
            const Entry* entry = &last_[path];
            for (int64_t t = length - 1; t >= 0; t--) {
                tags[path * chain_.n_tokens + begin_ + t] = entry->tag;
                entry = &row(t, entry->tag)[entry->rank];
            }
        }
    }

  private:
    // A path: its score, its second last tag, and its rank among the paths that end in this tag.
    struct Entry {
        double score = -INFINITY;
        int32_t tag = 0, rank = 0;
    };

    // Returns the k best paths that end in tag j at token t of the sequence.
    Entry* row(int64_t t, int64_t j) { return entries_.data() + (t * n_tags_ + j) * k_; }

    // Returns the emission of tag j at token t of the sequence, including the end score at the last token.
    double emission(int64_t s, int64_t t, int64_t j) const {
        const double score = chain_.emissions[(begin_ + t) * n_tags_ + j];
        return t + 1 == chain_.lengths[s] ? score + chain_.end[j] : score;
    }

    // Finds the k best paths to token t, where `added_` is added to the scores of the paths of each tag. The list of
    // each tag is descending, so the best path is the highest head of a list, which is then replaced with the next
    // path.
    void merge(int64_t t, Entry* to) {
        for (int64_t i = 0; i < n_tags_; i++) heads_[i] = row(t, i)[0].score + added_[i];
        std::fill(ranks_.begin(), ranks_.end(), 0);
        for (int64_t r = 0; r < k_; r++) {
            const int64_t best = std::max_element(heads_.begin(), heads_.end()) - heads_.begin();
            if (!(heads_[best] > -INFINITY)) return;
            to[r] = {heads_[best], static_cast<int32_t>(best), ranks_[best]};
            ranks_[best]++;
            const bool has_next = ranks_[best] < k_;
            heads_[best] = has_next ? row(t, best)[ranks_[best]].score + added_[best] : -INFINITY;
        }
    }

    const Chain& chain_;
    const int64_t k_, n_tags_;
    int64_t begin_ = 0;
    std::vector<double> heads_;           // the score of the next path of each tag, including `added_`
    std::vector<double> added_ = heads_;  // added to the scores of the paths of each tag
    std::vector<int32_t> ranks_;          // the rank of the next path of each tag
    std::vector<Entry> entries_;          // the k best paths to each tag at each token, (T, K, k)
    std::vector<Entry> last_;             // the k best paths overall, (k,)
};

}  // namespace costner
