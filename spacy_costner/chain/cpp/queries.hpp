// The queries of a posterior, each with its vector-Jacobian product.
// No include guard: one_isa.hpp includes it once for each instruction set.

// The gradient is mass on tags: added directly, or as sources to be propagated in both directions.
// Several queries share one propagation: their sources are added up first.
template <class Score, class Real>
class PosteriorOf<Score, Real>::QueryBase : public Query {
  public:
    void backprop(const double* d_values, const Gradient& out) const override {
        owner_.backprop({this}, {d_values}, out);
    }

  protected:
    friend class PosteriorOf<Score, Real>;

    std::vector<char> underflow;                  // sequences that `rest` computes, if any
    std::shared_ptr<const Wider> rest_owner;  // of `rest`, which is destroyed first
    std::unique_ptr<Query> rest;

    explicit QueryBase(const PosteriorOf& owner) : owner_(owner), chain_(owner.chain_) {
        underflow = owner.sums_.underflow_;
    }

    // The directions of propagation, and whether the mass adds up to 0 at every token.
    struct Directions {
        bool left, right, balanced;
    };
    virtual Directions directions() const { return {true, true, true}; }
    // Adds the sources s and s' of a group of sequences.
    virtual void add_sources(const Group&, const double*, Propagation&) const {}
    // Adds mass directly, and weights of the transitions that the leftward mass passes. The
    // numbers are n_counts() that a thread keeps for `finish`.
    virtual void add_mass(const Group&, const double*, Propagation&, Real*) const {}
    // Counts transitions that propagation does not.
    virtual void count(const Group&, const double*, Propagation&, Real*) const {}
    virtual std::size_t n_counts() const { return 0; }
    // Adds what is left to the gradient of the transitions.
    virtual void finish(const double*, const std::vector<Buffer<Real>>&, Score*) const {}

    // Calls work(s) for each sequence that doesn't underflow.
    template <class Work>
    void for_sequences(Work work) const {
        owner_.for_groups([&](const Group& group, int) {
            for (int r = 0; r < group.size; r++)
                if (!underflow[group.sequences[r]]) work(group.sequences[r]);
        });
    }

    const PosteriorOf& owner_;
    const Chain<Score>& chain_;
};

// The sum of the gradients of several queries of this posterior.
template <class Score, class Real>
void PosteriorOf<Score, Real>::backprop(const std::vector<const Query*>& queries,
                                        const std::vector<const double*>& d_values, const Gradient& out) const {
    Score* d_emissions = static_cast<Score*>(out.emissions);
    Score* d_transitions = static_cast<Score*>(out.transitions);
    std::fill_n(d_transitions, static_cast<std::size_t>(chain_.n_tags) * chain_.n_tags, Score(0));
    if (queries.empty())
        std::fill_n(d_emissions, chain_.n_tokens * chain_.n_tags, Score(0));
    else
        add_gradient(queries, d_values, d_emissions, d_transitions);
    collect_ends(chain_, d_emissions, static_cast<Score*>(out.start), static_cast<Score*>(out.end));
}

// Sets the emissions' part of the gradient, of the sequences that aren't left out; adds the
// transitions' part.
template <class Score, class Real>
void PosteriorOf<Score, Real>::add_gradient(const Queries& queries, const Derivatives& d_values, Score* d_emissions,
                                            Score* d_transitions) const {
    const auto is_of_first = [&](const Query* each) { return to_base(each)->underflow == to_base(queries[0])->underflow; };
    if (std::all_of(queries.begin(), queries.end(), is_of_first))
        return add_gradient_of_alike(queries, d_values, d_emissions, d_transitions);
    add_gradient_of_alike({queries[0]}, {d_values[0]}, d_emissions, d_transitions);
    std::vector<Score> of_one(chain_.n_tokens * chain_.n_tags);
    for (std::size_t i = 1; i < queries.size(); i++) {
        add_gradient_of_alike({queries[i]}, {d_values[i]}, of_one.data(), d_transitions);
        for (std::size_t at = 0; at < of_one.size(); at++) d_emissions[at] += of_one[at];
    }
}

