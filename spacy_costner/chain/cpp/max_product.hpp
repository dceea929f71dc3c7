// The best path, using the Viterbi algorithm.
//
//     delta_t[j] = max_i (delta_{t-1}[i] + transitions[i, j]) + emissions[t, j]
//
// The computation uses float64, to maintain precision for long sequences and to break ties consistently on all
// machines. Difference from the textbook: no back pointers are stored. The traceback only needs one back pointer per
// token, so it recomputes the maximum over delta_{t-1}[i] + transitions[i, j], which costs K per token, while storing
// all back pointers would cost K^2.
//
// Let S_t be the tags of a set at t. The best path outside of the set leaves the set at the first token whose tag is
// not in S_t:
//
//     stay_t[j]  = max_{i in S_{t-1}} (stay_{t-1}[i] + transitions[i, j]) + emissions[t, j]    for j in S_t
//     leave_t[j] = the same                                                              for j not in S_t
//     delta_t[j] = max(leave_t[j], max_i (delta_{t-1}[i] + transitions[i, j]) + emissions[t, j])

class MaxMessages;

class MaxProduct {
  public:
    MaxProduct(const Potentials& scores, int n_threads)
        : chain_(scores), n_threads_(n_threads), rows_(chain_), width_(rows_.width),
          schedule_(chain_.lengths, chain_.n_sequences, ROWS, n_threads),
          transitions_(static_cast<std::size_t>(chain_.n_tags) * width_) {
        pack_transitions();
    }

    // Finds the best paths, and writes their tags, (N,), and scores. If `excluded` isn't null, only paths outside of
    // this set are considered.
    void best_path(const Allowed* excluded, int64_t* tags, double* scores) const {
        std::fill(scores, scores + chain_.n_sequences, excluded ? -INFINITY : 0.0);
        if (excluded) return best_path_excluding(*excluded, tags, scores);
        for_groups([&](const Group& group, double* const* delta, double*) {
            forward(group, delta);
            for (int r = 0; r < group.size; r++) {
                const int64_t s = group.sequences[r];
                scores[s] = trace_back(s, delta[r], nullptr, nullptr, tags);
            }
        });
    }

  private:
    friend class MaxMessages;

    // The same for paths outside of a set.
    void best_path_excluding(const Allowed& allowed, int64_t* tags, double* scores) const {
        const TagSets sets(allowed, chain_.n_tokens, rows_.order);
        std::vector<double> stay(sets.size());
        for_groups([&](const Group& group, double* const* delta, double* scratch) {
            LeavingStep step;
            for (int r = 0; r < group.size; r++) step.leave[r] = scratch + r * width_;
            forward(group, delta, step, [&](int r, int64_t t) {
                leave(chain_.begins[group.sequences[r]], t, sets, stay.data(), step.delta[r], scratch + r * width_);
            });
            for (int r = 0; r < group.size; r++) {
                const int64_t s = group.sequences[r];
                scores[s] = trace_back(s, delta[r], &sets, stay.data(), tags);
            }
        });
    }

    // Converts a product of messages to delta of the next token. Its row initially contains the emissions.
    struct Step {
        double* delta[ROWS];

        INLINE void operator()(int r, int column, Vec<double> best) {
            store(delta[r] + column, best + load(delta[r] + column));
        }
    };

    // The same for delta outside of a set, using the scores `leave` of the token.
    struct LeavingStep {
        double* delta[ROWS];
        const double* leave[ROWS];

        INLINE void operator()(int r, int column, Vec<double> best) {
            const Vec<double> best_outside = larger<double>(best, load(leave[r] + column));
            store(delta[r] + column, best_outside + load(delta[r] + column));
        }
    };

    // Calls work(group, delta, scratch) with memory for the rows of each sequence and for ROWS additional rows.
    void for_groups(FunctionRef<void(const Group&, double* const*, double*)> work) const {
        const int64_t n_tokens = schedule_.most_tokens_in_a_group(chain_.lengths);
        std::vector<Buffer<double>> memory;
        for (int i = 0; i < n_threads_; i++) memory.emplace_back((ROWS + n_tokens) * width_);
        in_threads(schedule_.groups(), n_threads_, [&](const Group& group, int thread) {
            double *delta[ROWS], *row = memory[thread] + ROWS * width_;
            for (int r = 0; r < group.size; r++) {
                delta[r] = row;
                row += chain_.lengths[group.sequences[r]] * width_;
            }
            work(group, delta, memory[thread]);
        });
    }

    // Stores the transitions as rows from each tag, as rows to each tag, and as the matrix of the recursion.
    void pack_transitions() {
        const int n_tags = chain_.n_tags;
        for (int i = 0; i < n_tags; i++)
            rows_.fetch(chain_.transitions, rows_.order[i], transitions_ + static_cast<std::size_t>(i) * width_);
        by_target_ = transpose<double>(transitions_, n_tags, width_, -INFINITY);
        by_source_ = Matrix<double>::pack(transitions_, n_tags, Maxima());
    }

