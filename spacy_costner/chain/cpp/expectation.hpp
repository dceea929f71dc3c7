// The expectation of values that are summed over the tags and transitions of a path, and the entropy.

// E_p[v(y)] for values v_t[k] of tags and V[i, j] of transitions. Given the tag j at t, the means of V for the
// transition from the previous tag and for the transition to the next tag are
//
//     A_t[j] / alpha_t[j],  A_t[j] = c_{t-1} E_t[j] sum_i alpha_{t-1}[i] M[i, j] V[i, j]
//     B_t[i] / beta_t[i],   B_t[i] = c_t sum_j M[i, j] V[i, j] E_{t+1}[j] beta_{t+1}[j]
//
// With weight w, the gradient is the mass w p (v - E_p[v]) on tags and transitions. The mass on a transition is
// propagated leftwards from its first tag and rightwards from its second tag:
//
//     s_t  = w ((v_t - E_p[v_t]) beta_t + B_t - n_t beta_t),    n_t = sum_j B_t[j] alpha_t[j]
//     s'_t = w ((v_t - E_p[v_t]) alpha_t + A_t - m_t alpha_t),  m_t = sum_j A_t[j] beta_t[j]
//
// n_t equals m_{t+1} except for rounding. Both are used, because mass that doesn't sum to exactly 0 accumulates in long
// sequences.
//
// The entropy is E_p[-log p(y)]. Its gradient is the gradient of E_p[v(y)] for v = -s. Since constants don't affect it,
// v is the difference between the score and the largest score of its row or of the transitions. The value of the
// entropy is a sum of positive terms,
//
//     H = H(y_T) + sum_t sum_j p(y_t = j) H(y_{t-1} | y_t = j),    p(y_{t-1} = i | y_t = j) ~ alpha_{t-1}[i] M[i, j]
template <class Real>
class Expectation final : public QueryBase<Real> {
  public:
    // values: Null for the entropy.
    Expectation(const ForwardBackward<Real>& owner, const Potentials* values, double* means)
        : QueryBase<Real>(owner), is_entropy_(!values), values_(values ? *values : owner.scores), width_(owner.width),
          start_(width_), end_(width_), of_tags_(owner.chain.n_tokens), of_pairs_(owner.chain.n_tokens) {
        weigh_pairs();
        fetch(values_.start, 0, start_);
        fetch(values_.end, 0, end_);
        owner.forward.for_groups([&](const Group& group, int) {
            Buffer<Real> rows(this->chain_.lengths[group.sequences[0]] * width_);
            for (int r = 0; r < group.size; r++)
                if (const int64_t s = group.sequences[r]; !this->underflow[s]) {
                    means[s] = mean(s, rows);
                    if (is_entropy_) means[s] = entropy(s);
                }
        });
    }

  private:
    void add_sources(const Group& group, const double* d_means, Propagation<Real>& propagation) const override {
        const std::size_t size = group.size ? this->chain_.lengths[group.sequences[0]] * width_ : 0;
        Buffer<Real> values(size), after(has_pairs_ ? size : 0);
        for (int r = 0; r < group.size; r++) {
            const int64_t s = group.sequences[r];
            if (has_pairs_) find_pairs_after(s, after, propagation.weigh_steps(r, Real(1)));
            fill_sources(s, static_cast<Real>(d_means[s]), values, after, propagation.left(r), propagation.right(r));
        }
    }

    void add_mass(const Group& group, const double* d_means, Propagation<Real>& propagation, Real*) const override {
        for (int r = 0; r < group.size && has_pairs_; r++)
            add_transition_mass(group.sequences[r], static_cast<Real>(d_means[group.sequences[r]]), propagation, r);
    }

    void count(const Group& group, const double* d_means, Propagation<Real>& propagation,
               Real* counts) const override {
        for (int r = 0; r < group.size && has_pairs_; r++)
            propagation.count_marginals(r, static_cast<Real>(d_means[group.sequences[r]]), counts);
    }

    std::size_t n_counts() const override { return has_pairs_ ? this->owner_.forward.by_source.size : 0; }

    // sum_t w p(i, j) V[i, j]
    void finish(const double*, const std::vector<Buffer<Real>>& counts, const Floats&,
                const Floats& d_transitions) const override {
        if (!has_pairs_) return;
        std::vector<double> pairs(static_cast<std::size_t>(this->chain_.n_tags) * this->chain_.n_tags);
        this->owner_.forward.collect_pairs({counts.begin(), counts.end()}, {pairs.data(), true});
        for (std::size_t i = 0; i < pairs.size(); i++) d_transitions.add(i, pairs[i] * value_of_pair(i));
    }

    // Returns V for a transition index.
    double value_of_pair(std::size_t i) const {
        const double x = values_.transitions[i];
        return !std::isfinite(x) ? 0.0 : is_entropy_ ? largest_pair_ - x : x;
    }

    // Reads a row of values from a row of scores.
    void fetch(const Scores& scores, int64_t row, Real* to) const {
        this->owner_.rows.fetch(scores, row, to);
        to_values(to, Real(largest_pair_));
    }

