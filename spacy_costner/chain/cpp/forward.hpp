// Sums over all paths, using scaled forward and backward messages.
//
// alpha_t[j] is the sum over the paths that end in tag j at token t; beta_t[i] is the sum over the
// continuations of tag i at token t (Rabiner, 1989, sections III.A and V.A), on exponentiated scores E, M:
//
//     alpha_t[j]    = c_{t-1} sum_i alpha_{t-1}[i] M[i, j] E_t[j],    c_t = 1 / sum_j alpha_t[j]
//     beta_{t-1}[i] = c_{t-1} sum_j M[i, j] E_t[j] beta_t[j],         beta_T = c_T
//     log Z         = - sum_t log c_t + the total shift of the scores
//
// Differences from the textbook:
//
// * The factor c_{t-1} that normalizes a message is applied one token late, to the next message, so that summing and
//   dividing don't delay the recursion. If a sum is so small that the next product may underflow, the message is
//   normalized immediately.
// * beta uses alpha's factors, so sum_k alpha_t[k] beta_t[k] is 1 at every token except for rounding errors, which are
//   divided out. beta is only computed where alpha is positive. Elsewhere it is irrelevant and may overflow, so it is
//   0.
// * A small entry may underflow, together with the paths through it. A sequence with an entry below SMALLEST that
//   should be positive is therefore marked as underflow and recomputed in double. If this underflows, too, it is
//   recomputed with Real = Extended, where only sequences without a legal path are marked. The smallest entry that
//   isn't certainly 0 is tracked for each sequence. Rows are only searched for entries reached by a legal transition if
//   it is below SMALLEST.
// * Sequences of similar length are processed in parallel, so that each token is a small matrix product. Expected
//   transitions are a single matrix product over all tokens at the end.

constexpr double COMFORTABLE = 1.0 / 1024;  // the factor for larger sums may be applied one token late
template <class Real>
inline const Real LARGEST = Real(1) / SMALLEST<Real>;

// The logarithm of a product of many factors, without computing the logarithm of each factor.
template <class Number>
class LogProduct {
  public:
    INLINE void multiply(Number factor) {
        product_ *= factor;
        if (++n_factors_ % 8 == 0) settle();
    }
    double log() {
        settle();
        return log_;
    }

  private:
    INLINE void settle() {
        using std::log;
        log_ += log(product_);
        product_ = 1.0;
    }
    double log_ = 0.0;
    Number product_ = 1.0;
    unsigned n_factors_ = 0;
};

// The forward messages of a batch, and the data needed for both directions.
template <class Real>
class ForwardMessages {
  public:
    static constexpr bool IS_EXTENDED = std::is_same_v<Real, Extended>;
    class Backward;

    ForwardMessages(const Potentials& scores, int n_threads, const std::vector<char>& left_out)
        : chain(scores), rows(chain), width(rows.width), n_threads(n_threads),
          schedule(chain.lengths, chain.n_sequences, ROWS, n_threads, left_out),
          underflow(chain.n_sequences), log_z(chain.n_sequences), memory_(chain.n_tokens * (3 * width + 1)),
          emissions_(memory_), alpha_(emissions_ + chain.n_tokens * width), beta_(alpha_ + chain.n_tokens * width),
          factors_(beta_ + chain.n_tokens * width) {
        exponentiate_transitions();
        for_groups([&](const Group& group, int) { forward(group); });
    }

    void for_groups(FunctionRef<void(const Group&, int)> work) const {
        in_threads(schedule.groups(), n_threads, work);
    }

    const Real* alpha_row(int64_t token) const { return alpha_ + token * width; }
    const Real* emission_row(int64_t token) const { return emissions_ + token * width; }
    const Real* transition_row(int place) const { return transitions_ + static_cast<std::size_t>(place) * width; }
    Real* beta_row(int64_t token) const { return beta_ + token * width; }  // memory for ForwardBackward
    Real factor(int64_t token) const { return factors_[token]; }

    // Sets the emission gradient of some sequences to 0.
    void clear_rows(const std::vector<char>& of_sequences, const Floats& d_emissions) const {
        const int64_t n_tags = chain.n_tags;
        for (int64_t s = 0; s < chain.n_sequences; s++)
            if (of_sequences[s]) d_emissions.clear(chain.begins[s] * n_tags, chain.lengths[s] * n_tags);
    }

    // Returns M^T for the backward recursion.
    Matrix<Real> transposed() const {
        return Matrix<Real>::pack(transpose<Real>(transitions_, chain.n_tags, width, 0), chain.n_tags, Sums());
    }

    // Returns the counts of each thread.
    template <class Thread>
    static std::vector<const Real*> pairs_of(const std::vector<Thread>& threads) {
        std::vector<const Real*> pairs;
        for (const Thread& thread : threads) pairs.push_back(thread.pairs);
        return pairs;
    }

