// What can be asked of a posterior, each question with its way back.
// No include guard: one_isa.hpp includes it once for each instruction set.

// The way back is mass on tags: laid where it belongs, or as sources that propagate to both sides.
// Several questions go back together, their mass added up before it spreads.
template <class Score, class Real>
class PosteriorOf<Score, Real>::Question : public Query {
  public:
    void backprop(const double* d_answers, const Gradient& out) const override {
        owner_.backprop({this}, {d_answers}, out);
    }

  protected:
    friend class PosteriorOf<Score, Real>;

    std::vector<char> lost;                  // sequences of which `rest` has the answers, if anyone
    std::shared_ptr<const Wider> rest_owner;  // of `rest`, which goes first
    std::unique_ptr<Query> rest;

    explicit Question(const PosteriorOf& owner) : owner_(owner), chain_(owner.chain_) {
        lost = owner.sums_.lost_;
    }

    // Which ways mass spreads, and whether what spreads adds up to 0 at every token.
    struct Ways {
        bool left, right, balanced;
    };
    virtual Ways ways() const { return {true, true, true}; }
    // Adds the sources s and s' of a group of sequences.
    virtual void lay(const Group&, const double*, Spread&) const {}
    // Adds mass where it belongs, and what it weighs on pairs that mass passes leftwards. The
    // numbers are n_counts() that a thread keeps for `finish`.
    virtual void lay_mass(const Group&, const double*, Spread&, Real*) const {}
    // Counts pairs that mass does not pass as it spreads.
    virtual void count(const Group&, const double*, Spread&, Real*) const {}
    virtual std::size_t n_counts() const { return 0; }
    // Adds what is left to the gradient of the transitions.
    virtual void finish(const double*, const std::vector<Buffer<Real>>&, Score*) const {}

    // Calls work(s) for each sequence that is not lost.
    template <class Work>
    void for_sequences(Work work) const {
        owner_.for_groups([&](const Group& group, int) {
            for (int r = 0; r < group.size; r++)
                if (!lost[group.sequences[r]]) work(group.sequences[r]);
        });
    }

    const PosteriorOf& owner_;
    const Chain<Score>& chain_;
};

// The gradient of the sum of some answers of this posterior, each with its derivatives.
template <class Score, class Real>
void PosteriorOf<Score, Real>::backprop(const std::vector<const Query*>& asked,
                                        const std::vector<const double*>& d_answers, const Gradient& out) const {
    Score* d_emissions = static_cast<Score*>(out.emissions);
    Score* d_transitions = static_cast<Score*>(out.transitions);
    std::fill_n(d_transitions, static_cast<std::size_t>(chain_.n_tags) * chain_.n_tags, Score(0));
    if (asked.empty())
        std::fill_n(d_emissions, chain_.n_tokens * chain_.n_tags, Score(0));
    else
        add_gradient(asked, d_answers, d_emissions, d_transitions);
    collect_ends(chain_, d_emissions, static_cast<Score*>(out.start), static_cast<Score*>(out.end));
}

// Sets the emissions' part of the gradient, of the sequences that aren't left out; adds the
// transitions' part.
template <class Score, class Real>
void PosteriorOf<Score, Real>::add_gradient(const AskedOf& asked, const Derivatives& d_answers, Score* d_emissions,
                                            Score* d_transitions) const {
    const auto is_of_first = [&](const Query* each) { return question(each)->lost == question(asked[0])->lost; };
    if (std::all_of(asked.begin(), asked.end(), is_of_first))
        return add_gradient_of_alike(asked, d_answers, d_emissions, d_transitions);
    add_gradient_of_alike({asked[0]}, {d_answers[0]}, d_emissions, d_transitions);
    std::vector<Score> of_one(chain_.n_tokens * chain_.n_tags);
    for (std::size_t i = 1; i < asked.size(); i++) {
        add_gradient_of_alike({asked[i]}, {d_answers[i]}, of_one.data(), d_transitions);
        for (std::size_t at = 0; at < of_one.size(); at++) d_emissions[at] += of_one[at];
    }
}