    // Converts a row of scores to values. Infinite scores are converted to 0.
    void to_values(Real* row, Real largest) const {
        const Vec<Real> infinite = splat(Real(-INFINITY)), most = splat(largest);
        for (int k = 0; k < width_; k += LANES<Real>) {
            const Vec<Real> x = load(row + k);
            store(row + k, x > infinite ? (is_entropy_ ? most - x : x) : splat(Real(0)));
        }
    }

    // Reads the rows v_t of a sequence, including the values of start and end. All rows are written before any row is
    // read, because vector loads stall on the last numbers of a row, which are written one by one.
    void fetch_values(int64_t s, Real* to) const {
        const int64_t begin = this->chain_.begins[s], length = this->chain_.lengths[s];
        Real* const last = to + (length - 1) * width_;
        if (is_entropy_) {
            this->owner_.rows.fetch_sequence(values_, s, to);
            for (Real* row = to; row <= last; row += width_) to_values(row, *std::max_element(row, row + width_));
            return;
        }
        for (int64_t t = 0; t < length; t++) this->owner_.rows.fetch(values_.emissions, begin + t, to + t * width_);
        for (Real* row = to; row <= last; row += width_) to_values(row, Real(0));
        add_row<Real>(start_, 1, width_, to);
        add_row<Real>(end_, 1, width_, last);
    }

    // Computes M V and its transpose.
    void weigh_pairs() {
        const int n_tags = this->chain_.n_tags;
        const std::size_t n_pairs = static_cast<std::size_t>(n_tags) * n_tags;
        for (std::size_t i = 0; is_entropy_ && i < n_pairs; i++)
            largest_pair_ = std::max(largest_pair_, values_.transitions[i]);
        for (std::size_t i = 0; i < n_pairs; i++) has_pairs_ |= value_of_pair(i) != 0;
        if (!has_pairs_) return;
        Buffer<Real> weighted(static_cast<std::size_t>(n_tags) * width_);
        for (int i = 0; i < n_tags; i++) {
            Real* row = weighted + static_cast<std::size_t>(i) * width_;
            const Real* transitions = this->owner_.transition_row(i);
            fetch(values_.transitions, this->owner_.rows.order[i], row);
            for (int k = 0; k < width_; k += LANES<Real>) store(row + k, load(row + k) * load(transitions + k));
        }
        by_source_ = Matrix<Real>::pack(weighted, n_tags, Sums());
        by_target_ = Matrix<Real>::pack(transpose<Real>(weighted, n_tags, width_, 0), n_tags, Sums());
        before_ = Buffer<Real>(this->chain_.n_tokens * width_);
    }

    // Computes E_p[v(y)] of a sequence, and stores the means of each token. `row` is scratch memory for the rows v_t.
    double mean(int64_t s, Real* row) {
        if (has_pairs_) find_pairs_before(s);
        fetch_values(s, row);
        double total = 0;
        for (int64_t t = this->chain_.begins[s]; t < this->chain_.past(s); t++, row += width_) {
            const Real *alpha = this->owner_.alpha_row(t), *beta = this->owner_.beta_row(t);
            Vec<Real> tags = splat(Real(0)), pairs = splat(Real(0));
            for (int k = 0; k < width_; k += LANES<Real>) {
                tags += load(alpha + k) * load(beta + k) * load(row + k);
                if (has_pairs_) pairs += load(before_ + t * width_ + k) * load(beta + k);
            }
            of_tags_[t] = sum_lanes<Real>(tags);
            of_pairs_[t] = sum_lanes<Real>(pairs);
            total += static_cast<double>(of_tags_[t]) + static_cast<double>(of_pairs_[t]);
        }
        return total;
    }

    // Computes H of a sequence. See above.
    double entropy(int64_t s) const {
        const int64_t last = this->chain_.past(s) - 1;
        std::vector<Wide<Real>> weights(this->chain_.n_tags);
        std::copy_n(this->owner_.alpha_row(last), weights.size(), weights.begin());
        double total = entropy_of(weights);
        for (int64_t t = this->chain_.begins[s] + 1; t <= last; t++)
            for (std::size_t j = 0; j < weights.size(); j++) {
                const double p = static_cast<double>(this->owner_.alpha_row(t)[j] * this->owner_.beta_row(t)[j]);
                if (!(p > 0)) continue;
                const Real* alpha = this->owner_.alpha_row(t - 1);
                for (std::size_t i = 0; i < weights.size(); i++)
                    weights[i] = static_cast<Wide<Real>>(alpha[i]) * this->owner_.transition_row(i)[j];
                total += p * entropy_of(weights);
            }
        return total;
    }

    // Computes -sum_i p_i log p_i. The logarithm of the largest p is computed from the sum of all other p, which may be
    // tiny.
    static double entropy_of(const std::vector<Wide<Real>>& weights) {
        const auto largest = std::max_element(weights.begin(), weights.end());
        Wide<Real> sum = 0;
        for (const Wide<Real>& weight : weights) sum += weight;
        double total = 0, others = 0;
        for (auto weight = weights.begin(); weight != weights.end(); weight++) {
            const double p = weight == largest ? 0.0 : static_cast<double>(*weight / sum);
            if (p > 0) total -= p * std::log(p);
            others += p;
        }
        return total - (1 - others) * std::log1p(-others);
    }

