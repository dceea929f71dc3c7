// Sums and updates of sparse weights. There are many rows of weights, and each token has a few of
// them, by their numbers: a row id below 0 stands for none. A row has `width` weights, one for each
// tag. N tokens have n_slots row ids each.

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
#else
#define PREFETCH(address)
#define RESTRICT
#endif

namespace costner_sparse {

// From 64-bit keys to numbers from 0, by open addressing: a key stands in its slot or, if that is
// taken, in the next free place after it. Any threads may find keys while others set some; those
// that set wait for each other.
//
// A place gets its key once, before its number: who sees the number sees the key, and all that was
// written before. When a table is too small, its keys are copied to a larger one. It stays for
// threads that are reading it; all old ones together are no larger than the new one.
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

    // Where to look for a key first: some bits of its product with 2^64 / golden ratio (Fibonacci
    // hashing). The size of a table is a power of 2, so that `& (size - 1)` takes the remainder.
    static size_t slot(const Places& places, uint64_t key) {
        key ^= key >> 32;
        key *= 0x9E3779B97F4A7C15ull;
        return (key >> 20) & (places.size() - 1);
    }

    // The number of a key, -1 at a free place: the key isn't there.
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

    // Makes sure that at most half of the places are taken when n keys are added: otherwise many
    // would be tried for a key.
    void make_room(int64_t n) {
        const Places& old = *tables_.back();
        size_t size = old.size();
        while (2 * (n_keys_ + n) > size) size *= 2;
        if (size > old.size()) add_table(size);
    }

