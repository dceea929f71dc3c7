// The backward messages of sum-product, i.e. beta in forward.hpp.

// The backward pass of a thread, with its scratch memory and its expected transitions.
template <class Real>
class ForwardMessages<Real>::Backward {
  public:
    Backward(const ForwardMessages& owner, const Matrix<Real>& transposed)
        : pairs(owner.by_source.size), owner_(owner), transposed_(transposed), width_(owner.width),
          beta_(owner.schedule.most_tokens_in_a_group(owner.chain.lengths) * width_),
          ahead_(2 * ROWS * width_), products_(ROWS * width_), row_(width_) {
        std::fill(pairs + 0, pairs + owner.by_source.size, Real(0));
    }

    // Adds the gradient of the sum of log Z of a group, weighted by sequence: tag probabilities to `d_emissions`, and
    // expected transitions to `pairs`. Sequences that underflow are marked and skipped.
    void run(const Group& group, const double* weights, const Floats& d_emissions, std::vector<char>& underflow) {
        const Group computed = without(group, underflow.data(), kept_);
        Real *beta[ROWS] = {}, *row = beta_;
        for (int r = 0; r < computed.size; r++) {
            beta[r] = row;
            row += owner_.chain.lengths[computed.sequences[r]] * width_;
        }
        backward(computed, beta, underflow.data());
        for (int r = 0; r < computed.size; r++) {
            const int64_t s = computed.sequences[r];
            if (!underflow[s]) finish(s, static_cast<Real>(weights[s]), beta[r], d_emissions);
        }
    }

    // Computes beta for the sequences of a group. Row r starts at beta[r]. Sequences that underflow are marked.
    void backward(const Group& group, Real* const* beta, char* underflow) {
        if (group.size == 0) return;
        Vec<Real> least[ROWS];
        recur(group, beta, least);
        for (int r = 0; r < group.size; r++)
            if (!(smallest_lane<Real>(least[r]) >= SMALLEST<Real>))
                underflow[group.sequences[r]] = beta_underflows(group.sequences[r], beta[r]);
    }

    Buffer<Real> pairs;  // expected transitions divided by M, in the layout of by_source

  private:
    // Converts a product of messages to beta of a token, and to E beta for the previous token (`ahead`).
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

    // The recursion from the last token to the first. Sets the smallest relevant entry of beta for each sequence, per
    // lane. Sequences are sorted by length: the first `running` sequences have reached token t.
    void recur(const Group& group, Real* const* beta, Vec<Real>* least) {
        Step step;
        step.least = least;
        int64_t last[ROWS] = {};
        const Real* after[ROWS];
        for (int r = 0; r < group.size; r++) {
            const int64_t s = group.sequences[r], length = owner_.chain.lengths[s];
            last[r] = length - 1;
            const int64_t token = owner_.chain.begins[s] + length - 1;
            step.emissions[r] = owner_.emission_row(token);
            step.alpha[r] = owner_.alpha_row(token);
            step.beta[r] = beta[r] + last[r] * width_;
            step.ahead[r] = ahead_row(last[r], r);
            step.factor[r] = splat(owner_.factor(token));
            least[r] = splat(Real(1));
            for (int k = 0; k < width_; k += LANES<Real>) step(r, k, splat(Real(1)));
        }
        int running = 0;
        for (int64_t t = last[0]; t > 0; t--) {
            while (running < group.size && last[running] >= t) running++;
            for (int r = 0; r < running; r++) {
                const int64_t token = owner_.chain.begins[group.sequences[r]] + t - 1;
                after[r] = step.ahead[r];
                step.ahead[r] = ahead_row(t - 1, r);
                step.emissions[r] -= width_;
                step.alpha[r] -= width_;
                step.beta[r] -= width_;
                step.factor[r] = splat(owner_.factor(token));
            }
            multiply<Sums>(transposed_, after, running, products_, step);
        }
    }

    // E beta of a token of sequence r. The rows of adjacent tokens don't overlap.
    Real* ahead_row(int64_t t, int r) { return ahead_ + ((t % 2) * ROWS + r) * width_; }

    // Checks whether a legal transition starts from an entry below SMALLEST.
    bool beta_underflows(int64_t s, const Real* beta) const {
        const int n_tags = owner_.chain.n_tags;
        const Real* alpha = owner_.alpha_row(owner_.chain.begins[s]);
        for (int64_t t = 0; t + 1 < owner_.chain.lengths[s]; t++, alpha += width_, beta += width_)
            for (int i = 0; i < n_tags; i++) {
                if (alpha[i] == 0 || beta[i] >= SMALLEST<Real>) continue;
                const Real* transitions = owner_.transition_row(i);
                for (int j = 0; j < n_tags; j++)
                    if (transitions[j] > 0 && beta[width_ + j] > 0) return true;
            }
        return false;
    }

    // Writes the tag probabilities alpha_t beta_t of a sequence to the gradient, and adds its transitions to `pairs`.
    // In the process, beta_t is replaced with the factor that converts alpha_{t-1} M to transition probabilities.
    void finish(int64_t s, Real weight, Real* beta, const Floats& d_emissions) {
        const int64_t begin = owner_.chain.begins[s], length = owner_.chain.lengths[s];
        Real pair_scale = 0;
        for (int64_t t = 0; t < length; t++) {
            const Real* alpha = owner_.alpha_row(begin + t);
            const Real* emissions = owner_.emission_row(begin + t);
            Real* ahead = beta + t * width_;
            const Real scale = weight / dot<Real>(alpha, ahead, width_);
            for (int k = 0; k < width_; k += LANES<Real>) {
                const Vec<Real> b = load(ahead + k);
                store(row_ + k, load(alpha + k) * b * scale);
                store(ahead + k, b * load(emissions + k) * pair_scale);
            }
            owner_.rows.put(row_, d_emissions, begin + t);
            pair_scale = scale * owner_.factor(begin + t);
        }
        const Real* alpha = owner_.alpha_row(begin);
        add_outer(owner_.by_source, alpha, beta + width_, width_, length - 1, static_cast<Real*>(pairs));
    }

    const ForwardMessages& owner_;
    const Matrix<Real>& transposed_;
    const int width_;
    int64_t kept_[ROWS];
    Buffer<Real> beta_, ahead_, products_, row_;
};
