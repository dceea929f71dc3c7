// Sums over all paths, by scaled forward and backward messages.
// No include guard: one_isa.hpp includes it once for each instruction set.
//
// alpha_t[j] is the sum over the paths that end in tag j at token t; beta_t[i] is the sum over the
// continuations of tag i at token t (Rabiner, 1989, sections III.A and V.A), on exponentiated scores E, M:
//
//     alpha_t[j]    = c_{t-1} sum_i alpha_{t-1}[i] M[i, j] E_t[j],    c_t = 1 / sum_j alpha_t[j]
//     beta_{t-1}[i] = c_{t-1} sum_j M[i, j] E_t[j] beta_t[j],         beta_T = c_T
//     log Z         = - sum_t log c_t + what the scores were lowered by
//
// Differences from the textbook:
//
// * The factor c_{t-1} that normalises a message is applied one token late, to the next
//   message, so that summing and dividing don't delay the recursion. Where a sum is so small
//   that the next product could underflow, the message is normalised at once.
// * beta uses alpha's factors, so sum_k alpha_t[k] beta_t[k] is 1 at every token but for
//   rounding, which is divided out. beta is only kept where alpha is positive, and 0 elsewhere,
//   where it counts for nothing and could overflow.
// * A small entry may underflow, and with it the paths that pass through it. So a sequence with
//   an entry that should be positive and is below SMALLEST is marked as underflow and computed
//   again in double, and if that underflows with Real = Extended, where only sequences without a
//   legal path are marked. Each sequence keeps its least entry that isn't certainly 0; only where
//   that is below SMALLEST are rows searched for entries that a legal transition leads to.
// * Sequences of nearly equal length are processed side by side, so that each token is a small
//   matrix product; and expected transitions are one matrix product over all tokens at the end.

constexpr double COMFORTABLE = 1.0 / 1024;  // sums above this may wait a token for their factor
template <class Real>
inline const Real LARGEST = Real(1) / SMALLEST<Real>;

// log of a product of many factors, without the logarithm of each.
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

template <class Score, class Real>
class PosteriorOf;

template <class Score, class Real>
class SumProductOf final : public SumProduct {
  public:
    SumProductOf(const Potentials& scores, int n_threads, const std::vector<char>& left_out = {})
        : scores_(scores), chain_(scores), rows_(chain_), width_(rows_.width), n_threads_(n_threads),
          schedule_(chain_.lengths, chain_.n_sequences, ROWS, n_threads, left_out),
          memory_(chain_.n_tokens * (2 * width_ + 1)), emissions_(memory_),
          alpha_(emissions_ + chain_.n_tokens * width_),
          factors_(alpha_ + chain_.n_tokens * width_), underflow_(chain_.n_sequences) {
        exponentiate_transitions();
    }

    void log_partition(double* log_z) override {
        run_forward(log_z);
        if constexpr (!IS_EXTENDED)
            if (any(underflow_)) {
                wider_ = std::make_unique<Wider>(scores_, n_threads_, none_of(underflow_));
                wider_->log_partition(log_z);
            }
    }

    void backprop(const double* d_log_z, const Gradient& out) override {
        Score* d_emissions = static_cast<Score*>(out.emissions);
        Score* d_transitions = static_cast<Score*>(out.transitions);
        std::fill_n(d_transitions, static_cast<std::size_t>(chain_.n_tags) * chain_.n_tags, Score(0));
        add_marginals(d_log_z, d_emissions, d_transitions);
        collect_ends(chain_, d_emissions, static_cast<Score*>(out.start), static_cast<Score*>(out.end));
    }

  private:
    template <class, class>
    friend class SumProductOf;
    friend class PosteriorOf<Score, Real>;
    using Wider = SumProductOf<Score, Wide<Real>>;
    static constexpr bool IS_EXTENDED = std::is_same_v<Real, Extended>;

    void run_forward(double* log_z) {
        in_threads(schedule_.groups(), n_threads_, [&](const Group& group, int) { forward(group, log_z); });
    }

