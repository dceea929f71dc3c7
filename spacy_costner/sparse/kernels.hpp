// Sparse rows: each token has a few of many rows of weights. A row id below 0 stands for nothing.

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

// From 64-bit keys to numbers from 0, by open addressing. Any threads may find keys while others
// set some; those that set wait for each other. A place gets its key once, before its number: who
// sees the number sees the key, and all that was written before. Tables that have become too
// small stay for those that read them still; together they are no larger than the one in use.
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
        std::atomic<uint32_t> number_and_1;  // 0: nothing is here
    };
    using Places = std::vector<Place>;

    static size_t slot(const Places& places, uint64_t key) {
        key ^= key >> 32;
        key *= 0x9E3779B97F4A7C15ull;
        return (key >> 20) & (places.size() - 1);
    }

    static int32_t find(const Places& places, uint64_t key) {
        for (size_t at = slot(places, key);; at = (at + 1) & (places.size() - 1)) {
            const uint32_t number = places[at].number_and_1.load(std::memory_order_acquire);
            if (number == 0 || places[at].key == key) return static_cast<int32_t>(number - 1);
        }
    }

    // Whether the key is new.
    static bool set(Places& places, uint64_t key, uint32_t number_and_1) {
        for (size_t at = slot(places, key);; at = (at + 1) & (places.size() - 1)) {
            const bool is_free = places[at].number_and_1.load(std::memory_order_relaxed) == 0;
            if (!is_free && places[at].key != key) continue;
            if (is_free) places[at].key = key;
            places[at].number_and_1.store(number_and_1, std::memory_order_release);
            return is_free;
        }
    }

    void make_room(int64_t n) {
        const Places& old = *tables_.back();
        size_t size = old.size();
        while (2 * (n_keys_ + n) > size) size *= 2;
        if (size > old.size()) add_table(size);
    }

    // A table with what is in the last one.
    void add_table(size_t size) {
        auto larger = std::make_unique<Places>(size);
        if (!tables_.empty())
            for (const Place& place : *tables_.back())
                if (const uint32_t number = place.number_and_1.load(std::memory_order_relaxed))
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

// What each token sees: slot s shows the value in a column of the token some places away, as a
// row of weights.
inline void gather_window(const int32_t* values, int64_t n_columns, const int32_t* lengths,
                        int64_t n_sequences, const int32_t* columns, const int32_t* offsets,
                        const int32_t* first_rows, int64_t n_slots, int32_t* rows) {
    int64_t begin = 0;
    for (int64_t b = 0; b < n_sequences; ++b) {
        const int64_t end = begin + lengths[b];
        for (int64_t t = begin; t < end; ++t)
            for (int64_t s = 0; s < n_slots; ++s) {
                const int64_t there = t + offsets[s];
                int32_t value = -1;
                if (there >= begin && there < end) value = values[there * n_columns + columns[s]];
                *rows++ = value < 0 ? -1 : static_cast<int32_t>(first_rows[s] + int64_t(value));
            }
        begin = end;
    }
}

// scores[t] = sum of the rows of token t. Whether all of them are there; others are left out.
inline bool sum_rows(const int32_t* rows, int64_t n_tokens, int64_t n_slots, const float* weights,
                     int64_t n_rows, int64_t width, float* RESTRICT scores) {
    const int64_t n = n_tokens * n_slots, ahead = 16;
    const uint32_t past = static_cast<uint32_t>(std::min<int64_t>(n_rows, INT32_MAX));
    bool are_there = true;
    for (int64_t t = 0; t < n_tokens; ++t, scores += width) {
        std::fill(scores, scores + width, 0.0f);
        for (int64_t i = t * n_slots; i < (t + 1) * n_slots; ++i) {
            if (i + ahead < n && rows[i + ahead] >= 0) {
                const float* soon = weights + rows[i + ahead] * width;
                PREFETCH(soon);
                PREFETCH(soon + 16);
            }
            if (static_cast<uint32_t>(rows[i]) >= past) {
                are_there &= rows[i] < 0;
                continue;
            }
            const float* row = weights + rows[i] * width;
            for (int64_t k = 0; k < width; ++k) scores[k] += row[k];
        }
    }
    return are_there;
}

// The rows that a batch has to do with, each once, and the sum of the gradients of the tokens
// that have it. `place_of` is -1 everywhere, before and after.
inline void collect_rows(const int32_t* rows, int64_t n_tokens, int64_t n_slots,
                         const float* d_scores, int64_t width, int32_t* place_of,
                         std::vector<int32_t>& active, std::vector<float>& gradient) {
    const int64_t n = n_tokens * n_slots, ahead = 16;
    active.clear();
    gradient.clear();
    for (int64_t t = 0; t < n_tokens; ++t) {
        const float* d_score = d_scores + t * width;
        if (std::all_of(d_score, d_score + width, [](float d) { return d == 0; })) continue;
        for (int64_t i = t * n_slots; i < (t + 1) * n_slots; ++i) {
            if (i + ahead < n && rows[i + ahead] >= 0) PREFETCH(place_of + rows[i + ahead]);
            const int32_t row = rows[i];
            if (row < 0) continue;
            if (static_cast<uint32_t>(place_of[row]) >= active.size()) {
                place_of[row] = static_cast<int32_t>(active.size());
                active.push_back(row);
                gradient.resize(gradient.size() + width);
            }
            float* RESTRICT sum = gradient.data() + place_of[row] * width;
            for (int64_t k = 0; k < width; ++k) sum[k] += d_score[k];
        }
    }
    for (int32_t row : active) place_of[row] = -1;
}

// products[i] = inputs[i] weights. Each row is summed in the same order, however many there are.
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

// gradient[row] += d_scores[t] for the rows of each token t.
inline void add_rows(const int32_t* rows, int64_t n_tokens, int64_t n_slots, const float* d_scores,
                     int64_t width, double* RESTRICT gradient) {
    const int64_t n = n_tokens * n_slots, ahead = 16;
    for (int64_t t = 0; t < n_tokens; ++t, d_scores += width)
        for (int64_t i = t * n_slots; i < (t + 1) * n_slots; ++i) {
            if (i + ahead < n && rows[i + ahead] >= 0) {
                const double* soon = gradient + rows[i + ahead] * width;
                PREFETCH(soon);
                PREFETCH(soon + 8);
            }
            if (rows[i] < 0) continue;
            double* row = gradient + rows[i] * width;
            for (int64_t k = 0; k < width; ++k) row[k] += d_scores[k];
        }
}

struct Step {
    float learn_rate;
    float eps;
    float l1;
    float l2;
};

// A table of weights with what AdaGrad and averaging keep for each; `last` is the step up to
// which a row is worked out.
struct Table {
    float* weights;
    float* squares;
    float* totals;
    int32_t* last;
    int64_t width;
};

inline float step_size(const Step& step, float squares) {
    return step.learn_rate / (std::sqrt(squares) + step.eps);
}

// n steps without a gradient: each takes shrink off the weight and divides it by 1 + decay.
//
//     u_k = (u + c) (1 + decay)^-k - c,  c = shrink / decay,  until that is 0
inline void idle(float& weight, float& total, int64_t n_steps, double shrink, double decay) {
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

// The same without shrink, where floats are exact enough.
inline void decay_only(float& weight, float& total, float n_steps, float decay) {
    const float lost = -std::expm1(-n_steps * std::log1p(decay));
    total += weight * (lost / decay);
    weight -= weight * lost;
}

// Do for a row what steps up to `now` would have done without a gradient.
inline void lazy_regularise(const Table& table, int64_t row, int32_t now, const Step& step) {
    const int32_t n_steps = now - table.last[row];
    if (n_steps <= 0) return;
    table.last[row] = now;
    float* RESTRICT weights = table.weights + row * table.width;
    float* RESTRICT totals = table.totals + row * table.width;
    const float* squares = table.squares + row * table.width;
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
            idle(weights[k], totals[k], n_steps, size * step.l1, size * step.l2);
    }
}

// Step number `now` for one row. Its weights have to be worked out up to the step before.
inline void adagrad(const Table& table, int64_t row, const float* gradient, int32_t now,
                    const Step& step) {
    float* RESTRICT weights = table.weights + row * table.width;
    float* RESTRICT totals = table.totals + row * table.width;
    float* RESTRICT squares = table.squares + row * table.width;
    table.last[row] = now;
    const bool is_regularised = step.l1 != 0 || step.l2 != 0;
    for (int64_t k = 0; k < table.width; ++k) squares[k] += gradient[k] * gradient[k];
    for (int64_t k = 0; k < table.width; ++k)
        weights[k] -= step_size(step, squares[k]) * gradient[k];
    for (int64_t k = 0; is_regularised && k < table.width; ++k) {
        const float size = step_size(step, squares[k]);
        const float left = std::max(std::fabs(weights[k]) - size * step.l1, 0.0f);
        weights[k] = std::copysign(left / (1 + size * step.l2), weights[k]);
    }
    for (int64_t k = 0; k < table.width; ++k) totals[k] += weights[k];
}

inline void prefetch(const Table& table, int64_t row) {
    PREFETCH(table.last + row);
    for (const float* part : {table.weights, table.totals, table.squares}) {
        const float* soon = part + row * table.width;
        PREFETCH(soon);
        PREFETCH(soon + std::min<int64_t>(16, table.width - 1));
    }
}

// Step number `now` for some rows, each once.
inline void adagrad(const Table& table, const int32_t* rows, int64_t n_rows,
                    const float* gradient, int32_t now, const Step& step) {
    const int64_t ahead = 8;
    for (int64_t i = 0; i < n_rows; ++i) {
        if (i + ahead < n_rows) prefetch(table, rows[i + ahead]);
        lazy_regularise(table, rows[i], now - 1, step);
        adagrad(table, rows[i], gradient + i * table.width, now, step);
    }
}

}  // namespace costner_sparse