// The same, for queries with the same sequences that underflow.
template <class Score, class Real>
void PosteriorOf<Score, Real>::add_gradient_of_alike(const Queries& queries, const Derivatives& d_values,
                                                     Score* d_emissions, Score* d_transitions) const {
    std::vector<const QueryBase*> bases;
    std::vector<const Query*> rests;
    std::vector<std::vector<Buffer<Real>>> counts(queries.size());  // of each query and thread
    typename QueryBase::Directions directions = {false, false, true};
    for (std::size_t i = 0; i < queries.size(); i++) {
        bases.push_back(to_base(queries[i]));
        rests.push_back(bases[i]->rest.get());
        const typename QueryBase::Directions its = bases[i]->directions();
        directions = {directions.left || its.left, directions.right || its.right, directions.balanced && its.balanced};
        for (int thread = 0; thread < sums_.n_threads_; thread++) {
            counts[i].emplace_back(bases[i]->n_counts());
            std::fill_n(counts[i][thread] + 0, bases[i]->n_counts(), Real(0));
        }
    }
    const std::vector<char>& underflow = bases[0]->underflow;
    if constexpr (!IS_EXTENDED) sums_.clear_rows(underflow, d_emissions);
    std::vector<Propagation> propagations;
    for (int thread = 0; thread < sums_.n_threads_; thread++) propagations.emplace_back(*this);
    for_groups([&](const Group& group, int thread) {
        Propagation& propagation = propagations[thread];
        const Group& rest = propagation.take(group, underflow);
        const auto each = [&](auto step) {
            for (std::size_t i = 0; i < queries.size(); i++)
                step(*bases[i], d_values[i], static_cast<Real*>(counts[i][thread]));
        };
        each([&](const QueryBase& q, const double* d, Real*) { q.add_sources(rest, d, propagation); });
        if (directions.left) propagation.to_left();
        each([&](const QueryBase& q, const double* d, Real* n) { q.add_mass(rest, d, propagation, n); });
        if (directions.left) propagation.count_left();
        each([&](const QueryBase& q, const double* d, Real* n) { q.count(rest, d, propagation, n); });
        if (directions.right) propagation.to_right(directions.balanced);
        if (directions.right) propagation.count_right();
        propagation.put(d_emissions);
    });
    sums_.collect_pairs(sums_.pairs_of(propagations), d_transitions);
    for (std::size_t i = 0; i < queries.size(); i++) bases[i]->finish(d_values[i], counts[i], d_transitions);
    if constexpr (!IS_EXTENDED)
        if (rests[0]) bases[0]->rest_owner->add_gradient(rests, d_values, d_emissions, d_transitions);
}

// log Z. Its gradient is the marginals, mass that needs no propagation.
template <class Score, class Real>
class PosteriorOf<Score, Real>::LogPartition final : public QueryBase {
  public:
    LogPartition(const PosteriorOf& owner, double* log_z) : QueryBase(owner) {
        owner.for_groups([&](const Group& group, int) {
            for (int r = 0; r < group.size; r++) log_z[group.sequences[r]] = owner.log_z_[group.sequences[r]];
        });
    }

  private:
    typename QueryBase::Directions directions() const override { return {false, false, true}; }

    void add_mass(const Group& group, const double* d_log_z, Propagation& propagation, Real*) const override {
        for (int r = 0; r < group.size; r++) {
            const int64_t s = group.sequences[r];
            Real* row = propagation.left(r);
            for (int64_t t = this->chain_.begins[s]; t < this->owner_.past(s); t++, row += this->owner_.width_)
                this->owner_.add_marginals(t, static_cast<Real>(d_log_z[s]), row);
        }
    }

    void count(const Group& group, const double* d_log_z, Propagation& propagation, Real*) const override {
        for (int r = 0; r < group.size; r++)
            propagation.count_marginals(r, static_cast<Real>(d_log_z[group.sequences[r]]), propagation.pairs);
    }
};

// log p(y_t in S_t). With weight w its gradient is the mass
// w (p(y_t = k | y_t in S_t) - p(y_t = k)), so that
//
//     s_t[k] = w (1[k in S_t] / p - 1) beta_t[k],  p = sum_{k in S_t} alpha_t[k] beta_t[k]
//
// and s' the same with alpha.
template <class Score, class Real>
class PosteriorOf<Score, Real>::LogMarginals final : public QueryBase {
  public:
    LogMarginals(const PosteriorOf& owner, const Allowed& allowed, double* log_p)
        : QueryBase(owner), sets_(allowed, owner.chain_.n_tokens, owner.rows_.order),
          p_(owner.chain_.n_tokens) {
        this->for_sequences([&](int64_t s) {
            using std::log;
            for (int64_t t = this->chain_.begins[s]; t < owner.past(s); t++) {
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

    void add_sources(const Group& group, const double* d_log_p, Propagation& propagation) const override {
        std::vector<Real> before(this->chain_.n_tags);
        for (int r = 0; r < group.size; r++) {
            const int64_t s = group.sequences[r];
            Real *left = propagation.left(r), *right = propagation.right(r);
            for (int64_t t = this->chain_.begins[s]; t < this->owner_.past(s); t++) {
                const Wide<Real> weight = p_[t] > 0 ? d_log_p[t] : 0.0;
                const Wide<Real> on_set = p_[t] > 0 ? weight / p_[t] - weight : Wide<Real>(0);
                add_on(sets_[t], this->owner_.beta_row(t), on_set, -weight, left, before.data());
                add_on(sets_[t], this->owner_.alpha_row(t), on_set, -weight, right, before.data());
                left += this->owner_.width_, right += this->owner_.width_;
            }
        }
    }

    // Adds a message times one weight on a set, and times another elsewhere.
    void add_on(const Places& set, const Real* message, Wide<Real> on_set, Wide<Real> elsewhere, Real* to, Real* before) const {
        for (const int& k : set) before[&k - set.first] = to[k];
        const Vec<Real> weight = splat(static_cast<Real>(elsewhere));
        for (int k = 0; k < this->owner_.width_; k += LANES<Real>)
            store(to + k, load(to + k) + load(message + k) * weight);
        for (const int& k : set) to[k] = before[&k - set.first] + static_cast<Real>(on_set * message[k]);
    }

    const TagSets sets_;
    std::vector<Wide<Real>> p_;
};
