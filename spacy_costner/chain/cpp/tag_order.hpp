// The order in which the kernels keep the tags.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace costner {

// Tags with as many transitions in and out stand together, so that what a tag scheme forbids leaves
// whole panels of the matrix empty: of BILUO, all I, all L, all B, then O and all U. Place p
// holds tag order[p]. With few panels none would be empty, and tags stay as they are.
template <class Score>
std::vector<int> order_tags(const Score* transitions, int n_tags, bool has_many_panels) {
    std::vector<int> order(n_tags);
    std::iota(order.begin(), order.end(), 0);
    if (!has_many_panels) return order;
    std::vector<std::pair<int, int>> ways(n_tags);
    for (int i = 0; i < n_tags; i++)
        for (int j = 0; j < n_tags; j++) {
            const bool allowed = transitions[static_cast<std::size_t>(i) * n_tags + j] != -INFINITY;
            ways[i].first += allowed;
            ways[j].second += allowed;
        }
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return ways[a] < ways[b]; });
    return order;
}

}  // namespace costner
