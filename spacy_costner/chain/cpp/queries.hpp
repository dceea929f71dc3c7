// Short queries of the distribution over paths. Longer queries are in separate files. `make_query` at the end of the
// file creates a query by name. See forward.hpp for the messages alpha and beta, the matrix M and E, and
// propagation.hpp for mass and the sources s and s'.

// log Z, or log p(y) = s(y) - log Z for the path y with the given tags. The gradient of log Z is the marginals, so the
// mass doesn't have to be propagated. If no other query is differentiated, beta doesn't have to be stored, either.
template <class Real>
class LogPartition final : public QueryBase<Real> {
  public:
    // tags: Shape: (N,). If null, log Z is computed.
    LogPartition(const ForwardBackward<Real>& owner, const int64_t* tags, double* values)
        : QueryBase<Real>(owner, owner.forward.underflow), tags_(tags), possible_(owner.chain.n_sequences) {
        owner.forward.for_groups([&](const Group& group, int) {
            for (int r = 0; r < group.size; r++) values[group.sequences[r]] = value(group.sequences[r]);
        });
    }

  private:
    double value(int64_t s) {
        const double log_z = this->owner_.forward.log_z[s];
        if (!tags_) return log_z;
        const double score = score_path(this->chain_, s, tags_);
        possible_[s] = std::isfinite(score) && !this->underflow[s];
        return std::isfinite(score) ? score - log_z : score;
    }

    typename QueryBase<Real>::Directions directions() const override { return {false, false, true}; }

    bool add_weights(const double* d_values, std::vector<double>& weights) const override {
        for (int64_t s = 0; s < this->chain_.n_sequences; s++) weights[s] += weight(s, d_values);
        return true;
    }

    void add_mass(const Group& group, const double* d_values, Propagation<Real>& propagation, Real*) const override {
        for (int r = 0; r < group.size; r++) {
            const int64_t s = group.sequences[r];
            Real* row = propagation.left(r);
            for (int64_t t = this->chain_.begins[s]; t < this->chain_.past(s); t++, row += this->owner_.width)
                this->owner_.add_marginals(t, static_cast<Real>(weight(s, d_values)), row);
        }
    }

    void count(const Group& group, const double* d_values, Propagation<Real>& propagation, Real*) const override {
        for (int r = 0; r < group.size; r++)
            propagation.count_marginals(r, static_cast<Real>(weight(group.sequences[r], d_values)), propagation.pairs);
    }

    void finish(const double* d_values, const std::vector<Buffer<Real>>&, const Floats& d_emissions,
                const Floats& d_transitions) const override {
        for (int64_t s = 0; s < this->chain_.n_sequences && tags_; s++)
            if (possible_[s]) add_path(this->chain_, s, tags_, d_values[s], d_emissions, d_transitions);
    }

    // Returns the factor of the marginals of a sequence in the gradient. The gradient of log p(y) is the counts of the
    // path minus the marginals.
    double weight(int64_t s, const double* d_values) const {
        if (!tags_) return d_values[s];
        return possible_[s] ? -d_values[s] : 0;
    }

    const int64_t* const tags_;
    std::vector<char> possible_;
};

// The marginals p(y_t = k), (N, K), in the type of the scores. They have no gradient, unlike log_marginals.
template <class Real>
class Marginals final : public QueryBase<Real> {
  public:
    Marginals(const ForwardBackward<Real>& owner, double* values) : QueryBase<Real>(owner) {
        const Floats p = {values, owner.chain.emissions.wide};
        this->for_sequences([&](int64_t s) {
            Buffer<Real> row(owner.width);
            for (int64_t t = owner.chain.begins[s]; t < owner.chain.past(s); t++) {
                std::fill_n(row + 0, owner.width, Real(0));
                owner.add_marginals(t, Real(1), row);
                owner.rows.put(row, p, t);
            }
        });
    }
};

// Paths sampled from p(y). The last tag is sampled from alpha_T, then each tag given the next one,
//
//     y_{t-1} ~ alpha_{t-1}[i] M[i, y_t]
//
// Each tag is sampled using a uniform random number in [0, 1).
template <class Real>
class SampledPaths final : public QueryBase<Real> {
  public:
    SampledPaths(const ForwardBackward<Real>& owner, const Samples& samples)
        : QueryBase<Real>(owner, owner.forward.underflow) {
        // Sequences that don't underflow in a narrower type were already sampled with it. They have no messages here,
        // and are skipped by `for_sequences`.
        this->for_sequences([&](int64_t s) {
            Weights weights(owner.chain.n_tags);
            for (int64_t i = 0; i < samples.n; i++) {
                const int64_t row = i * owner.chain.n_tokens;
                sample(s, samples.uniform + row, samples.tags + row, weights);
            }
        });
    }

  private:
    using Weights = std::vector<Wide<Real>>;

    void sample(int64_t s, const double* uniform, int64_t* tags, Weights& weights) const {
        int next = 0;
        for (int64_t t = this->chain_.past(s) - 1; t >= this->chain_.begins[s]; t--) {
            const bool is_last = t + 1 == this->chain_.past(s);
            for (std::size_t i = 0; i < weights.size(); i++) {
                weights[i] = this->owner_.alpha_row(t)[i];
                if (!is_last) weights[i] *= this->owner_.transition_row(i)[next];
            }
            next = draw(weights, uniform[t]);
            tags[t] = this->owner_.rows.order[next];
        }
    }

