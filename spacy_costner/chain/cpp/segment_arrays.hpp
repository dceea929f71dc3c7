// Segments grouped by sequence.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "chain.hpp"
#include "interface.hpp"

namespace costner {

// Checks whether sequence lengths add up to `n_tokens` and fit into 32 bits, as required by the kernels.
inline bool are_lengths(const int64_t* lengths, int64_t n, int64_t n_tokens) {
    int64_t total = 0;
    for (int64_t s = 0; s < n; s++) {
        if (lengths[s] < 0 || lengths[s] > INT32_MAX || lengths[s] > n_tokens - total) return false;
        total += lengths[s];
    }
    return total == n_tokens;
}

// Checks whether all tags are valid.
inline bool are_tags(const int64_t* tags, int64_t n, int n_tags) {
    return std::all_of(tags, tags + n, [=](int64_t tag) { return 0 <= tag && tag < n_tags; });
}

// Checks whether segments are token spans within a single sequence, with `n` tags in total.
inline bool are_segments(const Segments& segments, int64_t n, const Potentials& scores) {
    int64_t total = 0, s = 0, start = 0;
    for (int64_t i = 0; i < segments.n_segments; i++) {
        const int64_t begin = segments.begin[i], end = segments.end[i];
        if (begin < start) s = start = 0;
        while (s < scores.n_sequences && start + scores.lengths[s] <= begin) start += scores.lengths[s++];
        if (s == scores.n_sequences || begin < 0 || end <= begin || end > start + scores.lengths[s]) return false;
        total += end - begin;
    }
    return total == n && are_tags(segments.tags, n, scores.n_tags);
}

// Checks whether entities are token spans. They may cross sequences or have a label without tags.
inline bool are_entities(const Entities& entities, int64_t n_tokens) {
    for (int64_t i = 0; i < entities.n_entities; i++) {
        const int64_t begin = entities.begin[i], end = entities.end[i];
        if (begin < 0 || end <= begin || end > n_tokens) return false;
    }
    return true;
}

// Segments grouped by sequence.
class SegmentsOfSequences {
  public:
    // order: The tag at each position in the order of the kernels.
    SegmentsOfSequences(const Segments& segments, const Chain& chain, const std::vector<int>& order)
        : segments_(segments), order_(order), place_of_(places_in(order)), offsets_(chain.n_sequences + 1),
          numbers_(segments.n_segments), first_tags_(segments.n_segments) {
        std::vector<int64_t> sequence(segments.n_segments);
        int64_t n_tags = 0;
        for (int64_t i = 0; i < segments.n_segments; i++) {
            first_tags_[i] = n_tags;
            n_tags += segments.end[i] - segments.begin[i];
            const auto& begins = chain.begins;
            sequence[i] = std::upper_bound(begins.begin(), begins.end(), segments.begin[i]) - begins.begin() - 1;
            offsets_[sequence[i] + 1]++;
        }
        for (int64_t s = 0; s < chain.n_sequences; s++) offsets_[s + 1] += offsets_[s];
        std::vector<int64_t> next = offsets_;
        for (int64_t i = 0; i < segments.n_segments; i++) numbers_[next[sequence[i]]++] = i;
    }

    int64_t size() const { return segments_.n_segments; }

    // Returns the segments in sequence s.
    Range<int64_t> operator[](int64_t s) const {
        return {numbers_.data() + offsets_[s], numbers_.data() + offsets_[s + 1]};
    }

    // The first token of segment i, and the token after its last token.
    int64_t begin(int64_t i) const { return segments_.begin[i]; }
    int64_t end(int64_t i) const { return segments_.end[i]; }

    // Returns the position of the tag of segment i at a token.
    int tag(int64_t i, int64_t token) const {
        return place_of_[segments_.tags[first_tags_[i] + token - segments_.begin[i]]];
    }

    // Checks whether a tag, given by its position, is allowed after segment i.
    bool may_follow(int64_t i, int place) const {
        return !segments_.after || segments_.after[i * static_cast<int64_t>(order_.size()) + order_[place]];
    }

  private:
    const Segments segments_;
    const std::vector<int>& order_;
    std::vector<int> place_of_;
    std::vector<int64_t> offsets_;     // the index in numbers_ of the first segment of each sequence, (B + 1,)
    std::vector<int64_t> numbers_;     // the segments, grouped by sequence, (S,)
    std::vector<int64_t> first_tags_;  // the index of the first tag of each segment, (S,)
};

}  // namespace costner