    // Adds the transition gradient: the sum of the counts of all threads for each transition, multiplied by M. Both are
    // in the layout of by_source (see matrix.hpp).
    void collect_pairs(const std::vector<const Real*>& counts, const Floats& d_transitions) const {
        const int n_tags = chain.n_tags;
        for (const Panel<Real>& panel : by_source.panels) {
            const int n_columns = panel.n_vectors * LANES<Real>;
            const int past = std::min(n_columns, n_tags - panel.column);
            for (int k = 0; k < panel.n_sources; k++) {
                const int i = rows.order[by_source.sources[panel.first_source + k]];
                const std::size_t row = panel.offset + static_cast<std::size_t>(k) * n_columns;
                for (int c = 0; c < past; c++) {
                    Real sum = 0;
                    for (const Real* pairs : counts) sum += pairs[row + c];
                    d_transitions.add(static_cast<int64_t>(i) * n_tags + rows.order[panel.column + c],
                                      static_cast<double>(sum * by_source.entries[row + c]));
                }
            }
        }
    }

    const Chain chain;
    const Rows<Real> rows;
    const int width, n_threads;
    const Schedule schedule;
    Matrix<Real> by_source;
    std::vector<char> underflow;
    std::vector<double> log_z;

  private:
    // Converts a product of messages to alpha of the next token, with its sum and its smallest entry per lane.
    struct ForwardStep {
        const Real* emissions[ROWS];
        Real* alpha[ROWS];
        Vec<Real> factor[ROWS], sum[ROWS], least[ROWS];

        INLINE void operator()(int r, int column, Vec<Real> total) {
            const Vec<Real> emission = load(emissions[r] + column);
            const Vec<Real> x = total * (emission * factor[r]);
            store(alpha[r] + column, x);
            sum[r] += x;
            least[r] = smaller<Real>(emission > splat(Real(0)) ? x : splat(Real(1)), least[r]);
        }
    };

    // Computes M, shifted by the largest score so that no entry exceeds 1.
    void exponentiate_transitions() {
        const int n_tags = chain.n_tags;
        const std::vector<int>& order = rows.order;
        double largest = -INFINITY;
        for (int64_t i = 0; i < static_cast<int64_t>(n_tags) * n_tags; i++)
            largest = std::max(largest, chain.transitions[i]);
        shift_ = std::isfinite(largest) ? Real(largest) : Real(0);
        transitions_ = Buffer<Real>(static_cast<std::size_t>(n_tags) * width);
        Vec<Real> least = splat(Real(1));
        for (int i = 0; i < n_tags; i++) {
            Real* row = transitions_ + static_cast<std::size_t>(i) * width;
            rows.fetch(chain.transitions, order[i], row);
            least = smaller<Real>(lower_and_exponentiate(row, shift_), least);
        }
        small_transitions_ = !(smallest_lane<Real>(least) >= SMALLEST<Real>);
        by_source = Matrix<Real>::pack(transitions_, n_tags, Sums());
    }

    // Computes exp(row - shift) in place. RETURNS the smallest result that should be positive per lane.
    INLINE Vec<Real> lower_and_exponentiate(Real* row, Real shift) const {
        const Vec<Real> forbidden = splat(Real(-INFINITY));
        Vec<Real> least = splat(Real(1));
        for (int k = 0; k < width; k += LANES<Real>) {
            const Vec<Real> x = load(row + k) - shift;
            const Vec<Real> y = exp_of_negative(x);
            store(row + k, y);
            least = smaller<Real>(x > forbidden ? y : splat(Real(1)), least);
        }
        return least;
    }

    static Real finite_or_0(Real x) {
        using std::isfinite;
        return isfinite(x) ? x : Real(0);
    }

    // Computes E for a sequence, where rows are at most 1. RETURNS the total shift of its rows.
    double exponentiate(int64_t s) {
        const int64_t length = chain.lengths[s];
        Real* row = emissions_ + chain.begins[s] * width;
        rows.fetch_sequence(chain, s, row);
        double shifts = static_cast<double>(shift_) * (length - 1);
        Vec<Real> least = splat(Real(1));
        for (int64_t t = 0; t < length; t++, row += width) {
            Vec<Real> largest = load(row);
            for (int k = LANES<Real>; k < width; k += LANES<Real>)
                largest = larger<Real>(load(row + k), largest);
            const Real shift = finite_or_0(largest_lane<Real>(largest));
            shifts += static_cast<double>(shift);
            least = smaller<Real>(lower_and_exponentiate(row, shift), least);
        }
        underflow[s] = small_transitions_ || !(smallest_lane<Real>(least) >= SMALLEST<Real>);
        return shifts;
    }