    // Samples a tag: the first tag at which the cumulative weight exceeds the given share of the total weight. A tag
    // with weight 0 is never sampled.
    static int draw(const Weights& weights, double share) {
        Wide<Real> rest = 0;
        for (const Wide<Real>& weight : weights) rest += weight;
        rest *= share;
        int drawn = 0;
        for (std::size_t i = 0; i < weights.size(); i++) {
            if (!(weights[i] > Wide<Real>(0))) continue;
            drawn = static_cast<int>(i);
            if (rest < weights[i]) break;
            rest = rest - weights[i];
        }
        return drawn;
    }
};

// log p(y_t in S_t), where S_t is a set of tags. With weight w, its gradient is the mass
// w (p(y_t = k | y_t in S_t) - p(y_t = k)). The sources are
//
//     s_t[k] = w (1[k in S_t] / p - 1) beta_t[k],  p = sum_{k in S_t} alpha_t[k] beta_t[k]
//
// and s'_t, which is the same with alpha instead of beta.
template <class Real>
class LogMarginals final : public QueryBase<Real> {
  public:
    LogMarginals(const ForwardBackward<Real>& owner, const Allowed& allowed, double* log_p)
        : QueryBase<Real>(owner), sets_(allowed, owner.chain.n_tokens, owner.rows.order),
          p_(owner.chain.n_tokens) {
        this->for_sequences([&](int64_t s) {
            using std::log;
            for (int64_t t = this->chain_.begins[s]; t < owner.chain.past(s); t++) {
                p_[t] = probability(t);
                log_p[t] = log(p_[t]);
            }
        });
    }

  private:
    Wide<Real> probability(int64_t token) const {
        const Real *alpha = this->owner_.alpha_row(token), *beta = this->owner_.beta_row(token);
        Wide<Real> p = 0;
        for (int k : sets_[token]) p += static_cast<Wide<Real>>(alpha[k]) * beta[k];
        return std::min(p, Wide<Real>(1));
    }

    void add_sources(const Group& group, const double* d_log_p, Propagation<Real>& propagation) const override {
        std::vector<Real> before(this->chain_.n_tags);
        for (int r = 0; r < group.size; r++) {
            const int64_t s = group.sequences[r];
            Real *left = propagation.left(r), *right = propagation.right(r);
            for (int64_t t = this->chain_.begins[s]; t < this->chain_.past(s); t++) {
                const Wide<Real> weight = p_[t] > 0 ? d_log_p[t] : 0.0;
                const Wide<Real> on_set = p_[t] > 0 ? weight / p_[t] - weight : Wide<Real>(0);
                add_on(sets_[t], this->owner_.beta_row(t), on_set, -weight, left, before.data());
                add_on(sets_[t], this->owner_.alpha_row(t), on_set, -weight, right, before.data());
                left += this->owner_.width, right += this->owner_.width;
            }
        }
    }

    // Adds a message to a row, multiplied by `on_set` for the tags of a set, and by `elsewhere` for all other tags.
    void add_on(const Places& set, const Real* message, Wide<Real> on_set, Wide<Real> elsewhere, Real* to,
                Real* before) const {
        for (const int& k : set) before[&k - set.first] = to[k];
        add_row<Real>(message, static_cast<Real>(elsewhere), this->owner_.width, to);
        for (const int& k : set) to[k] = before[&k - set.first] + static_cast<Real>(on_set * message[k]);
    }

    const TagSets sets_;
    std::vector<Wide<Real>> p_;
};

// Creates a query by name.
template <class Real>
std::unique_ptr<QueryBase<Real>> make_query(const ForwardBackward<Real>& owner, const std::string& name,
                                                   const Arguments& arguments, double* values) {
    if (name == "log_partition") return std::make_unique<LogPartition<Real>>(owner, nullptr, values);
    if (name == "path_log_prob") return std::make_unique<LogPartition<Real>>(owner, arguments.allowed.tags, values);
    if (name == "marginals") return std::make_unique<Marginals<Real>>(owner, values);
    if (name == "log_marginals") return std::make_unique<LogMarginals<Real>>(owner, arguments.allowed, values);
    if (name == "expectation") return std::make_unique<Expectation<Real>>(owner, arguments.values, values);
    if (name == "entropy") return std::make_unique<Expectation<Real>>(owner, nullptr, values);
    if (name == "sample_paths") return std::make_unique<SampledPaths<Real>>(owner, arguments.samples);
    if (name == "log_partition_excluding") return std::make_unique<Excluding<Real>>(owner, arguments.allowed, values);
    if (name == "segment_log_probs") return std::make_unique<SegmentLogProbs<Real>>(owner, arguments.segments, values);
    if (name == "entity_probs")
        return std::make_unique<EntityProbs<Real>>(owner, arguments.entity_tags, arguments.entities, values);
    if (name == "likely_entities")
        return std::make_unique<LikelyEntities<Real>>(owner, arguments.entity_tags, arguments.likely);
    throw std::invalid_argument("query: expected a name of make_query, got " + name);
}