    // Adds a table of this size, with the keys of the last one, and puts it in use.
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

// Whether all row ids are below n_rows.
inline bool are_below(const int32_t* rows, int64_t n, int64_t n_rows) {
    const int32_t last = static_cast<int32_t>(std::min<int64_t>(n_rows - 1, INT32_MAX));
    int32_t is_beyond = 0;
    for (int64_t i = 0; i < n; ++i) is_beyond |= rows[i] > last;
    return !is_beyond;
}

// The rows of tokens, from the values in their windows. With o, c and f the offset, column and
// first row of slot s:
//
//     rows[t, s] = f + values[t + o, c],  -1 without a value there or beyond the sequence
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

// scores[t] = sum of weights[r] over the rows r of token t. Returns whether all rows are below
// n_rows; others are left out. Rows are far apart in memory, and slow to fetch. So while a row is
// added, the processor is told to fetch the one that comes `n_ahead` slots later. From one row of
// weights to the next it is `stride` floats.
inline bool sum_rows(const int32_t* rows, int64_t n_tokens, int64_t n_slots, const float* weights,
                     int64_t stride, int64_t n_rows, int64_t width, float* RESTRICT scores) {
    const int64_t n = n_tokens * n_slots, n_ahead = 16;
    const uint32_t end = static_cast<uint32_t>(std::min<int64_t>(n_rows, INT32_MAX));
    bool are_in_range = true;
    for (int64_t t = 0; t < n_tokens; ++t, scores += width) {
        std::fill(scores, scores + width, 0.0f);
        for (int64_t i = t * n_slots; i < (t + 1) * n_slots; ++i) {
            if (i + n_ahead < n && rows[i + n_ahead] >= 0) {
                const float* next_row = weights + rows[i + n_ahead] * stride;
                PREFETCH(next_row);
                PREFETCH(next_row + 16);
            }
            // As an unsigned number, a negative row is above the end, too: one comparison does.
            if (static_cast<uint32_t>(rows[i]) >= end) {
                are_in_range &= rows[i] < 0;
                continue;
            }
            const float* row = weights + rows[i] * stride;
            for (int64_t k = 0; k < width; ++k) scores[k] += row[k];
        }
    }
    return are_in_range;
}

// Finds the rows that the tokens of a batch have, each once, in `active`. `places` gets the place
// there of the row of each slot; -1 for a slot without a row. Tokens with a gradient of 0 are left
// out: their slots get -1, too. `place_of` is memory to work in: the place of each row in `active`.
// It has to be -1 everywhere before the call, and is so after it.
inline void find_active(const int32_t* rows, int64_t n_tokens, int64_t n_slots,
                        const float* d_scores, int64_t width, int32_t* place_of,
                        std::vector<int32_t>& active, std::vector<int32_t>& places) {
    const int64_t n = n_tokens * n_slots, n_ahead = 16;
    active.clear();
    places.assign(n, -1);
    for (int64_t t = 0; t < n_tokens; ++t) {
        const float* d_score = d_scores + t * width;
        if (std::all_of(d_score, d_score + width, [](float d) { return d == 0; })) continue;
        for (int64_t i = t * n_slots; i < (t + 1) * n_slots; ++i) {
            if (i + n_ahead < n && rows[i + n_ahead] >= 0) PREFETCH(place_of + rows[i + n_ahead]);
            const int32_t row = rows[i];
            if (row < 0) continue;
            if (place_of[row] < 0) {
                place_of[row] = static_cast<int32_t>(active.size());
                active.push_back(row);
            }
            places[i] = place_of[row];
        }
    }
    for (int32_t row : active) place_of[row] = -1;
}

// gradient[p] += d_scores[t] for the places p of the slots of each token t: see `find_active`.
inline void add_gradients(const std::vector<int32_t>& places, int64_t n_tokens, int64_t n_slots,
                          const float* d_scores, int64_t width, float* gradient) {
    const int64_t n = n_tokens * n_slots, n_ahead = 8;
    for (int64_t t = 0; t < n_tokens; ++t, d_scores += width)
        for (int64_t i = t * n_slots; i < (t + 1) * n_slots; ++i) {
            if (i + n_ahead < n && places[i + n_ahead] >= 0)
                PREFETCH(gradient + places[i + n_ahead] * width);
            if (places[i] < 0) continue;
            float* RESTRICT sum = gradient + places[i] * width;
            for (int64_t k = 0; k < width; ++k) sum[k] += d_scores[k];
        }
}

// products[i] = inputs[i] weights, a product of matrices. Each row is summed in the same order,
// however many rows there are.
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

// gradient[r] += d_scores[t] for the rows r of each token t, in float64.
inline void add_rows(const int32_t* rows, int64_t n_tokens, int64_t n_slots, const float* d_scores,
                     int64_t width, double* RESTRICT gradient) {
    const int64_t n = n_tokens * n_slots, n_ahead = 16;
    for (int64_t t = 0; t < n_tokens; ++t, d_scores += width)
        for (int64_t i = t * n_slots; i < (t + 1) * n_slots; ++i) {
            if (i + n_ahead < n && rows[i + n_ahead] >= 0) {
                const double* next_row = gradient + rows[i + n_ahead] * width;
                PREFETCH(next_row);
                PREFETCH(next_row + 8);
            }
            if (rows[i] < 0) continue;
            double* row = gradient + rows[i] * width;
            for (int64_t k = 0; k < width; ++k) row[k] += d_scores[k];
        }
}

// The settings of AdaGrad: see table.py.
struct Step {
    float learn_rate;
    float eps;
    float l1;
    float l2;
};

// A table of weights with what AdaGrad and averaging keep for each: see table.py. All but `last`,
// which has a number for each row, are of the same shape. From one row to the next it is `stride`
// floats, and `last_stride` numbers.
struct Table {
    float* weights;
    float* squares;
    float* totals;
    int32_t* last;
    int64_t width;
    int64_t stride;
    int64_t last_stride;
};

// The learning rate of one weight.
inline float step_size(const Step& step, float squares) {
    return step.learn_rate / (std::sqrt(squares) + step.eps);
}

// Makes n steps without a gradient at once. A step takes `shrink` (from L1) off the absolute value
// u of the weight, and divides it by 1 + `decay` (from L2). After k steps, until it is 0, it is
//
//     u_k = (u + c) (1 + decay)^-k - c,  c = shrink / decay      with decay
//     u_k = u - k shrink                                         without decay
//
// The sum u_1 + ... + u_n is added to `total`. After n_left steps the weight is 0, and stays so.
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

// The same without `shrink`: u_k = u (1 + decay)^-k. Here floats are exact enough.
inline void decay_only(float& weight, float& total, float n_steps, float decay) {
    const float lost = -std::expm1(-n_steps * std::log1p(decay));
    total += weight * (lost / decay);
    weight -= weight * lost;
}

// Regularises a row as the steps since `last`, up to step `now`, would have done. The row had no
// gradient in these steps.
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

// Makes step number `now` for one row, by the formula in table.py. Call `lazy_regularise` before,
// which brings the row up to the step before.
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

// Fetches the beginning of a row, two cache lines of each array, before it is updated.
inline void prefetch(const Table& table, int64_t row) {
    PREFETCH(table.last + row * table.last_stride);
    for (const float* part : {table.weights, table.totals, table.squares}) {
        const float* next_row = part + row * table.stride;
        PREFETCH(next_row);
        PREFETCH(next_row + std::min<int64_t>(16, table.width - 1));
    }
}

// Makes step number `now` for the rows that have a gradient. Each row may be there only once.
inline void adagrad(const Table& table, const int32_t* rows, int64_t n_rows,
                    const float* gradient, int32_t now, const Step& step) {
    const int64_t n_ahead = 8;
    for (int64_t i = 0; i < n_rows; ++i) {
        if (i + n_ahead < n_rows) prefetch(table, rows[i + n_ahead]);
        lazy_regularise(table, rows[i], now - 1, step);
        adagrad(table, rows[i], gradient + i * table.width, now, step);
    }
}

}  // namespace costner_sparse