    // The recursion for a group. Sequences are sorted by length: the first `running` sequences have a token t + 1.
    void forward(const Group& whole) {
        ForwardStep step;
        Buffer<Real> products(ROWS * width);
        LogProduct<Wide<Real>> factors[ROWS];
        int64_t tokens[ROWS], kept[ROWS];
        for (int r = 0; r < whole.size; r++) log_z[whole.sequences[r]] = exponentiate(whole.sequences[r]);
        const Group group = IS_EXTENDED ? whole : without(whole, underflow.data(), kept);
        for (int r = 0; r < group.size; r++) {
            tokens[r] = chain.begins[group.sequences[r]];
            step.alpha[r] = alpha_ + tokens[r] * width;
            step.sum[r] = step.least[r] = splat(Real(0));
            for (int k = 0; k < width; k += LANES<Real>) {
                const Vec<Real> x = load(emissions_ + tokens[r] * width + k);
                store(step.alpha[r] + k, x);
                step.sum[r] += x;
            }
            step.least[r] = splat(Real(1));
        }
        int running = group.size;
        for (int64_t t = 0;; t++) {
            const Real* before[ROWS];
            for (int r = 0; r < running; r++) {
                const int64_t token = tokens[r] + t;
                factors_[token] = normalise(group.sequences[r], t, sum_lanes<Real>(step.sum[r]), factors[r]);
                step.factor[r] = splat(factors_[token]);
                step.sum[r] = splat(Real(0));
                before[r] = step.alpha[r];
                step.alpha[r] += width;
                step.emissions[r] = emissions_ + (token + 1) * width;
            }
            while (running > 0 && chain.lengths[group.sequences[running - 1]] <= t + 1) running--;
            if (running == 0) break;
            multiply<Sums>(by_source, before, running, products, step);
        }
        for (int r = 0; r < group.size; r++) {
            const int64_t s = group.sequences[r];
            log_z[s] -= factors[r].log();
            if (!underflow[s] && !(smallest_lane<Real>(step.least[r]) >= SMALLEST<Real>))
                underflow[s] = alpha_is_lost(s);
        }
    }

    // RETURNS c_t, or 1 after immediately normalizing a message with a small sum. In this case, c_{t-1} is changed as
    // if it had produced the normalized message.
    INLINE Real normalise(int64_t s, int64_t t, Real sum, LogProduct<Wide<Real>>& factors) {
        if (!(sum >= Real(COMFORTABLE) && sum <= LARGEST<Real>)) return normalise_at_once(s, t, sum, factors);
        const Real factor = 1 / sum;
        factors.multiply(factor);
        return factor;
    }

    // Divides alpha_t by its sum before the next product. If the sum is out of range, the sequence is marked as
    // underflow.
    Real normalise_at_once(int64_t s, int64_t t, Real sum, LogProduct<Wide<Real>>& factors) {
        if (!(sum >= SMALLEST<Real> && sum <= LARGEST<Real>) || alpha_row_is_lost(s, t)) {
            underflow[s] = true;
            factors.multiply(Wide<Real>(1) / sum);
            return 0;
        }
        const int64_t token = chain.begins[s] + t;
        for (int k = 0; k < width; k++) alpha_[token * width + k] /= sum;
        if (t > 0) factors_[token - 1] /= sum;
        factors.multiply(Wide<Real>(1) / sum);
        return 1;
    }

    // Checks whether alpha_row_is_lost is true at any token of a sequence.
    bool alpha_is_lost(int64_t s) const {
        for (int64_t t = 1; t < chain.lengths[s]; t++)
            if (alpha_row_is_lost(s, t)) return true;
        return false;
    }

    // Checks whether a legal transition leads to an entry below SMALLEST.
    bool alpha_row_is_lost(int64_t s, int64_t t) const {
        if (t == 0) return false;
        const int64_t token = chain.begins[s] + t;
        const Real* emissions = emissions_ + token * width;
        const Real* alpha = alpha_ + token * width;
        const Real* before = alpha - width;
        for (int j = 0; j < chain.n_tags; j++) {
            if (emissions[j] == 0 || alpha[j] >= SMALLEST<Real>) continue;
            for (int i = 0; i < chain.n_tags; i++)
                if (before[i] > 0 && transitions_[static_cast<std::size_t>(i) * width + j] > 0) return true;
        }
        return false;
    }

    Buffer<Real> memory_;  // of all arrays below: malloc keeps a single large block for the next call
    Real *const emissions_, *const alpha_, *const beta_, *const factors_;
    Buffer<Real> transitions_;
    Real shift_ = 0;
    bool small_transitions_ = false;
};