    // Computes the rows A of a sequence.
    void find_pairs_before(int64_t s) {
        const int64_t begin = this->chain_.begins[s], length = this->chain_.lengths[s];
        std::fill_n(before_ + begin * width_, width_, Real(0));
        const auto put = [&](int64_t t, int column, Vec<Real> total) INLINE_LAMBDA {
            const int64_t token = begin + t + 1;
            const Vec<Real> emission = load(this->owner_.emission_row(token) + column);
            store(before_ + token * width_ + column, total * emission * this->owner_.factor(token - 1));
        };
        multiply_all(by_source_, this->owner_.alpha_row(begin), length - 1, put);
    }

    // Multiplies rows by a matrix, several at a time, and passes the products to finish(row, column, totals).
    template <class Finish>
    void multiply_all(const Matrix<Real>& matrix, const Real* from, int64_t n_rows, Finish finish) const {
        Buffer<Real> products(ROWS * width_);
        for (int64_t t = 0; t < n_rows; t += ROWS) {
            const int n = static_cast<int>(std::min<int64_t>(ROWS, n_rows - t));
            const Real* rows[ROWS];
            for (int r = 0; r < n; r++) rows[r] = from + (t + r) * width_;
            const auto at_row = [&](int r, int column, Vec<Real> total) INLINE_LAMBDA {
                finish(t + r, column, total);
            };
            multiply<Sums>(matrix, rows, n, products, at_row);
        }
    }

    // Computes the sources of a sequence. `after` contains the rows B of the sequence.
    void fill_sources(int64_t s, Real weight, Real* values, const Real* after, Real* left, Real* right) const {
        fetch_values(s, values);
        for (int64_t t = this->chain_.begins[s]; t < this->chain_.past(s); t++) {
            const Real *alpha = this->owner_.alpha_row(t), *beta = this->owner_.beta_row(t);
            const Real* before = before_ + t * width_;
            const Real mean_after = has_pairs_ ? dot<Real>(alpha, after, width_) : Real(0);
            const Vec<Real> mean_on_left = splat(of_tags_[t] + mean_after);
            const Vec<Real> mean_on_right = splat(of_tags_[t] + of_pairs_[t]);
            for (int k = 0; k < width_; k += LANES<Real>) {
                const Vec<Real> v = load(values + k);
                Vec<Real> on_left = (v - mean_on_left) * load(beta + k);
                Vec<Real> on_right = (v - mean_on_right) * load(alpha + k);
                if (has_pairs_) {
                    on_left += load(after + k);
                    on_right += load(before + k);
                }
                store(left + k, load(left + k) + on_left * weight);
                store(right + k, load(right + k) + on_right * weight);
            }
            left += width_, right += width_, values += width_;
            if (has_pairs_) after += width_;
        }
    }

    // Computes the rows B of a sequence. `steps` contains the rows c_{t-1} E_t beta_t.
    void find_pairs_after(int64_t s, Real* after, const Real* steps) const {
        const int64_t begin = this->chain_.begins[s], length = this->chain_.lengths[s];
        std::fill_n(after + (length - 1) * width_, width_, Real(0));
        const auto keep = [&](int64_t t, int column, Vec<Real> total) INLINE_LAMBDA {
            const Vec<Real> zero = splat(Real(0));
            const decltype(zero < zero) reached = load(this->owner_.alpha_row(begin + t) + column) > zero;
            store(after + t * width_ + column, reached ? total : zero);
        };
        multiply_all(by_target_, steps + width_, length - 1, keep);
    }

    // Adds the mass of transitions with nonzero V to their second tags and to the transitions.
    void add_transition_mass(int64_t s, Real weight, Propagation<Real>& propagation, int r) const {
        const int64_t begin = this->chain_.begins[s], length = this->chain_.lengths[s];
        for (int64_t t = 1; t < length; t++) {
            const Real* alpha = this->owner_.alpha_row(begin + t);
            const Real* beta = this->owner_.beta_row(begin + t);
            const Real* before = before_ + (begin + t) * width_;
            const Real mean = of_pairs_[begin + t];
            Real* mass = propagation.left(r) + t * width_;
            for (int k = 0; k < width_; k += LANES<Real>)
                store(mass + k, load(mass + k) + (load(before + k) - load(alpha + k) * mean) *
                                                     load(beta + k) * weight);
            propagation.take_off_pairs(r, t, weight * mean);
        }
    }

    const bool is_entropy_;
    const Chain values_;
    const int width_;
    double largest_pair_ = -INFINITY;
    Buffer<Real> start_, end_, before_;
    Matrix<Real> by_source_, by_target_;
    bool has_pairs_ = false;
    std::vector<Real> of_tags_, of_pairs_;  // means of each token's values
};