// The same, of questions that have lost the same sequences.
template <class Score, class Real>
void PosteriorOf<Score, Real>::add_gradient_of_alike(const AskedOf& asked, const Derivatives& d_answers,
                                                     Score* d_emissions, Score* d_transitions) const {
    std::vector<const Question*> questions;
    std::vector<const Query*> rests;
    std::vector<std::vector<Buffer<Real>>> counts(asked.size());  // of each question and thread
    typename Question::Ways ways = {false, false, true};
    for (std::size_t i = 0; i < asked.size(); i++) {
        questions.push_back(question(asked[i]));
        rests.push_back(questions[i]->rest.get());
        const typename Question::Ways its = questions[i]->ways();
        ways = {ways.left || its.left, ways.right || its.right, ways.balanced && its.balanced};
        for (int thread = 0; thread < sums_.n_threads_; thread++) {
            counts[i].emplace_back(questions[i]->n_counts());
            std::fill_n(counts[i][thread] + 0, questions[i]->n_counts(), Real(0));
        }
    }
    const std::vector<char>& lost = questions[0]->lost;
    if constexpr (!IS_EXTENDED) sums_.clear_rows(lost, d_emissions);
    std::vector<Spread> spreads;
    for (int thread = 0; thread < sums_.n_threads_; thread++) spreads.emplace_back(*this);
    for_groups([&](const Group& group, int thread) {
        Spread& propagate = spreads[thread];
        const Group& rest = propagate.take(group, lost);
        const auto each = [&](auto step) {
            for (std::size_t i = 0; i < asked.size(); i++)
                step(*questions[i], d_answers[i], static_cast<Real*>(counts[i][thread]));
        };
        each([&](const Question& q, const double* d, Real*) { q.lay(rest, d, propagate); });
        if (ways.left) propagate.to_left();
        each([&](const Question& q, const double* d, Real* n) { q.lay_mass(rest, d, propagate, n); });
        if (ways.left) propagate.count_left();
        each([&](const Question& q, const double* d, Real* n) { q.count(rest, d, propagate, n); });
        if (ways.right) propagate.to_right(ways.balanced);
        if (ways.right) propagate.count_right();
        propagate.put(d_emissions);
    });
    sums_.collect_pairs(sums_.pairs_of(spreads), d_transitions);
    for (std::size_t i = 0; i < asked.size(); i++) questions[i]->finish(d_answers[i], counts[i], d_transitions);
    if constexpr (!IS_EXTENDED)
        if (rests[0]) questions[0]->rest_owner->add_gradient(rests, d_answers, d_emissions, d_transitions);
}

// log Z. Its gradient is the marginals, mass that has been propagate already.
template <class Score, class Real>
class PosteriorOf<Score, Real>::LogPartition final : public Question {
  public:
    LogPartition(const PosteriorOf& owner, double* log_z) : Question(owner) {
        owner.for_groups([&](const Group& group, int) {
            for (int r = 0; r < group.size; r++) log_z[group.sequences[r]] = owner.log_z_[group.sequences[r]];
        });
    }

  private:
    typename Question::Ways ways() const override { return {false, false, true}; }

    void lay_mass(const Group& group, const double* d_log_z, Spread& propagate, Real*) const override {
        for (int r = 0; r < group.size; r++) {
            const int64_t s = group.sequences[r];
            Real* row = propagate.left(r);
            for (int64_t t = this->chain_.begins[s]; t < this->owner_.past(s); t++, row += this->owner_.width_)
                this->owner_.add_marginals(t, static_cast<Real>(d_log_z[s]), row);
        }
    }

    void count(const Group& group, const double* d_log_z, Spread& propagate, Real*) const override {
        for (int r = 0; r < group.size; r++)
            propagate.count_marginals(r, static_cast<Real>(d_log_z[group.sequences[r]]), propagate.pairs);
    }
};

// log p(y_t in S_t). With weight w its gradient is the mass
// w (p(y_t = k | y_t in S_t) - p(y_t = k)), so that
//
//     s_t[k] = w (1[k in S_t] / p - 1) beta_t[k],  p = sum_{k in S_t} alpha_t[k] beta_t[k]
//
// and s' the same with alpha.
template <class Score, class Real>
class PosteriorOf<Score, Real>::LogMarginals final : public Question {
  public:
    LogMarginals(const PosteriorOf& owner, const Sets& allowed, double* log_p)
        : Question(owner), sets_(allowed, owner.chain_.n_tokens, owner.rows_.order),
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

    void lay(const Group& group, const double* d_log_p, Spread& propagate) const override {
        std::vector<Real> before(this->chain_.n_tags);
        for (int r = 0; r < group.size; r++) {
            const int64_t s = group.sequences[r];
            Real *left = propagate.left(r), *right = propagate.right(r);
            for (int64_t t = this->chain_.begins[s]; t < this->owner_.past(s); t++) {
                const Wide<Real> weight = p_[t] > 0 ? d_log_p[t] : 0.0;
                const Wide<Real> on_set = p_[t] > 0 ? weight / p_[t] - weight : Wide<Real>(0);
                lay_on(sets_[t], this->owner_.beta_row(t), on_set, -weight, left, before.data());
                lay_on(sets_[t], this->owner_.alpha_row(t), on_set, -weight, right, before.data());
                left += this->owner_.width_, right += this->owner_.width_;
            }
        }
    }

    // Adds a message times one weight on a set, and times another elsewhere.
    void lay_on(const Places& set, const Real* message, Wide<Real> on_set, Wide<Real> elsewhere, Real* to, Real* before) const {
        for (const int& k : set) before[&k - set.first] = to[k];
        const Vec<Real> weight = splat(static_cast<Real>(elsewhere));
        for (int k = 0; k < this->owner_.width_; k += LANES<Real>)
            store(to + k, load(to + k) + load(message + k) * weight);
        for (const int& k : set) to[k] = before[&k - set.first] + static_cast<Real>(on_set * message[k]);
    }

    const TagSets sets_;
    std::vector<Wide<Real>> p_;
};
