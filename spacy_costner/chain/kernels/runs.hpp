// Runs of tokens, by the sequences that they are in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "chain.hpp"
#include "interface.hpp"

namespace costner {

// Some of the runs, by number.
struct RunNumbers {
    const int64_t *first, *past;

    const int64_t* begin() const { return first; }
    const int64_t* end() const { return past; }
};

class RunsOfSequences {
  public:
    template <class Real>
    RunsOfSequences(const Runs& runs, const Chain<Real>& chain)
        : offsets_(chain.n_sequences + 1), numbers_(runs.n_runs), first_tags_(runs.n_runs) {
        std::vector<int64_t> sequence(runs.n_runs);
        int64_t n_tags = 0;
        for (int64_t i = 0; i < runs.n_runs; i++) {
            first_tags_[i] = n_tags;
            n_tags += runs.end[i] - runs.begin[i];
            sequence[i] = std::upper_bound(chain.begins.begin(), chain.begins.end(), runs.begin[i]) -
                          chain.begins.begin() - 1;
            offsets_[sequence[i] + 1]++;
        }
        for (int64_t s = 0; s < chain.n_sequences; s++) offsets_[s + 1] += offsets_[s];
        std::vector<int64_t> next = offsets_;
        for (int64_t i = 0; i < runs.n_runs; i++) numbers_[next[sequence[i]]++] = i;
    }

    // The runs in sequence s.
    RunNumbers operator[](int64_t s) const {
        return {numbers_.data() + offsets_[s], numbers_.data() + offsets_[s + 1]};
    }

    // Where the tags of run i begin.
    int64_t first_tag(int64_t i) const { return first_tags_[i]; }

  private:
    std::vector<int64_t> offsets_, numbers_, first_tags_;
};

}  // namespace costner
