// A query of the distribution over paths, with its vector-Jacobian product.

// The gradient is mass on tags that is added directly, or sources that are propagated in both directions (see
// propagation.hpp). Several queries share a single propagation, because their sources are summed first.
//
// Sequences whose messages underflow are computed by the same query with the wider type, `wide_query`.
template <class Real>
class QueryBase : public Query {
  public:
    using Owner = ForwardBackward<Real>;

    std::vector<char> underflow;                                 // whether each sequence is computed by `wide_query`
    std::shared_ptr<const typename Owner::Wider> wide_messages;  // declared first, to be destroyed after the query
    std::unique_ptr<Query> wide_query;                           // null if no sequence underflows

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

    // The parts of the gradient of a query, in this order. `d_values` are the derivatives with respect to its values.
    // `counts` are n_counts() numbers per thread for the query, initialized with 0.

    // Whether mass is propagated leftwards and rightwards, and whether it adds up to 0 at every token.
    struct Directions {
        bool left, right, balanced;
    };
    virtual Directions directions() const { return {true, true, true}; }
    virtual std::size_t n_counts() const { return 0; }
    // Adds the weight of log Z of each sequence to `weights`. RETURNS true if this is the entire gradient except for
    // `finish`.
    virtual bool add_weights(const double* /*d_values*/, std::vector<double>& /*weights*/) const { return false; }
    // Adds the sources s and s' of a group of sequences.
    virtual void add_sources(const Group&, const double* /*d_values*/, Propagation<Real>&) const {}
    // Adds mass directly, and weights for the transitions of the leftward mass.
    virtual void add_mass(const Group&, const double* /*d_values*/, Propagation<Real>&, Real* /*counts*/) const {}
    // Counts transitions that are not counted by propagation.
    virtual void count(const Group&, const double* /*d_values*/, Propagation<Real>&, Real* /*counts*/) const {}
    // Adds the remaining gradient, using the counts of all threads.
    virtual void finish(const double* /*d_values*/, const std::vector<Buffer<Real>>& /*counts*/,
                        const Floats& /*d_emissions*/, const Floats& /*d_transitions*/) const {}

    // Calls work(s) for each sequence that doesn't underflow, possibly in several threads.
    void for_sequences(FunctionRef<void(int64_t)> work) const {
        owner_.forward.for_groups([&](const Group& group, int) {
            for (int r = 0; r < group.size; r++)
                if (!underflow[group.sequences[r]]) work(group.sequences[r]);
        });
    }

    const Owner& owner_;
    const Chain& chain_;

  private:
    static const QueryBase& to_base(const Query* query) { return *static_cast<const QueryBase*>(query); }

    // Sets the emission gradient of all sequences that aren't left out, and adds the transition gradient.
    void add_gradient(const Queries& queries, const Derivatives& d_values, const Floats& d_emissions,
                      const Floats& d_transitions) const {
        const auto is_alike = [&](const Query* query) { return to_base(query).underflow == underflow; };
        if (std::all_of(queries.begin(), queries.end(), is_alike))
            return add_gradient_of_alike(queries, d_values, d_emissions, d_transitions);
        // Different sequences underflow in different queries, so process the queries one by one.
        add_gradient_of_alike({queries[0]}, {d_values[0]}, d_emissions, d_transitions);
        std::vector<double> memory(chain_.n_tokens * chain_.n_tags);
        const Floats d_emissions_of_query = {memory.data(), d_emissions.wide};
        for (std::size_t i = 1; i < queries.size(); i++) {
            to_base(queries[i]).add_gradient_of_alike({queries[i]}, {d_values[i]}, d_emissions_of_query,
                                                      d_transitions);
            for (std::size_t k = 0; k < memory.size(); k++) d_emissions.add(k, d_emissions_of_query[k]);
        }
    }

    // The same, for queries in which the same sequences underflow.
    void add_gradient_of_alike(const Queries& queries, const Derivatives& d_values, const Floats& d_emissions,
                               const Floats& d_transitions) const {
        constexpr bool IS_EXTENDED = Owner::IS_EXTENDED;
        std::vector<std::vector<Buffer<Real>>> counts(queries.size());  // by query and thread
        std::vector<double> weights(chain_.n_sequences);
        Queries wide_queries;
        bool only_weights = true;
        if constexpr (!IS_EXTENDED) owner_.forward.clear_rows(underflow, d_emissions);
        for (std::size_t i = 0; i < queries.size(); i++) {
            only_weights &= to_base(queries[i]).add_weights(d_values[i], weights);
            wide_queries.push_back(to_base(queries[i]).wide_query.get());
        }
        if (only_weights)
            owner_.add_log_partition(weights.data(), underflow, d_emissions, d_transitions);
        else
            propagate(queries, d_values, counts, d_emissions, d_transitions);
        for (std::size_t i = 0; i < queries.size(); i++)
            to_base(queries[i]).finish(d_values[i], counts[i], d_emissions, d_transitions);
        if constexpr (!IS_EXTENDED)
            if (wide_queries[0]) {
                const auto& first = QueryBase<Wide<Real>>::to_base(wide_queries[0]);
                first.add_gradient(wide_queries, d_values, d_emissions, d_transitions);
            }
    }

    // Sums the sources of all queries, propagates them, and adds the mass to the gradient.
    void propagate(const Queries& queries, const Derivatives& d_values, std::vector<std::vector<Buffer<Real>>>& counts,
                   const Floats& d_emissions, const Floats& d_transitions) const {
        // Propagate in every direction required by any query. The result is only balanced if all queries are.
        Directions directions = {false, false, true};
        std::vector<Propagation<Real>> propagations;
        for (int thread = 0; thread < owner_.forward.n_threads; thread++) propagations.emplace_back(owner_);
        for (std::size_t i = 0; i < queries.size(); i++) {
            const QueryBase& query = to_base(queries[i]);
            const Directions directions_of_query = query.directions();
            directions.left = directions.left || directions_of_query.left;
            directions.right = directions.right || directions_of_query.right;
            directions.balanced = directions.balanced && directions_of_query.balanced;
            for (std::size_t thread = 0; thread < propagations.size(); thread++) {
                counts[i].emplace_back(query.n_counts());
                std::fill_n(counts[i][thread] + 0, query.n_counts(), Real(0));
            }
        }
        owner_.forward.for_groups([&](const Group& group, int thread) {
            Propagation<Real>& propagation = propagations[thread];
            const Group& computed = propagation.take(group, underflow);  // the sequences that don't underflow
            using Work = FunctionRef<void(const QueryBase&, const double*, Real*)>;
            const auto for_queries = [&](Work work) {
                for (std::size_t i = 0; i < queries.size(); i++)
                    work(to_base(queries[i]), d_values[i], static_cast<Real*>(counts[i][thread]));
            };
            for_queries([&](const QueryBase& q, const double* d, Real*) { q.add_sources(computed, d, propagation); });
            if (directions.left) propagation.to_left();
            for_queries([&](const QueryBase& q, const double* d, Real* n) {
                q.add_mass(computed, d, propagation, n);
            });
            if (directions.left) propagation.count_left();
            for_queries([&](const QueryBase& q, const double* d, Real* n) { q.count(computed, d, propagation, n); });
            if (directions.right) propagation.to_right(directions.balanced);
            if (directions.right) propagation.count_right();
            propagation.put(d_emissions);
        });
        owner_.forward.collect_pairs(owner_.forward.pairs_of(propagations), d_transitions);
    }
};
