// The distribution over paths, represented by forward and backward messages that are used by several queries.
//
// All relevant entries of alpha and beta (see forward.hpp) are at least SMALLEST. A sequence without such messages is
// marked as underflow, and is computed by the same class with the wider type. With Real = Extended, only sequences
// without a legal path are marked.

template <class Real>
class QueryBase;

template <class Real>
class ForwardBackward final : public Messages {
  public:
    static constexpr bool IS_EXTENDED = std::is_same_v<Real, Extended>;
    using Wider = ForwardBackward<Wide<Real>>;
    using Backward = typename ForwardMessages<Real>::Backward;

    ForwardBackward(const Potentials& scores, int n_threads, const std::vector<char>& left_out = {})
        : forward(scores, n_threads, left_out), chain(forward.chain), rows(forward.rows), width(forward.width),
          scores(scores) {}

    // Runs a query, and the same query with the wider type if any sequences underflow.
    std::unique_ptr<Query> query(const std::string& name, const Arguments& arguments, double* values) const override {
        std::unique_ptr<QueryBase<Real>> query = make_query(*this, name, arguments, values);
        if constexpr (!IS_EXTENDED)
            if (any(query->underflow)) {
                query->wide_messages = wider(query->underflow);
                query->wide_query = query->wide_messages->query(name, arguments, values);
            }
        return query;
    }

    // Computes beta on first use. RETURNS the sequences that underflow.
    const std::vector<char>& run_backward() const {
        std::call_once(has_beta_, [&] {
            transposed_ = forward.transposed();
            underflow_ = forward.underflow;
            std::vector<Backward> threads;
            for (int i = 0; i < forward.n_threads; i++) threads.emplace_back(forward, transposed_);
            forward.for_groups([&](const Group& group, int thread) { backward(group, threads[thread]); });
        });
        return underflow_;
    }

    // Adds the gradient of the sum of log Z, weighted by sequence. Sets the emission gradient of all sequences that are
    // not marked by `underflow`, and adds the transition gradient.
    void add_log_partition(const double* weights, const std::vector<char>& underflow, const Floats& d_emissions,
                       const Floats& d_transitions) const {
        const Matrix<Real> transposed = forward.transposed();
        std::vector<Backward> threads;
        for (int i = 0; i < forward.n_threads; i++) threads.emplace_back(forward, transposed);
        std::vector<char> has_underflow = underflow;
        forward.for_groups([&](const Group& group, int thread) {
            threads[thread].run(group, weights, d_emissions, has_underflow);
        });
        forward.collect_pairs(forward.pairs_of(threads), d_transitions);
        if constexpr (!IS_EXTENDED)
            if (has_underflow != underflow) {
                for (std::size_t s = 0; s < has_underflow.size(); s++) has_underflow[s] &= !underflow[s];
                forward.clear_rows(has_underflow, d_emissions);
                const Wider wider(scores, forward.n_threads, none_of(has_underflow));
                wider.add_log_partition(weights, wider.forward.underflow, d_emissions, d_transitions);
            }
    }

    // Adds the marginals of a token, multiplied by `weight`.
    void add_marginals(int64_t token, Real weight, Real* to) const {
        const Real *alpha = alpha_row(token), *beta = beta_row(token);
        for (int k = 0; k < width; k += LANES<Real>)
            store(to + k, load(to + k) + load(alpha + k) * load(beta + k) * weight);
    }

    const Real* alpha_row(int64_t token) const { return forward.alpha_row(token); }
    const Real* beta_row(int64_t token) const { return forward.beta_row(token); }
    const Real* emission_row(int64_t token) const { return forward.emission_row(token); }
    const Real* transition_row(int place) const { return forward.transition_row(place); }
    Real factor(int64_t token) const { return forward.factor(token); }
    const Matrix<Real>& transposed() const { return transposed_; }

    const ForwardMessages<Real> forward;
    const Chain& chain;
    const Rows<Real>& rows;
    const int width;
    const Potentials scores;

  private:
    // Returns the messages with the wider type for the sequences that underflow. They are cached, because the next
    // query usually has the same sequences.
    std::shared_ptr<const Wider> wider(const std::vector<char>& underflow) const {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!wider_ || wider_of_ != underflow)
            wider_ = std::make_shared<const Wider>(scores, forward.n_threads, none_of(underflow));
        wider_of_ = underflow;
        return wider_;
    }

    // Computes beta for a group, so that sum_k alpha_t[k] beta_t[k] is 1 at each token, up to the last digit.
    void backward(const Group& group, Backward& thread) const {
        int64_t kept[ROWS];
        const Group computed = without(group, underflow_.data(), kept);
        Real* beta[ROWS] = {};
        for (int r = 0; r < computed.size; r++)
            beta[r] = forward.beta_row(chain.begins[computed.sequences[r]]);
        thread.backward(computed, beta, underflow_.data());
        for (int r = 0; r < computed.size; r++) {
            const int64_t s = computed.sequences[r];
            for (int64_t t = chain.begins[s]; t < chain.past(s) && !underflow_[s]; t++) normalise(t);
        }
    }

    // Divides beta of a token by sum_k alpha_t[k] beta_t[k].
    void normalise(int64_t token) const {
        const Real* alpha = alpha_row(token);
        Real* beta = forward.beta_row(token);
        const Real scale = 1 / dot<Real>(alpha, beta, width);
        for (int k = 0; k < width; k += LANES<Real>) store(beta + k, load(beta + k) * scale);
    }

    // Set on first use of beta, although queries are const
    mutable std::once_flag has_beta_;
    mutable Matrix<Real> transposed_;
    mutable std::vector<char> underflow_;
    mutable std::mutex mutex_;
    mutable std::shared_ptr<const Wider> wider_;
    mutable std::vector<char> wider_of_;
};