    void clear_rows(const std::vector<char>& of_sequences, Score* d_emissions) const {
        for (int64_t s = 0; s < chain_.n_sequences; s++)
            if (of_sequences[s])
                std::fill_n(d_emissions + chain_.begins[s] * chain_.n_tags,
                            static_cast<int64_t>(chain_.lengths[s]) * chain_.n_tags, Score(0));
    }

    // Sets the emissions' part of the gradient, adds the transitions' part.
    void add_marginals(const double* d_log_z, Score* d_emissions, Score* d_transitions) const {
        const Matrix<Real> transposed = transpose();
        std::vector<Backward> threads;
        for (int i = 0; i < n_threads_; i++) threads.emplace_back(*this, transposed);
        std::vector<char> underflow = underflow_;
        in_threads(schedule_.groups(), n_threads_, [&](const Group& group, int thread) {
            threads[thread].run(group, d_log_z, d_emissions, underflow);
        });
        collect_pairs(pairs_of(threads), d_transitions);
        if constexpr (!IS_EXTENDED)
            if (any(underflow)) {
                clear_rows(underflow, d_emissions);
                if (wider_ && underflow == underflow_) return wider_->add_marginals(d_log_z, d_emissions, d_transitions);
                std::vector<double> log_z(chain_.n_sequences);
                Wider wider(scores_, n_threads_, none_of(underflow));
                wider.log_partition(log_z.data());
                wider.add_marginals(d_log_z, d_emissions, d_transitions);
            }
    }

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

    class Backward;

    void exponentiate_transitions() {
        const int n_tags = chain_.n_tags;
        const std::vector<int>& order = rows_.order;
        const Score* end = chain_.transitions + static_cast<std::size_t>(n_tags) * n_tags;
        shift_ = finite_or_0(*std::max_element(chain_.transitions, end));
        transitions_ = Buffer<Real>(static_cast<std::size_t>(n_tags) * width_);
        Vec<Real> least = splat(Real(1));
        for (int i = 0; i < n_tags; i++) {
            Real* row = transitions_ + static_cast<std::size_t>(i) * width_;
            rows_.fetch(chain_.transitions + static_cast<std::size_t>(order[i]) * n_tags, row);
            least = smaller<Real>(lower_and_exponentiate(row, shift_), least);
        }
        small_transitions_ = !(smallest_lane<Real>(least) >= SMALLEST<Real>);
        by_source_ = Matrix<Real>::pack(transitions_, n_tags, Sums());
    }

    Matrix<Real> transpose() const {
        const int n_tags = chain_.n_tags;
        Buffer<Real> transposed(static_cast<std::size_t>(n_tags) * width_);
        std::fill(transposed + 0, transposed + static_cast<std::size_t>(n_tags) * width_, Real(0));
        for (int i = 0; i < n_tags; i++)
            for (int j = 0; j < n_tags; j++)
                transposed[static_cast<std::size_t>(j) * width_ + i] =
                    transitions_[static_cast<std::size_t>(i) * width_ + j];
        return Matrix<Real>::pack(transposed, n_tags, Sums());
    }

