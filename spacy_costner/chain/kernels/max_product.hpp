// The best path: Viterbi's recursion.
// No include guard: each_isa.hpp includes it once for each instruction set.
//
//     delta_t[j] = max_i (delta_{t-1}[i] + transitions[i, j]) + emissions[t, j] - m_{t-1},
//     m_t = max_j delta_t[j]
//
// Differences compared to the textbook: each row is lowered by the largest entry of the row
// before, so that long sequences lose no digits; and no pointers back are kept. The one pointer
// a token that the trace back asks for is found by looking for the largest
// delta_{t-1}[i] + transitions[i, j] again, which costs K a token rather than K^2.

template <class Real>
class MaxProduct {
  public:
    MaxProduct(const Scores& scores, int n_threads)
        : n_threads_(n_threads), chain_(scores), rows_(chain_), width_(rows_.width),
          schedule_(chain_.lengths, chain_.n_sequences, ROWS, n_threads),
          transposed_(static_cast<std::size_t>(chain_.n_tags) * width_) {
        pack_transitions();
    }

    void best_path(int64_t* tags) {
        const int64_t n_tokens = schedule_.most_tokens_in_a_group(chain_.lengths);
        std::vector<Buffer<Real>> delta;
        for (int i = 0; i < n_threads_; i++) delta.emplace_back(n_tokens * width_);
        in_threads(schedule_.groups(), n_threads_, [&](const Group& group, int thread) {
            forward(group, delta[thread]);
            const Real* rows = delta[thread];
            for (int r = 0; r < group.size; r++) {
                trace_back(group.sequences[r], rows, tags);
                rows += chain_.lengths[group.sequences[r]] * width_;
            }
        });
    }

  private:
    struct Step {
        Real* delta[ROWS];
        Vec<Real> lowered_by[ROWS], largest[ROWS];

        INLINE void operator()(int r, int column, Vec<Real> total) {
            const Vec<Real> x = total + (load(delta[r] + column) - lowered_by[r]);
            store(delta[r] + column, x);
            largest[r] = larger<Real>(x, largest[r]);
        }
    };

    void pack_transitions() {
        const int n_tags = chain_.n_tags;
        const std::size_t size = static_cast<std::size_t>(n_tags) * width_;
        Buffer<Real> entries(size);
        std::fill(transposed_ + 0, transposed_ + size, -std::numeric_limits<Real>::infinity());
        for (int i = 0; i < n_tags; i++) {
            Real* row = entries + static_cast<std::size_t>(i) * width_;
            rows_.fetch(chain_.transitions + static_cast<std::size_t>(rows_.order[i]) * n_tags, row);
            for (int j = 0; j < n_tags; j++) transposed_[static_cast<std::size_t>(j) * width_ + i] = row[j];
        }
        by_source_ = Matrix<Real>::pack(entries, n_tags, Maxima());
    }

    // The rows of delta of a group, one sequence after another.
    void forward(const Group& group, Real* delta) {
        Step step;
        for (int r = 0; r < group.size; r++) {
            const int64_t s = group.sequences[r], length = chain_.lengths[s];
            const Real* from = chain_.emissions + chain_.begins[s] * chain_.n_tags;
            step.delta[r] = delta;
            for (int64_t t = 0; t < length; t++, delta += width_)
                rows_.fetch_folded(from, t, length, delta);
            step.largest[r] = load(step.delta[r]);
            for (int k = LANES<Real>; k < width_; k += LANES<Real>)
                step.largest[r] = larger<Real>(load(step.delta[r] + k), step.largest[r]);
        }
        int running = group.size;
        for (int64_t t = 1;; t++) {
            while (running > 0 && chain_.lengths[group.sequences[running - 1]] <= t) running--;
            if (running == 0) break;
            const Real* before[ROWS] = {};
            for (int r = 0; r < running; r++) {
                const Real largest = largest_lane<Real>(step.largest[r]);
                step.lowered_by[r] = splat(std::isfinite(largest) ? largest : Real(0));
                step.largest[r] = splat(-std::numeric_limits<Real>::infinity());
                before[r] = step.delta[r];
                step.delta[r] += width_;
            }
            multiply<Maxima>(by_source_, before, running, step);
        }
    }

    void trace_back(int64_t s, const Real* delta, int64_t* tags) const {
        int64_t t = chain_.lengths[s] - 1;
        int64_t* path = tags + chain_.begins[s];
        int best = first_largest([=](int k) { return load(delta + t * width_ + k); });
        for (;; t--) {
            path[t] = rows_.order[best];
            if (t == 0) break;
            const Real* before = delta + (t - 1) * width_;
            const Real* into = transposed_ + static_cast<std::size_t>(best) * width_;
            best = first_largest([=](int k) { return load(before + k) + load(into + k); });
        }
    }

    // The place of the largest entry of a row that is given a vector at a time.
    template <class Row>
    INLINE int first_largest(Row row) const {
        Vec<Real> largest = row(0);
        for (int k = LANES<Real>; k < width_; k += LANES<Real>) largest = larger<Real>(row(k), largest);
        const Real sought = largest_lane<Real>(largest);
        for (int k = 0; k < width_; k += LANES<Real>) {
            Real lanes[LANES<Real>];
            store_anywhere(lanes, row(k));
            for (int i = 0; i < LANES<Real>; i++)
                if (lanes[i] == sought) return std::min(k + i, chain_.n_tags - 1);
        }
        return 0;
    }

    const int n_threads_;
    const Chain<Real> chain_;
    const Rows<Real> rows_;
    const int width_;
    const Schedule schedule_;
    Buffer<Real> transposed_;
    Matrix<Real> by_source_;
};
