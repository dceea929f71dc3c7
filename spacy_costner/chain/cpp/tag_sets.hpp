// One set of tags per token, stored as short lists, because annotations allow a single tag for most tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "chain.hpp"

namespace costner {

// The tags of a set, by their positions in the order of the kernels.
using Places = Range<int>;

// The set of tags of each token. The positions of all sets are stored in a single list.
class TagSets {
  public:
    TagSets(const Allowed& sets, int64_t n_tokens, const std::vector<int>& order)
        : offsets_(n_tokens + 1), place_of_(places_in(order)) {
        places_.reserve(n_tokens);
        if (sets.mask)
            read(sets.mask, n_tokens);
        else
            for (int64_t t = 0; t < n_tokens; t++) {
                places_.push_back(place_of_[sets.tags[t]]);
                offsets_[t + 1] = t + 1;
            }
    }

    // Returns the set of a token.
    Places operator[](int64_t token) const {
        return {places_.data() + offsets_[token], places_.data() + offsets_[token + 1]};
    }

    bool has(int64_t token, int place) const {
        const Places places = (*this)[token];
        return std::find(places.begin(), places.end(), place) != places.end();
    }

    // Returns the total number of positions in all sets.
    int64_t size() const { return static_cast<int64_t>(places_.size()); }
    // Returns the index of a position in this list, given a reference to it. Used to store data for each position.
    int64_t index(const int& place) const { return &place - places_.data(); }

  private:
    // Reads a mask, (N, K). Since most elements are false, eight tags are checked at a time.
    void read(const uint8_t* allowed, int64_t n_tokens) {
        const int n_tags = static_cast<int>(place_of_.size());
        for (int64_t t = 0; t < n_tokens; t++, allowed += n_tags) {
            int k = 0;
            for (; k + 8 <= n_tags; k += 8) {
                uint64_t eight;
                std::memcpy(&eight, allowed + k, 8);
                if (eight) add(allowed, k, k + 8);
            }
            add(allowed, k, n_tags);
            offsets_[t + 1] = static_cast<int64_t>(places_.size());
        }
    }

    // Adds the allowed tags from `first` to `past` (exclusive).
    void add(const uint8_t* allowed, int first, int past) {
        for (int k = first; k < past; k++)
            if (allowed[k]) places_.push_back(place_of_[k]);
    }

    std::vector<int64_t> offsets_;
    std::vector<int> place_of_, places_;
};

}  // namespace costner