    // exp(row - shift) in place; the least result that should be positive, lane by lane.
    INLINE Vec<Real> lower_and_exponentiate(Real* row, Real shift) const {
        const Vec<Real> forbidden = splat(Real(-INFINITY));
        Vec<Real> least = splat(Real(1));
        for (int k = 0; k < width_; k += LANES<Real>) {
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

    // E of one sequence, each row 1 at most. RETURNS what its rows were lowered by in all.
    double exponentiate(int64_t s) {
        const int64_t length = chain_.lengths[s];
        Real* row = emissions_ + chain_.begins[s] * width_;
        rows_.fetch_sequence(chain_, s, row);
        double shifts = static_cast<double>(shift_) * (length - 1);
        Vec<Real> least = splat(Real(1));
        for (int64_t t = 0; t < length; t++, row += width_) {
            Vec<Real> largest = load(row);
            for (int k = LANES<Real>; k < width_; k += LANES<Real>)
                largest = larger<Real>(load(row + k), largest);
            const Real shift = finite_or_0(largest_lane<Real>(largest));
            shifts += static_cast<double>(shift);
            least = smaller<Real>(lower_and_exponentiate(row, shift), least);
        }
        underflow_[s] = small_transitions_ || !(smallest_lane<Real>(least) >= SMALLEST<Real>);
        return shifts;
    }

    void forward(const Group& whole, double* log_z) {
        ForwardStep step;
        LogProduct<Wide<Real>> factors[ROWS];
        int64_t tokens[ROWS], kept[ROWS];
        for (int r = 0; r < whole.size; r++) log_z[whole.sequences[r]] = exponentiate(whole.sequences[r]);
        const Group group = IS_EXTENDED ? whole : without(whole, underflow_.data(), kept);
        for (int r = 0; r < group.size; r++) {
            tokens[r] = chain_.begins[group.sequences[r]];
            step.alpha[r] = alpha_ + tokens[r] * width_;
            step.sum[r] = step.least[r] = splat(Real(0));
            for (int k = 0; k < width_; k += LANES<Real>) {
                const Vec<Real> x = load(emissions_ + tokens[r] * width_ + k);
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
                step.alpha[r] += width_;
                step.emissions[r] = emissions_ + (token + 1) * width_;
            }
            while (running > 0 && chain_.lengths[group.sequences[running - 1]] <= t + 1) running--;
            if (running == 0) break;
            multiply<Sums>(by_source_, before, running, step);
        }
        for (int r = 0; r < group.size; r++) {
            const int64_t s = group.sequences[r];
            log_z[s] -= factors[r].log();
            if (!underflow_[s] && !(smallest_lane<Real>(step.least[r]) >= SMALLEST<Real>))
                underflow_[s] = alpha_is_lost(s);
        }
    }

    // RETURNS c_t, or 1 after normalising a message at once whose sum is too small to wait: then
    // c_{t-1} is as if it had led to the result.
    INLINE Real normalise(int64_t s, int64_t t, Real sum, LogProduct<Wide<Real>>& factors) {
        if (!(sum >= Real(COMFORTABLE) && sum <= LARGEST<Real>)) return normalise_at_once(s, t, sum, factors);
        const Real factor = 1 / sum;
        factors.multiply(factor);
        return factor;
    }

    Real normalise_at_once(int64_t s, int64_t t, Real sum, LogProduct<Wide<Real>>& factors) {
        if (!(sum >= SMALLEST<Real> && sum <= LARGEST<Real>) || alpha_row_is_lost(s, t)) {
            underflow_[s] = true;
            factors.multiply(Wide<Real>(1) / sum);
            return 0;
        }
        const int64_t token = chain_.begins[s] + t;
        for (int k = 0; k < width_; k++) alpha_[token * width_ + k] /= sum;
        if (t > 0) factors_[token - 1] /= sum;
        factors.multiply(Wide<Real>(1) / sum);
        return 1;
    }

    bool alpha_is_lost(int64_t s) const {
        for (int64_t t = 1; t < chain_.lengths[s]; t++)
            if (alpha_row_is_lost(s, t)) return true;
        return false;
    }

    // Whether a legal transition leads to an entry that is below SMALLEST.
    bool alpha_row_is_lost(int64_t s, int64_t t) const {
        if (t == 0) return false;
        const int64_t token = chain_.begins[s] + t;
        const Real* emissions = emissions_ + token * width_;
        const Real* alpha = alpha_ + token * width_;
        const Real* before = alpha - width_;
        for (int j = 0; j < chain_.n_tags; j++) {
            if (emissions[j] == 0 || alpha[j] >= SMALLEST<Real>) continue;
            for (int i = 0; i < chain_.n_tags; i++)
                if (before[i] > 0 && transitions_[static_cast<std::size_t>(i) * width_ + j] > 0) return true;
        }
        return false;
    }

    template <class Thread>
    static std::vector<const Real*> pairs_of(const std::vector<Thread>& threads) {
        std::vector<const Real*> pairs;
        for (const Thread& thread : threads) pairs.push_back(thread.pairs);
        return pairs;
    }

    // Adds what all threads have counted, times M.
    void collect_pairs(const std::vector<const Real*>& counts, Score* d_transitions) const {
        const int n_tags = chain_.n_tags;
        for (const Panel<Real>& panel : by_source_.panels) {
            const int n_columns = panel.n_vectors * LANES<Real>;
            const int past = std::min(n_columns, n_tags - panel.column);
            for (int k = 0; k < panel.n_sources; k++) {
                const int i = rows_.order[by_source_.sources[panel.first_source + k]];
                const std::size_t at = panel.offset + static_cast<std::size_t>(k) * n_columns;
                for (int c = 0; c < past; c++) {
                    Real sum = 0;
                    for (const Real* pairs : counts) sum += pairs[at + c];
                    d_transitions[static_cast<std::size_t>(i) * n_tags + rows_.order[panel.column + c]] +=
                        static_cast<Score>(sum * by_source_.entries[at + c]);
                }
            }
        }
    }

    const Potentials scores_;
    const Chain<Score> chain_;
    const Rows<Real> rows_;
    const int width_, n_threads_;
    const Schedule schedule_;
    Buffer<Real> memory_;  // one piece, for malloc to keep it for the next call
    Real *const emissions_, *const alpha_, *const factors_;
    Buffer<Real> transitions_;
    std::vector<char> underflow_;
    std::unique_ptr<Wider> wider_;  // of the sequences whose forward messages underflow
    Real shift_ = 0;
    bool small_transitions_ = false;
    Matrix<Real> by_source_;
};

// The backward pass of one thread: its scratch memory, and its expected transitions.
template <class Score, class Real>
class SumProductOf<Score, Real>::Backward {
  public:
    Backward(const SumProductOf& owner, const Matrix<Real>& transposed)
        : pairs(owner.by_source_.size), owner_(owner), transposed_(transposed), width_(owner.width_),
          beta_(owner.schedule_.most_tokens_in_a_group(owner.chain_.lengths) * width_),
          ahead_(2 * ROWS * width_), row_(width_) {
        std::fill(pairs + 0, pairs + owner.by_source_.size, Real(0));
    }

    void run(const Group& group, const double* weights, Score* d_emissions, std::vector<char>& underflow) {
        const Group rest = without(group, underflow.data(), kept_);
        Real *beta[ROWS], *row = beta_;
        for (int r = 0; r < rest.size; r++) {
            beta[r] = row;
            row += owner_.chain_.lengths[rest.sequences[r]] * width_;
        }
        backward(rest, beta, underflow.data());
        for (int r = 0; r < rest.size; r++) {
            const int64_t s = rest.sequences[r];
            if (!underflow[s]) finish(s, static_cast<Real>(weights[s]), beta[r], d_emissions);
        }
    }

    // beta of the sequences of a group, that of the r-th from beta[r] on; marks sequences that underflow.
    void backward(const Group& group, Real* const* beta, char* underflow) {
        if (group.size == 0) return;
        Vec<Real> least[ROWS];
        recur(group, beta, least);
        for (int r = 0; r < group.size; r++)
            if (!(smallest_lane<Real>(least[r]) >= SMALLEST<Real>))
                underflow[group.sequences[r]] = beta_underflows(group.sequences[r], beta[r]);
    }

    Buffer<Real> pairs;

  private:
    struct Step {
        const Real *emissions[ROWS], *alpha[ROWS];
        Real *beta[ROWS], *ahead[ROWS];
        Vec<Real> factor[ROWS];
        Vec<Real>* least;

        INLINE void operator()(int r, int column, Vec<Real> total) {
            const Vec<Real> zero = splat(Real(0));
            const decltype(zero < zero) reached = load(alpha[r] + column) > zero;
            const Vec<Real> x = reached ? total * factor[r] : zero;
            store(beta[r] + column, x);
            store(ahead[r] + column, x * load(emissions[r] + column));
            least[r] = smaller<Real>(reached ? x : splat(Real(1)), least[r]);
        }
    };

    // Sets the least entry of beta that counts, of each sequence and lane by lane.
    void recur(const Group& group, Real* const* beta, Vec<Real>* least) {
        Step step;
        step.least = least;
        int64_t last[ROWS] = {};
        const Real* after[ROWS];
        for (int r = 0; r < group.size; r++) {
            const int64_t s = group.sequences[r], length = owner_.chain_.lengths[s];
            last[r] = length - 1;
            const int64_t token = owner_.chain_.begins[s] + length - 1;
            step.emissions[r] = owner_.emissions_ + token * width_;
            step.alpha[r] = owner_.alpha_ + token * width_;
            step.beta[r] = beta[r] + last[r] * width_;
            step.ahead[r] = ahead_row(last[r], r);
            step.factor[r] = splat(owner_.factors_[token]);
            least[r] = splat(Real(1));
            for (int k = 0; k < width_; k += LANES<Real>) step(r, k, splat(Real(1)));
        }
        int running = 0;
        for (int64_t t = last[0]; t > 0; t--) {
            while (running < group.size && last[running] >= t) running++;
            for (int r = 0; r < running; r++) {
                const int64_t token = owner_.chain_.begins[group.sequences[r]] + t - 1;
                after[r] = step.ahead[r];
                step.ahead[r] = ahead_row(t - 1, r);
                step.emissions[r] -= width_;
                step.alpha[r] -= width_;
                step.beta[r] -= width_;
                step.factor[r] = splat(owner_.factors_[token]);
            }
            multiply<Sums>(transposed_, after, running, step);
        }
    }

    // E beta of a token of sequence r; the one before and the one after it don't overlap.
    Real* ahead_row(int64_t t, int r) { return ahead_ + ((t % 2) * ROWS + r) * width_; }

    // Whether a legal transition leads from an entry that is below SMALLEST.
    bool beta_underflows(int64_t s, const Real* beta) const {
        const int n_tags = owner_.chain_.n_tags;
        const Real* alpha = owner_.alpha_ + owner_.chain_.begins[s] * width_;
        for (int64_t t = 0; t + 1 < owner_.chain_.lengths[s]; t++, alpha += width_, beta += width_)
            for (int i = 0; i < n_tags; i++) {
                if (alpha[i] == 0 || beta[i] >= SMALLEST<Real>) continue;
                const Real* transitions = owner_.transitions_ + static_cast<std::size_t>(i) * width_;
                for (int j = 0; j < n_tags; j++)
                    if (transitions[j] > 0 && beta[width_ + j] > 0) return true;
            }
        return false;
    }

    // Tag probabilities alpha_t beta_t go out; beta_t becomes what alpha_{t-1} M has to be
    // multiplied by to give the probabilities of transitions.
    void finish(int64_t s, Real weight, Real* beta, Score* d_emissions) {
        const int64_t begin = owner_.chain_.begins[s], length = owner_.chain_.lengths[s];
        const int n_tags = owner_.chain_.n_tags;
        Real pair_scale = 0;
        for (int64_t t = 0; t < length; t++) {
            const Real* alpha = owner_.alpha_ + (begin + t) * width_;
            const Real* emissions = owner_.emissions_ + (begin + t) * width_;
            Real* ahead = beta + t * width_;
            Vec<Real> overlap = splat(Real(0));
            for (int k = 0; k < width_; k += LANES<Real>) overlap += load(alpha + k) * load(ahead + k);
            const Real scale = weight / sum_lanes<Real>(overlap);
            for (int k = 0; k < width_; k += LANES<Real>) {
                const Vec<Real> b = load(ahead + k);
                store(row_ + k, load(alpha + k) * b * scale);
                store(ahead + k, b * load(emissions + k) * pair_scale);
            }
            owner_.rows_.put(row_, d_emissions + (begin + t) * n_tags);
            pair_scale = scale * owner_.factors_[begin + t];
        }
        add_outer(owner_.by_source_, owner_.alpha_ + begin * width_, beta + width_, width_, length - 1, static_cast<Real*>(pairs));
    }

    const SumProductOf& owner_;
    const Matrix<Real>& transposed_;
    const int width_;
    int64_t kept_[ROWS];
    Buffer<Real> beta_, ahead_, row_;
};
