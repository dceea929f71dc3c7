// A query of the distribution of paths, with its vector-Jacobian product.

// The gradient is mass on tags: added directly, or as sources to be propagated in both directions.
// Several queries share one propagation: their sources are added up first.
template <class Real>
class QueryBase : public Query {
  public:
    using Owner = ForwardBackward<Real>;

    std::vector<char> underflow;                             // sequences that `rest` computes, if any
    std::shared_ptr<const typename Owner::Wider> rest_owner;  // of `rest`, which is destroyed first
    std::unique_ptr<Query> rest;

    void backprop(const Queries& queries, const Derivatives& d_values, const Gradient& out) const override {
        const bool wide = chain_.emissions.wide;
        const Floats d_emissions = {out.emissions, wide}, d_transitions = {out.transitions, wide};
        d_transitions.clear(0, static_cast<int64_t>(chain_.n_tags) * chain_.n_tags);
        add_gradient(queries, d_values, d_emissions, d_transitions);
        collect_ends(chain_, d_emissions, out);
    }

  protected:
    template <class>
    friend class QueryBase;

    QueryBase(const Owner& owner, const std::vector<char>& underflow)
        : underflow(underflow), owner_(owner), chain_(owner.chain) {}
    explicit QueryBase(const Owner& owner) : QueryBase(owner, owner.run_backward()) {}

    // The directions of propagation, and whether the mass adds up to 0 at every token.
    struct Directions {
        bool left, right, balanced;
    };
    virtual Directions directions() const { return {true, true, true}; }
    // Adds the weight of log Z of each sequence. RETURNS whether that is all but for `finish`.
    virtual bool add_weights(const double*, std::vector<double>&) const { return false; }
    // Adds the sources s and s' of a group of sequences.
    virtual void add_sources(const Group&, const double*, Propagation<Real>&) const {}
    // Adds mass directly, and weights of the transitions that the leftward mass passes. The
    // numbers are n_counts() that a thread keeps for `finish`.
    virtual void add_mass(const Group&, const double*, Propagation<Real>&, Real*) const {}
    // Counts transitions that propagation does not.
    virtual void count(const Group&, const double*, Propagation<Real>&, Real*) const {}
    virtual std::size_t n_counts() const { return 0; }
    // Adds what is left to the gradient.
    virtual void finish(const double*, const std::vector<Buffer<Real>>&, const Floats&, const Floats&) const {}

    // Calls work(s) for each sequence that doesn't underflow; in threads if it may be.
    template <class Work>
    void for_sequences(Work work) const {
        owner_.forward.for_groups([&](const Group& group, int) {
            for (int r = 0; r < group.size; r++)
                if (!underflow[group.sequences[r]]) work(group.sequences[r]);
        });
    }

    const Owner& owner_;
    const Chain& chain_;

  private:
    static const QueryBase& to_base(const Query* query) { return *static_cast<const QueryBase*>(query); }

    // Sets the emissions' part of the gradient, of the sequences that aren't left out; adds the
    // transitions' part.
    void add_gradient(const Queries& queries, const Derivatives& d_values, const Floats& d_emissions,
                      const Floats& d_transitions) const {
        const auto is_alike = [&](const Query* each) { return to_base(each).underflow == underflow; };
        if (std::all_of(queries.begin(), queries.end(), is_alike))
            return add_gradient_of_alike(queries, d_values, d_emissions, d_transitions);
        add_gradient_of_alike({queries[0]}, {d_values[0]}, d_emissions, d_transitions);
        std::vector<double> memory(chain_.n_tokens * chain_.n_tags);
        const Floats of_one = {memory.data(), d_emissions.wide};
        for (std::size_t i = 1; i < queries.size(); i++) {
            to_base(queries[i]).add_gradient_of_alike({queries[i]}, {d_values[i]}, of_one, d_transitions);
            for (std::size_t at = 0; at < memory.size(); at++) d_emissions.add(at, of_one[at]);
        }
    }

    // The same, for queries with the same sequences that underflow.
    void add_gradient_of_alike(const Queries& queries, const Derivatives& d_values, const Floats& d_emissions,
                               const Floats& d_transitions) const {
        constexpr bool IS_EXTENDED = Owner::IS_EXTENDED;
        std::vector<std::vector<Buffer<Real>>> counts(queries.size());  // of each query and thread
        std::vector<double> weights(chain_.n_sequences);
        Queries rests;
        bool only_weights = true;
        if constexpr (!IS_EXTENDED) owner_.forward.clear_rows(underflow, d_emissions);
        for (std::size_t i = 0; i < queries.size(); i++) {
            only_weights &= to_base(queries[i]).add_weights(d_values[i], weights);
            rests.push_back(to_base(queries[i]).rest.get());
        }
        if (only_weights)
            owner_.add_log_partition(weights.data(), underflow, d_emissions, d_transitions);
        else
            propagate(queries, d_values, counts, d_emissions, d_transitions);
        for (std::size_t i = 0; i < queries.size(); i++)
            to_base(queries[i]).finish(d_values[i], counts[i], d_emissions, d_transitions);
        if constexpr (!IS_EXTENDED)
            if (rests[0]) {
                const auto& first = QueryBase<Wide<Real>>::to_base(rests[0]);
                first.add_gradient(rests, d_values, d_emissions, d_transitions);
            }
    }

    void propagate(const Queries& queries, const Derivatives& d_values, std::vector<std::vector<Buffer<Real>>>& counts,
                   const Floats& d_emissions, const Floats& d_transitions) const {
        Directions directions = {false, false, true};
        std::vector<Propagation<Real>> propagations;
        for (int thread = 0; thread < owner_.forward.n_threads; thread++) propagations.emplace_back(owner_);
        for (std::size_t i = 0; i < queries.size(); i++) {
            const QueryBase& query = to_base(queries[i]);
            const Directions its = query.directions();
            directions.left = directions.left || its.left;
            directions.right = directions.right || its.right;
            directions.balanced = directions.balanced && its.balanced;
            for (std::size_t thread = 0; thread < propagations.size(); thread++) {
                counts[i].emplace_back(query.n_counts());
                std::fill_n(counts[i][thread] + 0, query.n_counts(), Real(0));
            }
        }
        owner_.forward.for_groups([&](const Group& group, int thread) {
            Propagation<Real>& propagation = propagations[thread];
            const Group& rest = propagation.take(group, underflow);
            const auto each = [&](auto step) {
                for (std::size_t i = 0; i < queries.size(); i++)
                    step(to_base(queries[i]), d_values[i], static_cast<Real*>(counts[i][thread]));
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
        owner_.forward.collect_pairs(owner_.forward.pairs_of(propagations), d_transitions);
    }
};