    // Computes delta for the sequences of a group. Row r starts at delta[r].
    void forward(const Group& group, double* const* delta) const {
        Step step;
        forward(group, delta, step, [](int, int64_t) {});
    }

    // The recursion. Calls prepare(r, t) when the row for token t of sequence r contains its emissions. Sequences are
    // sorted by length: the first `running` sequences have a token t.
    template <class AnyStep, class Prepare>
    void forward(const Group& group, double* const* delta, AnyStep& step, Prepare prepare) const {
        for (int r = 0; r < group.size; r++) {
            step.delta[r] = delta[r];
            rows_.fetch_sequence(chain_, group.sequences[r], delta[r]);
            prepare(r, 0);
        }
        int running = group.size;
        for (int64_t t = 1;; t++) {
            while (running > 0 && chain_.lengths[group.sequences[running - 1]] <= t) running--;
            if (running == 0) break;
            const double* before[ROWS] = {};
            for (int r = 0; r < running; r++) {
                before[r] = step.delta[r];
                step.delta[r] += width_;
                prepare(r, t);
            }
            // Don't use `multiply`, because storing the products first would take a tenth of the time.
            multiply_panels<Maxima>(by_source_, before, running, step);
        }
    }

    // Computes the scores `stay` of a token from its emissions, and the scores `leave` relative to the emissions. At
    // the first token, delta already equals `leave`.
    void leave(int64_t begin, int64_t t, const TagSets& sets, double* stay, double* emissions, double* leave) const {
        if (t == 0) {
            for (const int& k : sets[begin]) {
                stay[sets.index(k)] = emissions[k];
                emissions[k] = -INFINITY;
            }
            return;
        }
        std::fill_n(leave, width_, -INFINITY);
        for (const int& i : sets[begin + t - 1]) {
            const double* onwards = transitions_ + static_cast<std::size_t>(i) * width_;
            const double score = stay[sets.index(i)];
            for (int k = 0; k < width_; k += LANES<double>)
                store(leave + k, larger<double>(load(onwards + k) + score, load(leave + k)));
        }
        for (const int& k : sets[begin + t]) {
            stay[sets.index(k)] = leave[k] + emissions[k];
            leave[k] = -INFINITY;
        }
    }

    // Returns the best tag at token t of a sequence before a given tag.
    int tag_before(int tag, const double* delta, int64_t t) const {
        const double *before = delta + t * width_, *into = by_target_ + static_cast<std::size_t>(tag) * width_;
        return first_largest([=](int k) { return load(before + k) + load(into + k); });
    }

    // Writes the tags of the best path of sequence s, outside of `sets` unless it is null. RETURNS the score of the
    // path.
    double trace_back(int64_t s, const double* delta, const TagSets* sets, const double* stay, int64_t* tags) const {
        const int64_t begin = chain_.begins[s];
        int64_t t = chain_.lengths[s] - 1;
        const double* row = delta + t * width_;
        int best = first_largest([=](int k) { return load(row + k); });
        const double score = row[best];
        tags[begin + t] = rows_.order[best];
        bool has_left = true;  // whether the path is already outside of the set at token t
        while (t-- > 0) {
            const int next = best;
            if (has_left) best = tag_before(next, delta, t);
            // A path that was in the set at t may leave it at `next` or stay in it.
            if (sets && !(has_left && sets->has(begin + t + 1, next))) {
                const double* into = by_target_ + static_cast<std::size_t>(next) * width_;
                const auto score_in_set = [&](const int& i) { return stay[sets->index(i)] + into[i]; };
                const Places in_set = (*sets)[begin + t];
                const int* best_in_set =
                    std::max_element(in_set.begin(), in_set.end(), [&](const int& i, const int& j) {
                        return score_in_set(i) < score_in_set(j);
                    });
                const bool is_set_empty = best_in_set == in_set.end();
                has_left = has_left && (is_set_empty ||
                                        delta[t * width_ + best] + into[best] >= score_in_set(*best_in_set));
                if (!has_left) best = *best_in_set;
            }
            tags[begin + t] = rows_.order[best];
        }
        return score;
    }

    // Returns the position of the largest entry of a row, or the first position if there are ties. row(k) is the vector
    // of the entries starting from k.
    template <class Row>
    INLINE int first_largest(Row row) const {
        Vec<double> largest_lanes = row(0);
        for (int k = LANES<double>; k < width_; k += LANES<double>)
            largest_lanes = larger<double>(row(k), largest_lanes);
        const double largest = largest_lane<double>(largest_lanes);
        for (int k = 0; k < width_; k += LANES<double>) {
            double lanes[LANES<double>];
            store_anywhere(lanes, row(k));
            for (int i = 0; i < LANES<double>; i++)
                if (lanes[i] == largest) return std::min(k + i, chain_.n_tags - 1);
        }
        return 0;
    }

    const Chain chain_;
    const int n_threads_;
    const Rows<double> rows_;
    const int width_;
    const Schedule schedule_;
    Buffer<double> by_target_, transitions_;  // one row per tag, with the scores from and to all other tags
    Matrix<double> by_source_;
};
