// The order of tags, groups of sequences and threads, independent of the instruction set.

#include "chain.hpp"

#include <numeric>
#include <system_error>
#include <thread>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace costner {

std::vector<int> order_tags(const Chain& chain, bool has_many_panels) {
    const int n_tags = chain.n_tags;
    std::vector<int> order(n_tags);
    std::iota(order.begin(), order.end(), 0);
    if (!has_many_panels) return order;
    std::vector<std::pair<int, int>> ways(n_tags);  // the numbers of outgoing and incoming transitions of each tag
    for (int i = 0; i < n_tags; i++)
        for (int j = 0; j < n_tags; j++) {
            const bool allowed = chain.transitions[static_cast<int64_t>(i) * n_tags + j] != -INFINITY;
            ways[i].first += allowed;
            ways[j].second += allowed;
        }
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return ways[a] < ways[b]; });
    return order;
}

Schedule::Schedule(const int32_t* lengths, int64_t n_sequences, int most_rows, int n_threads,
                   const std::vector<char>& left_out) {
    for (int64_t s = 0; s < n_sequences; s++)
        if (lengths[s] > 0 && (left_out.empty() || !left_out[s])) order_.push_back(s);
    std::stable_sort(order_.begin(), order_.end(), [=](int64_t a, int64_t b) { return lengths[a] > lengths[b]; });
    const int64_t n = order_.size();
    const int64_t n_groups = std::max<int64_t>((n + most_rows - 1) / most_rows, std::min<int64_t>(n, n_threads));
    for (int64_t g = 0; g < n_groups; g++) {
        const int64_t first = n * g / n_groups, past = n * (g + 1) / n_groups;
        groups_.push_back({order_.data() + first, static_cast<int>(past - first)});
    }
}

int64_t Schedule::most_tokens_in_a_group(const int32_t* lengths) const {
    int64_t most = 0;
    for (const Group& group : groups_) {
        int64_t tokens = 0;
        for (int r = 0; r < group.size; r++) tokens += lengths[group.sequences[r]];
        most = std::max(most, tokens);
    }
    return most;
}

namespace {

// Flushes denormal numbers to zero in the current thread during its lifetime. Otherwise, a product of two small
// probabilities would be a hundred times slower, and the result would be just as meaningless.
class FlushToZero {
#if defined(__SSE__)
  public:
    FlushToZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
    ~FlushToZero() { _mm_setcsr(before_); }
    FlushToZero(const FlushToZero&) = delete;

  private:
    const unsigned before_;
#endif
};

}  // namespace

void in_threads(const std::vector<Group>& groups, int n_threads, FunctionRef<void(const Group&, int)> work) {
    const auto process_groups_of = [&](int thread) {
        [[maybe_unused]] const FlushToZero flush;
        for (std::size_t g = thread; g < groups.size(); g += n_threads) work(groups[g], thread);
    };
    std::vector<std::thread> other_threads;
    const int n_needed = std::min(n_threads, static_cast<int>(groups.size()));
    try {
        for (int i = 1; i < n_needed; i++) other_threads.emplace_back(process_groups_of, i);
    } catch (const std::system_error&) {
    }
    process_groups_of(0);
    for (int i = static_cast<int>(other_threads.size()) + 1; i < n_needed; i++) process_groups_of(i);
    for (std::thread& thread : other_threads) thread.join();
}

}  // namespace costner
