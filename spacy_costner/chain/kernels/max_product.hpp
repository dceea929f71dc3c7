// The best path: Viterbi's recursion.
// No include guard: one_isa.hpp includes it once for each instruction set.
//
//     delta_t[j] = max_i (delta_{t-1}[i] + transitions[i, j]) + emissions[t, j]
//
// In float64, so that long sequences lose nothing and ties fall everywhere the same. Difference
// compared to the textbook: no pointers back are kept. The one pointer a token that the trace
// back asks for is found by looking for the largest delta_{t-1}[i] + transitions[i, j] again,
// which costs K a token where keeping them costs K^2.

template <class Score>
class BestWaysOf;

template <class Score>
class MaxProduct {
  public:
    MaxProduct(const Scores& scores, int n_threads)
        : chain_(scores), n_threads_(n_threads), rows_(chain_), width_(rows_.width),
          schedule_(chain_.lengths, chain_.n_sequences, ROWS, n_threads),
          by_target_(static_cast<std::size_t>(chain_.n_tags) * width_) {
        pack_transitions();
    }

    // The tags of the best paths, (N,), and their scores, (B,).
    void best_path(int64_t* tags, double* scores) {
        const int64_t n_tokens = schedule_.most_tokens_in_a_group(chain_.lengths);
        std::vector<Buffer<double>> delta;
        for (int i = 0; i < n_threads_; i++) delta.emplace_back(n_tokens * width_);
        std::fill(scores, scores + chain_.n_sequences, 0.0);
        in_threads(schedule_.groups(), n_threads_, [&](const Group& group, int thread) {
            double *rows[ROWS], *row = delta[thread];
            for (int r = 0; r < group.size; r++) {
                rows[r] = row;
                row += chain_.lengths[group.sequences[r]] * width_;
            }
            forward(group, rows);
            for (int r = 0; r < group.size; r++) {
                const int64_t s = group.sequences[r];
                scores[s] = trace_back(s, rows[r], tags);
            }
        });
    }

  private:
    friend class BestWaysOf<Score>;

    struct Step {
        double* delta[ROWS];

        INLINE void operator()(int r, int column, Vec<double> best) {
            store(delta[r] + column, best + load(delta[r] + column));
        }
    };

    void pack_transitions() {
        const int n_tags = chain_.n_tags;
        const std::size_t size = static_cast<std::size_t>(n_tags) * width_;
        Buffer<double> entries(size);
        std::fill_n(by_target_ + 0, size, -std::numeric_limits<double>::infinity());
        for (int i = 0; i < n_tags; i++) {
            double* row = entries + static_cast<std::size_t>(i) * width_;
            const auto tag = static_cast<std::size_t>(rows_.order[i]);
            rows_.fetch(chain_.transitions + tag * n_tags, row);
            for (int j = 0; j < n_tags; j++)
                by_target_[static_cast<std::size_t>(j) * width_ + i] = row[j];
        }
        by_source_ = Matrix<double>::pack(entries, n_tags, Maxima());
    }

    // delta of the sequences of a group, that of the r-th from delta[r] on.
    void forward(const Group& group, double* const* delta) const {
        Step step;
        for (int r = 0; r < group.size; r++) {
            step.delta[r] = delta[r];
            rows_.fetch_sequence(chain_, group.sequences[r], delta[r]);
        }
        int running = group.size;
        for (int64_t t = 1;; t++) {
            while (running > 0 && chain_.lengths[group.sequences[running - 1]] <= t) running--;
            if (running == 0) break;
            const double* before[ROWS] = {};
            for (int r = 0; r < running; r++) {
                before[r] = step.delta[r];
                step.delta[r] += width_;
            }
            multiply<Maxima>(by_source_, before, running, step);
        }
    }

    // RETURNS the score of the best path of sequence s, after writing its tags.
    double trace_back(int64_t s, const double* delta, int64_t* tags) const {
        int64_t* path = tags + chain_.begins[s];
        int64_t t = chain_.lengths[s] - 1;
        const double* row = delta + t * width_;
        int best = first_largest([=](int k) { return load(row + k); });
        const double score = row[best];
        path[t] = rows_.order[best];
        while (t-- > 0) {
            const double* before = delta + t * width_;
            const double* into = by_target_ + static_cast<std::size_t>(best) * width_;
            best = first_largest([=](int k) { return load(before + k) + load(into + k); });
            path[t] = rows_.order[best];
        }
        return score;
    }

    // The place of the largest entry of a row that is given a vector at a time.
    template <class Row>
    INLINE int first_largest(Row row) const {
        Vec<double> largest = row(0);
        for (int k = LANES<double>; k < width_; k += LANES<double>)
            largest = larger<double>(row(k), largest);
        const double sought = largest_lane<double>(largest);
        for (int k = 0; k < width_; k += LANES<double>) {
            double lanes[LANES<double>];
            store_anywhere(lanes, row(k));
            for (int i = 0; i < LANES<double>; i++)
                if (lanes[i] == sought) return std::min(k + i, chain_.n_tags - 1);
        }
        return 0;
    }

    const Chain<Score> chain_;
    const int n_threads_;
    const Rows<double> rows_;
    const int width_;
    const Schedule schedule_;
    Buffer<double> by_target_;
    Matrix<double> by_source_;
};
