// Sums and updates of sparse weights. There are many rows of weights, but each token only uses a
// few of them. A row consists of `width` weights, one for each tag. Each token has `n_slots` row
// indices. A negative index represents an empty slot.

#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#if defined(__GNUC__)
#define PREFETCH(address) __builtin_prefetch(address)
#define RESTRICT __restrict__
// GCC removes calls to functions that only prefetch memory, because they don't affect any value. It
// doesn't remove a prefetch that is inlined.
#define ALWAYS_INLINE inline __attribute__((always_inline))
#else
#define PREFETCH(address)
#define RESTRICT
#define ALWAYS_INLINE inline
#endif

namespace costner_sparse {

// How many slots or rows ahead memory is prefetched. Rows are far apart in memory, and loading one
// takes about as long as processing dozens of others.
constexpr int64_t N_AHEAD = 64;

// Prefetches all cache lines of a row.
template <typename Real>
ALWAYS_INLINE void prefetch_row(const Real* row, int64_t width) {
    const int64_t values_per_line = 64 / sizeof(Real);
    for (int64_t k = 0; k < width; k += values_per_line) PREFETCH(row + k);
    PREFETCH(row + width - 1);  // the row may end in another line
}

// A map from 64-bit keys to non-negative numbers, using open addressing: a key is stored in its
// slot or, if the slot is taken, in the next free place after it. Threads may look up keys while
// others set keys. Only one thread can set keys at a time.
//
// The key of a place is only written once, before its number. A thread that reads the number
// therefore also sees the key. When a table becomes too small, its keys are copied to a larger
// table. The old table is kept, because other threads may still be reading it. All old tables
// together are no larger than the new one.
class IdMap {
  public:
    IdMap() { add_table(16); }

    void find(const uint64_t* keys, int64_t n, int32_t* numbers) const {
        const Places& places = *in_use_.load(std::memory_order_acquire);
        for (int64_t i = 0; i < n; ++i) numbers[i] = find(places, keys[i]);
    }

    void set(const uint64_t* keys, const int32_t* numbers, int64_t n) {
        const std::lock_guard<std::mutex> lock(writing_);
        make_room(n);
        for (int64_t i = 0; i < n; ++i)
            n_keys_ += set(*tables_.back(), keys[i], static_cast<uint32_t>(numbers[i]) + 1);
    }

  private:
    struct Place {
        uint64_t key;
        std::atomic<uint32_t> number_plus_1;  // 0 if the place is free
    };
    using Places = std::vector<Place>;

    // Returns the first place to check for a key: some bits of the product of the key and 2^64 /
    // golden ratio (Fibonacci hashing). The size of a table is a power of 2, so `& (size - 1)`
    // computes the remainder.
    static size_t slot(const Places& places, uint64_t key) {
        key ^= key >> 32;
        key *= 0x9E3779B97F4A7C15ull;
        return (key >> 20) & (places.size() - 1);
    }

    // Returns the number of a key, or -1 if the search reaches a free place: the key is unknown.
    static int32_t find(const Places& places, uint64_t key) {
        for (size_t at = slot(places, key);; at = (at + 1) & (places.size() - 1)) {
            const uint32_t number = places[at].number_plus_1.load(std::memory_order_acquire);
            if (number == 0 || places[at].key == key) return static_cast<int32_t>(number - 1);
        }
    }

    // Sets the number of a key. Returns whether the key is new.
    static bool set(Places& places, uint64_t key, uint32_t number_plus_1) {
        for (size_t at = slot(places, key);; at = (at + 1) & (places.size() - 1)) {
            const bool is_free = places[at].number_plus_1.load(std::memory_order_relaxed) == 0;
            if (!is_free && places[at].key != key) continue;
            if (is_free) places[at].key = key;
            places[at].number_plus_1.store(number_plus_1, std::memory_order_release);
            return is_free;
        }
    }

    // Ensures that at most half of the places are taken after adding n keys. Otherwise, searching
    // for a key would require checking many places.
    void make_room(int64_t n) {
        const Places& old = *tables_.back();
        size_t size = old.size();
        while (2 * (n_keys_ + n) > size) size *= 2;
        if (size > old.size()) add_table(size);
    }

    // Adds a table of the given size, copies the keys of the last table to it, and starts using it.
    void add_table(size_t size) {
        auto larger = std::make_unique<Places>(size);
        if (!tables_.empty())
            for (const Place& place : *tables_.back())
                if (const uint32_t number = place.number_plus_1.load(std::memory_order_relaxed))
                    set(*larger, place.key, number);
        tables_.push_back(std::move(larger));
        in_use_.store(tables_.back().get(), std::memory_order_release);
    }

