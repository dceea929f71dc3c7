// Propagation of mass on tags, using the conditional probabilities of adjacent tags.
//
// With alpha and beta as in forward.hpp, p(y_t = j) = alpha_t[j] beta_t[j]. A gradient is mass on tags that is
// propagated in both directions using the conditional probabilities of adjacent tags. Leftward mass is divided by
// alpha, and rightward mass by beta, so that the recursions use the same matrix product as the messages:
//
//     r_{t-1}[i] = s_{t-1}[i] + sum_j M[i, j] c_{t-1} E_t[j] r_t[j],      mass = alpha r
//     q_t[j]     = s'_t[j] + E_t[j] sum_i c_{t-1} q_{t-1}[i] M[i, j],     mass = beta q
//
// The sources s and s' are the mass added to tags at t, divided by alpha_t and by beta_t. The mass on transitions is
//
//     sum_t (alpha_{t-1}[i] c_{t-1} E_t[j] r_t[j] + c_{t-1} q_{t-1}[i] E_t[j] beta_t[j]) M[i, j]
//
// Mass that is propagated in both directions adds up to 0 at every token. Rounding errors would accumulate along the
// sequence, in proportion to the marginals, so they are subtracted every BALANCED tokens.

constexpr int64_t BALANCED = 64;  // tokens

template <class Real>
class ForwardBackward;

// Propagation of mass in the sequences of a group, with the scratch memory and the mass on transitions of a thread.
template <class Real>
class Propagation {
  public:
    explicit Propagation(const ForwardBackward<Real>& owner)
        : pairs(owner.forward.by_source.size), owner_(owner), width_(owner.width),
          room_(owner.forward.schedule.most_tokens_in_a_group(owner.chain.lengths) * width_),
          memory_(3 * room_), products_(ROWS * width_), left_(memory_), right_(left_ + room_), weights_(right_ + room_) {
        std::fill(pairs + 0, pairs + owner.forward.by_source.size, Real(0));
    }

    // Starts a new group with all sources set to 0. RETURNS the sequences of the group that don't underflow.
    const Group& take(const Group& group, const std::vector<char>& underflow) {
        group_ = without(group, underflow.data(), kept_);
        int64_t token = 0;
        for (int r = 0; r < group_.size; r++) {
            offset_[r] = token * width_;
            token += owner_.chain.lengths[group_.sequences[r]];
        }
        std::fill_n(left_, token * width_, Real(0));
        std::fill_n(right_, token * width_, Real(0));
        return group_;
    }

    // Rows of sequence r. They first contain the sources, s and s', and then the mass on tags, and c_t q_t.
    Real* left(int r) { return left_ + offset_[r]; }
    Real* right(int r) { return right_ + offset_[r]; }

    // Scratch rows that can be used until propagation.
    Real* scratch(int r) { return weights_ + offset_[r]; }

    // Propagates mass leftwards. Rows of `left` are converted to mass. Sequences are sorted by length: the first
    // `running` sequences have a token t.
    void to_left() {
        if (group_.size == 0) return;
        LeftStep step;
        const Real* after[ROWS];
        int64_t last[ROWS] = {};
        for (int r = 0; r < group_.size; r++) {
            last[r] = owner_.chain.lengths[group_.sequences[r]] - 1;
            const int64_t token = owner_.chain.begins[group_.sequences[r]] + last[r];
            step.emissions[r] = owner_.emission_row(token);
            step.alpha[r] = owner_.alpha_row(token);
            step.left[r] = left(r) + last[r] * width_;
            step.weights[r] = weights_ + offset_[r] + last[r] * width_;
            step.factor[r] = factor_into(r, last[r]);
            for (int k = 0; k < width_; k += LANES<Real>) step(r, k, splat(Real(0)));
        }
        int running = 0;
        for (int64_t t = last[0]; t > 0; t--) {
            while (running < group_.size && last[running] >= t) running++;
            for (int r = 0; r < running; r++) {
                after[r] = step.weights[r];
                step.emissions[r] -= width_;
                step.alpha[r] -= width_;
                step.left[r] -= width_;
                step.weights[r] -= width_;
                step.factor[r] = factor_into(r, t - 1);
            }
            multiply<Sums>(owner_.transposed(), after, running, products_, step);
            for (int r = 0; r < running && t % BALANCED == 0; r++) balance_left(r, t - 1);
        }
    }