    std::vector<std::unique_ptr<Places>> tables_;
    std::atomic<const Places*> in_use_;
    size_t n_keys_ = 0;
    std::mutex writing_;
};

// Checks whether all row indices are less than n_rows.
inline bool are_below(const int32_t* rows, int64_t n, int64_t n_rows) {
    const int32_t last = static_cast<int32_t>(std::min<int64_t>(n_rows - 1, INT32_MAX));
    int32_t is_beyond = 0;
    for (int64_t i = 0; i < n; ++i) is_beyond |= rows[i] > last;
    return !is_beyond;
}

// Computes the rows of tokens from the values in their windows. If o, c and f are the offset, the
// column and the first row of slot s, the row of token t is
//
//     rows[t, s] = f + values[t + o, c]
//
// or -1 if the value is missing or token t + o is not in the same sequence.
inline void gather_window(const int32_t* values, int64_t n_columns, const int32_t* lengths,
                        int64_t n_sequences, const int32_t* columns, const int32_t* offsets,
                        const int32_t* first_rows, int64_t n_slots, int32_t* rows) {
    int64_t begin = 0;
    for (int64_t b = 0; b < n_sequences; ++b) {
        const int64_t end = begin + lengths[b];
        for (int64_t t = begin; t < end; ++t)
            for (int64_t s = 0; s < n_slots; ++s) {
                const int64_t neighbour = t + offsets[s];
                int32_t value = -1;
                if (neighbour >= begin && neighbour < end)
                    value = values[neighbour * n_columns + columns[s]];
                *rows++ = value < 0 ? -1 : static_cast<int32_t>(first_rows[s] + int64_t(value));
            }
        begin = end;
    }
}

// The filled slots of tokens. A loop over these slots is faster than a loop over all slots, because
// the processor can't predict which slots are empty.
struct FilledSlots {
    std::vector<int32_t> rows;  // the row index of each filled slot
    std::vector<int64_t> ends;  // the number of filled slots up to and including each token
};

// Collects the filled slots of tokens. `is_used` determines whether a token is used. The slots of
// all other tokens are treated as empty.
template <typename IsUsed>
FilledSlots find_filled(const int32_t* rows, int64_t n_tokens, int64_t n_slots, IsUsed is_used) {
    FilledSlots filled{std::vector<int32_t>(n_tokens * n_slots), std::vector<int64_t>(n_tokens)};
    int64_t n_filled = 0;
    for (int64_t t = 0; t < n_tokens; ++t, rows += n_slots) {
        if (is_used(t))
            for (int64_t s = 0; s < n_slots; ++s) {
                filled.rows[n_filled] = rows[s];
                n_filled += rows[s] >= 0;  // the index of an empty slot is overwritten
            }
        filled.ends[t] = n_filled;
    }
    filled.rows.resize(n_filled);
    return filled;
}

// Collects the filled slots of all tokens.
inline FilledSlots find_filled(const int32_t* rows, int64_t n_tokens, int64_t n_slots) {
    return find_filled(rows, n_tokens, n_slots, [](int64_t) { return true; });
}

// Computes scores[t] = sum of weights[r] over the rows r of token t. Returns whether all row
// indices are less than n_rows. If not, the scores aren't computed. The stride between two rows of
// weights is `stride` floats.
inline bool sum_rows(const int32_t* rows, int64_t n_tokens, int64_t n_slots, const float* weights,
                     int64_t stride, int64_t n_rows, int64_t width, float* RESTRICT scores) {
    const FilledSlots filled = find_filled(rows, n_tokens, n_slots);
    const int64_t n = static_cast<int64_t>(filled.rows.size());
    if (!are_below(filled.rows.data(), n, n_rows)) return false;
    int64_t i = 0;
    for (int64_t t = 0; t < n_tokens; ++t, scores += width) {
        std::fill(scores, scores + width, 0.0f);
        for (; i < filled.ends[t]; ++i) {
            if (i + N_AHEAD < n) prefetch_row(weights + filled.rows[i + N_AHEAD] * stride, width);
            const float* row = weights + filled.rows[i] * stride;
            for (int64_t k = 0; k < width; ++k) scores[k] += row[k];
        }
    }
    return true;
}

// Collects the distinct rows used by the tokens of a batch in `active`. Returns the filled slots,
// with the position in `active` instead of the row. Tokens with a gradient of 0 are skipped.
// `place_of` is a buffer for the position of each row in `active`. All values must be -1, and are
// reset to -1 at the end.
inline FilledSlots find_active(const int32_t* rows, int64_t n_tokens, int64_t n_slots,
                               const float* d_scores, int64_t width, int32_t* place_of,
                               std::vector<int32_t>& active) {
    FilledSlots filled = find_filled(rows, n_tokens, n_slots, [&](int64_t t) {
        const float* d_score = d_scores + t * width;
        return std::any_of(d_score, d_score + width, [](float d) { return d != 0; });
    });
    const size_t n = filled.rows.size();
    active.resize(n + 1);  // after the last new row, the loop writes one position further
    int32_t n_active = 0;
    for (size_t i = 0; i < n; ++i) {
        if (i + N_AHEAD < n) PREFETCH(place_of + filled.rows[i + N_AHEAD]);
        // There is no branch here, because the processor can't predict which rows are new.
        const int32_t row = filled.rows[i];
        const bool is_new = place_of[row] < 0;
        active[n_active] = row;
        place_of[row] = is_new ? n_active : place_of[row];
        n_active += is_new;
        filled.rows[i] = place_of[row];
    }
    active.resize(n_active);
    for (int32_t row : active) place_of[row] = -1;
    return filled;
}

// Computes gradient[r] += d_scores[t] for each token t and each of its rows r. For the active rows
// of `find_active`, r is the position in `active`.
template <typename Real>
void add_rows(const FilledSlots& filled, const float* d_scores, int64_t width, Real* gradient) {
    const int64_t n = static_cast<int64_t>(filled.rows.size());
    int64_t i = 0;
    for (const int64_t end : filled.ends) {
        for (; i < end; ++i) {
            if (i + N_AHEAD < n) prefetch_row(gradient + filled.rows[i + N_AHEAD] * width, width);
            Real* RESTRICT sum = gradient + filled.rows[i] * width;
            for (int64_t k = 0; k < width; ++k) sum[k] += d_scores[k];
        }
        d_scores += width;
    }
}

// Computes the matrix product of inputs and weights. The order of summation within a row doesn't
// depend on the number of rows.
inline void multiply_rows(const float* inputs, int64_t n_rows, int64_t dim, const float* weights,
                          int64_t width, float* RESTRICT products) {
    for (int64_t i = 0; i < n_rows; ++i, inputs += dim, products += width) {
        std::fill(products, products + width, 0.0f);
        for (int64_t d = 0; d < dim; ++d) {
            const float input = inputs[d];
            const float* row = weights + d * width;
            for (int64_t k = 0; k < width; ++k) products[k] += input * row[k];
        }
    }
}

// The settings of AdaGrad: see table.py.
struct Step {
    float learn_rate;
    float eps;
    float l1;
    float l2;
};

// A table of weights with the state of AdaGrad and averaging: see table.py. All arrays have the
// same shape, except `last`, which contains one number per row. The stride between two rows is
// `stride` floats, or `last_stride` integers for `last`.
struct Table {
    float* weights;
    float* squares;
    float* totals;
    int32_t* last;
    int64_t width;
    int64_t stride;
    int64_t last_stride;
};

// Computes the learning rate of a weight.
inline float step_size(const Step& step, float squares) {
    return step.learn_rate / (std::sqrt(squares) + step.eps);
}

// Performs n steps without a gradient at once. Each step subtracts `shrink` (from L1) from the
// absolute value u of the weight, and divides the result by 1 + `decay` (from L2). Until the value
// reaches 0, the value after k steps is
//
//     u_k = (u + c) (1 + decay)^-k - c,  c = shrink / decay      with decay
//     u_k = u - k shrink                                         without decay
//
// The sum u_1 + ... + u_n is added to `total`. After n_left steps, the weight becomes and stays 0.
inline void regularise(float& weight, float& total, int64_t n_steps, double shrink, double decay) {
    double size = std::fabs(weight), n = static_cast<double>(n_steps), sum;
    const double sign = weight < 0 ? -1 : 1;
    if (decay == 0) {
        const double n_left = std::min(n, std::floor(size / shrink));
        sum = n_left * size - shrink * n_left * (n_left + 1) / 2;
        size = n_left < n ? 0 : size - n * shrink;
    } else {
        const double c = shrink / decay, rate = std::log1p(decay);
        const double n_left = std::min(n, std::floor(std::log1p(size / c) / rate));
        const double lost = -std::expm1(-n_left * rate);
        sum = (size + c) * lost / decay - c * n_left;
        size = n_left < n ? 0 : size - (size + c) * lost;
    }
    total += static_cast<float>(sign * sum);
    weight = static_cast<float>(sign * size);
}

// Performs the same steps without `shrink`: u_k = u (1 + decay)^-k. Floats are sufficiently precise
// in this case.
inline void decay_only(float& weight, float& total, float n_steps, float decay) {
    const float lost = -std::expm1(-n_steps * std::log1p(decay));
    total += weight * (lost / decay);
    weight -= weight * lost;
}

// Applies the regularisation of all steps after `last`, up to and including step `now`, to a row
// that had no gradient in these steps.
inline void lazy_regularise(const Table& table, int64_t row, int32_t now, const Step& step) {
    int32_t& last = table.last[row * table.last_stride];
    const int32_t n_steps = now - last;
    if (n_steps <= 0) return;
    last = now;
    float* RESTRICT weights = table.weights + row * table.stride;
    float* RESTRICT totals = table.totals + row * table.stride;
    const float* squares = table.squares + row * table.stride;
    if (step.l1 == 0 && step.l2 == 0) {
        for (int64_t k = 0; k < table.width; ++k) totals[k] += n_steps * weights[k];
        return;
    }
    for (int64_t k = 0; k < table.width; ++k) {
        if (weights[k] == 0) continue;
        const double size = step_size(step, squares[k]);
        if (step.l1 == 0)
            decay_only(weights[k], totals[k], static_cast<float>(n_steps), size * step.l2);
        else
            regularise(weights[k], totals[k], n_steps, size * step.l1, size * step.l2);
    }
}

// Performs step number `now` for one row, using the formula in table.py. Call `lazy_regularise`
// first, to apply all previous steps to the row.
inline void adagrad(const Table& table, int64_t row, const float* gradient, int32_t now,
                    const Step& step) {
    float* RESTRICT weights = table.weights + row * table.stride;
    float* RESTRICT totals = table.totals + row * table.stride;
    float* RESTRICT squares = table.squares + row * table.stride;
    table.last[row * table.last_stride] = now;
    const bool is_regularised = step.l1 != 0 || step.l2 != 0;
    for (int64_t k = 0; k < table.width; ++k) squares[k] += gradient[k] * gradient[k];
    for (int64_t k = 0; k < table.width; ++k)
        weights[k] -= step_size(step, squares[k]) * gradient[k];
    for (int64_t k = 0; is_regularised && k < table.width; ++k) {
        const float size = step_size(step, squares[k]);
        const float shrunk = std::max(std::fabs(weights[k]) - size * step.l1, 0.0f);
        weights[k] = std::copysign(shrunk / (1 + size * step.l2), weights[k]);
    }
    for (int64_t k = 0; k < table.width; ++k) totals[k] += weights[k];
}

// Performs step number `now` for the rows that have a gradient. Rows must not be repeated.
inline void adagrad(const Table& table, const int32_t* rows, int64_t n_rows,
                    const float* gradient, int32_t now, const Step& step) {
    for (int64_t i = 0; i < n_rows; ++i) {
        // In an interleaved table, a row's weights are followed by its other values.
        if (i + N_AHEAD < n_rows)
            prefetch_row(table.weights + rows[i + N_AHEAD] * table.stride, table.stride);
        lazy_regularise(table, rows[i], now - 1, step);
        adagrad(table, rows[i], gradient + i * table.width, now, step);
    }
}

// Computes an average of each weight's values after all steps up to `now`, from the average
// `before`, at step `begin`, and the values after the steps since then:
//
//     average = share * mean + (1 - share) * before
//
// The mean is (totals + (now - last) * weights) / (now - begin), because a row is constant after
// step `last`. The rows of the averages are contiguous.
inline void average(const Table& table, int64_t n_rows, int32_t begin, int32_t now, double share,
                    const float* before, float* RESTRICT average) {
    const float scale = static_cast<float>(share / (now - begin));
    const float scale_before = static_cast<float>(1 - share);
    for (int64_t row = 0; row < n_rows; ++row) {
        const float* weights = table.weights + row * table.stride;
        const float* totals = table.totals + row * table.stride;
        const float n_constant = static_cast<float>(now - table.last[row * table.last_stride]);
        for (int64_t k = 0; k < table.width; ++k)
            average[k] = (n_constant * weights[k] + totals[k]) * scale + scale_before * before[k];
        before += table.width;
        average += table.width;
    }
}

}  // namespace costner_sparse