    // Propagates mass rightwards, and adds the mass from the previous tokens to `left`.
    void to_right(bool balanced = true) {
        RightStep step;
        int64_t tokens[ROWS] = {};
        for (int r = 0; r < group_.size; r++) {
            tokens[r] = owner_.chain.begins[group_.sequences[r]];
            step.emissions[r] = owner_.emission_row(tokens[r]);
            step.beta[r] = owner_.beta_row(tokens[r]);
            step.left[r] = left(r);
            step.right[r] = right(r);
            step.factor[r] = splat(owner_.factor(tokens[r]));
            for (int k = 0; k < width_; k += LANES<Real>) step(r, k, splat(Real(0)));
        }
        int running = group_.size;
        for (int64_t t = 1;; t++) {
            while (running > 0 && owner_.chain.lengths[group_.sequences[running - 1]] <= t) running--;
            if (running == 0) break;
            const Real* before[ROWS] = {};
            for (int r = 0; r < running; r++) {
                before[r] = step.right[r];
                step.emissions[r] += width_;
                step.beta[r] += width_;
                step.left[r] += width_;
                step.right[r] += width_;
                step.factor[r] = splat(owner_.factor(tokens[r] + t));
            }
            multiply<Sums>(owner_.forward.by_source, before, running, products_, step);
            for (int r = 0; r < running && balanced && t % BALANCED == 0; r++) balance_right(r, t);
        }
    }

    // Subtracts `share` times the marginals of the transitions from t - 1 to t from the leftward mass.
    void take_off_pairs(int r, int64_t t, Real share) {
        const int64_t token = owner_.chain.begins[group_.sequences[r]] + t;
        const Real *emissions = owner_.emission_row(token), *beta = owner_.beta_row(token);
        Real* weights = weights_ + offset_[r] + t * width_;
        const Vec<Real> scale = factor_into(r, t) * share;
        for (int k = 0; k < width_; k += LANES<Real>)
            store(weights + k, load(weights + k) - scale * load(emissions + k) * load(beta + k));
    }

    // Sums the leftward and rightward mass on transitions.
    void count_left() {
        for (int r = 0; r < group_.size; r++) count(alpha(r), weights_ + offset_[r], r, pairs);
    }

    void count_right() {
        for (int r = 0; r < group_.size; r++) {
            fill_weights(r, [](int64_t) { return Real(1); });
            count(right(r), weights_ + offset_[r], r, pairs);
        }
    }

    // Adds the expected transitions, multiplied by `weight`.
    void count_marginals(int r, Real weight, Real* to) {
        count(alpha(r), weigh_steps(r, weight), r, to);
    }

    // Sets the scratch rows to c_{t-1} E_t beta_t, multiplied by `weight`, for all tokens except the first one.
    const Real* weigh_steps(int r, Real weight) {
        const int64_t begin = owner_.chain.begins[group_.sequences[r]];
        fill_weights(r, [&](int64_t t) { return weight * owner_.factor(begin + t - 1); });
        return scratch(r);
    }

    // Writes the mass on tags to the rows of the tokens.
    void put(const Floats& d_emissions) {
        for (int r = 0; r < group_.size; r++) {
            const int64_t s = group_.sequences[r];
            for (int64_t t = 0; t < owner_.chain.lengths[s]; t++)
                owner_.rows.put(left(r) + t * width_, d_emissions, owner_.chain.begins[s] + t);
        }
    }

    Buffer<Real> pairs;  // mass on transitions, divided by M, in the layout of by_source

  private:
    // Converts a product to the leftward mass of a token, and to the weights c_{t-1} E_t r_t for the previous token.
    struct LeftStep {
        const Real *emissions[ROWS], *alpha[ROWS];
        Real *left[ROWS], *weights[ROWS];
        Vec<Real> factor[ROWS];

        INLINE void operator()(int r, int column, Vec<Real> total) {
            const Vec<Real> a = load(alpha[r] + column), zero = splat(Real(0));
            const Vec<Real> x = a > zero ? load(left[r] + column) + total : zero;
            store(left[r] + column, a * x);
            store(weights[r] + column, x * load(emissions[r] + column) * factor[r]);
        }
    };

    // Converts a product to the rightward mass of a token, which is added to `left`, and to c_t q_t for the next token.
    struct RightStep {
        const Real *emissions[ROWS], *beta[ROWS];
        Real *left[ROWS], *right[ROWS];
        Vec<Real> factor[ROWS];

        INLINE void operator()(int r, int column, Vec<Real> total) {
            const Vec<Real> x = total * load(emissions[r] + column);
            store(left[r] + column, load(left[r] + column) + load(beta[r] + column) * x);
            store(right[r] + column, (load(right[r] + column) + x) * factor[r]);
        }
    };

    // Subtracts the surplus, i.e. the sum of the leftward mass at a token, in proportion to the marginals.
    void balance_left(int r, int64_t t) {
        const int64_t token = owner_.chain.begins[group_.sequences[r]] + t;
        Real* mass = left(r) + t * width_;
        Vec<Real> total = splat(Real(0));
        for (int k = 0; k < width_; k += LANES<Real>) total += load(mass + k);
        const Real surplus = sum_lanes<Real>(total);
        owner_.add_marginals(token, -surplus, mass);
        take_off_pairs(r, t, surplus);
    }

    // The same for the rightward mass.
    void balance_right(int r, int64_t t) {
        const int64_t token = owner_.chain.begins[group_.sequences[r]] + t;
        const Real *alpha = owner_.alpha_row(token), *beta = owner_.beta_row(token);
        Real* onwards = right(r) + t * width_;
        const Real surplus = dot<Real>(onwards, beta, width_);
        add_row<Real>(alpha, -surplus, width_, onwards);
        owner_.add_marginals(token, -surplus / owner_.factor(token), left(r) + t * width_);
    }

    // Returns c_{t-1}, or 0 for the first token, which has no incoming transition.
    Vec<Real> factor_into(int r, int64_t t) const {
        const int64_t before = owner_.chain.begins[group_.sequences[r]] + t - 1;
        return splat(t > 0 ? owner_.factor(before) : Real(0));
    }

    // Returns the alpha rows of sequence r.
    const Real* alpha(int r) const {
        return owner_.alpha_row(owner_.chain.begins[group_.sequences[r]]);
    }

    // Computes E_t beta_t times scale(t) for all tokens except the first one.
    template <class Scale>
    void fill_weights(int r, Scale scale) {
        const int64_t s = group_.sequences[r], begin = owner_.chain.begins[s];
        for (int64_t t = 1; t < owner_.chain.lengths[s]; t++) {
            const Real *emissions = owner_.emission_row(begin + t), *beta = owner_.beta_row(begin + t);
            Real* weights = weights_ + offset_[r] + t * width_;
            const Vec<Real> factor = splat(static_cast<Real>(scale(t)));
            for (int k = 0; k < width_; k += LANES<Real>)
                store(weights + k, load(emissions + k) * load(beta + k) * factor);
        }
    }

    // Adds before_{t-1}[i] ahead_t[j] of sequence r to the count of each transition, for all tokens except the first
    // one.
    void count(const Real* before, const Real* ahead, int r, Real* to) {
        const int64_t length = owner_.chain.lengths[group_.sequences[r]];
        add_outer(owner_.forward.by_source, before, ahead + width_, width_, length - 1, to);
    }

    const ForwardBackward<Real>& owner_;
    const int width_;
    const int64_t room_;
    Buffer<Real> memory_, products_;
    Real *const left_, *const right_, *const weights_;
    Group group_ = {};
    int64_t kept_[ROWS], offset_[ROWS];
};
