// The paths outside of a set of paths.
//
// Let S_t be the tags of the set at t. A path leaves the set at the first token whose tag is not in S_t. On the scale
// of alpha, a_t[i] for i in S_t sums over all path prefixes within the set, and x_t[j] for j not in S_t over all
// prefixes that leave the set at t:
//
//     a_t[j] or x_t[j] = c_{t-1} E_t[j] sum_{i in S_{t-1}} a_{t-1}[i] M[i, j]
//     p(outside) = sum_t sum_{j not in S_t} x_t[j] beta_t[j]
//
// a can only underflow if nearly all paths have already left the set. The gradient of log p(outside) + log Z is the
// mass x_t[j] beta_t[j] / p(outside), propagated rightwards over all paths and leftwards within the set:
//
//     p(y_{t-1} = i | in the set until t - 1, y_t = j)
//         = a_{t-1}[i] M[i, j] / sum_{k in S_{t-1}} a_{t-1}[k] M[k, j]

template <class Real>
class Excluding final : public QueryBase<Real> {
  public:
    Excluding(const ForwardBackward<Real>& owner, const Allowed& allowed, double* log_sums)
        : QueryBase<Real>(owner), width_(owner.width), sets_(allowed, owner.chain.n_tokens, owner.rows.order),
          stay_(sets_.size()), leave_(owner.chain.n_tokens * width_), p_(owner.chain.n_sequences) {
        this->for_sequences([&](int64_t s) {
            p_[s] = follow(s);
            using std::log;
            // It may be 0 because products of small numbers underflow.
            this->underflow[s] = !ForwardBackward<Real>::IS_EXTENDED && !(p_[s] >= Wide<Real>(SMALLEST<Real>));
            log_sums[s] = owner.forward.log_z[s] + log(p_[s]);
        });
    }

  private:
    typename QueryBase<Real>::Directions directions() const override { return {false, true, false}; }

    void add_sources(const Group& group, const double* d_log_sums, Propagation<Real>& propagation) const override {
        for (int r = 0; r < group.size; r++) {
            const int64_t s = group.sequences[r], first = this->chain_.begins[s] * width_;
            const int64_t size = this->chain_.lengths[s] * width_;
            add_row<Real>(leave_ + first, weight(s, d_log_sums), size, propagation.right(r));
        }
    }

    void add_mass(const Group& group, const double* d_log_sums, Propagation<Real>& propagation,
                  Real* pairs) const override {
        Buffer<Wide<Real>> scratch(width_);
        Buffer<Real> passed(width_), mass(2 * width_);
        for (int r = 0; r < group.size; r++) {
            const int64_t s = group.sequences[r];
            back_in_set(s, weight(s, d_log_sums), propagation.left(r), scratch, passed, mass, pairs);
        }
    }

    std::size_t n_counts() const override { return static_cast<std::size_t>(this->chain_.n_tags) * width_; }

    // Returns the factor of x_t[j] beta_t[j] in the gradient.
    Real weight(int64_t s, const double* d_log_sums) const {
        return static_cast<Real>(p_[s] > 0 ? d_log_sums[s] / p_[s] : Wide<Real>(0));
    }

    // Computes the rows x and a of a sequence. Each row initially contains both. Then a is moved to `stay_`, leaving x.
    // RETURNS p(outside).
    Wide<Real> follow(int64_t s) {
        Wide<Real> p = 0;
        for (int64_t t = this->chain_.begins[s]; t < this->chain_.past(s); t++) {
            Real* row = leave_ + t * width_;
            if (t == this->chain_.begins[s])
                std::copy_n(this->owner_.alpha_row(t), width_, row);
            else
                step(t, row);
            for (const int& k : sets_[t]) {
                stay_[sets_.index(k)] = row[k];
                row[k] = 0;
            }
            p += dot<Real>(row, this->owner_.beta_row(t), width_);
        }
        return p;
    }

    // Computes a_t and x_t from a_{t-1} in a single row.
    void step(int64_t t, Real* row) const {
        const Real* emissions = this->owner_.emission_row(t);
        std::fill_n(row, width_, Real(0));
        for (const int& i : sets_[t - 1]) {
            const Real* transitions = this->owner_.transition_row(i);
            add_row<Real>(transitions, stay_[sets_.index(i)] * this->owner_.factor(t - 1), width_, row);
        }
        for (int k = 0; k < width_; k += LANES<Real>)
            store(row + k, load(row + k) * load(emissions + k));
    }

    // Adds the mass that leaves the set, propagates it leftwards within the set, and counts its transitions.
    void back_in_set(int64_t s, Real weight, Real* left, Wide<Real>* scratch, Real* passed, Real* mass,
                     Real* pairs) const {
        const int64_t begin = this->chain_.begins[s], length = this->chain_.lengths[s];
        Real* before = mass + width_;
        std::fill_n(mass, width_, Real(0));
        for (int64_t t = begin + length - 1; t >= begin; t--, std::swap(mass, before)) {
            const Real *beta = this->owner_.beta_row(t), *leave = leave_ + t * width_;
            Real* row = left + (t - begin) * width_;
            for (int k = 0; k < width_; k += LANES<Real>) {
                store(mass + k, load(mass + k) + load(leave + k) * load(beta + k) * weight);
                store(row + k, load(row + k) + load(mass + k));
            }
            if (t == begin) break;
            std::fill_n(before, width_, Real(0));
            const Places from = sets_[t - 1];
            if (from.size() == 1) {
                before[*from.begin()] = pass(mass, pairs + static_cast<std::size_t>(*from.begin()) * width_);
                continue;
            }
            divide_by_messages(t, mass, scratch);
            for (const int& i : from) {
                const Real* transitions = this->owner_.transition_row(i);
                const Wide<Real> stay = stay_[sets_.index(i)];
                for (int k = 0; k < width_; k++)
                    passed[k] = static_cast<Real>(stay * transitions[k] * scratch[k]);
                before[i] = pass(passed, pairs + static_cast<std::size_t>(i) * width_);
            }
        }
    }

    // Adds a row of mass to a row of transition counts. RETURNS its sum.
    Real pass(const Real* mass, Real* pairs) const {
        Vec<Real> total = splat(Real(0));
        for (int k = 0; k < width_; k += LANES<Real>) {
            total += load(mass + k);
            store(pairs + k, load(pairs + k) + load(mass + k));
        }
        return sum_lanes<Real>(total);
    }

    // Computes mass[j] / sum_{i in S_{t-1}} a_{t-1}[i] M[i, j] in the wider type, because both may be small.
    void divide_by_messages(int64_t t, const Real* mass, Wide<Real>* to) const {
        std::fill_n(to, width_, Wide<Real>(0));
        for (const int& i : sets_[t - 1]) {
            const Real* transitions = this->owner_.transition_row(i);
            const Wide<Real> stay = stay_[sets_.index(i)];
            for (int k = 0; k < width_; k++) to[k] += stay * transitions[k];
        }
        for (int k = 0; k < width_; k++) to[k] = to[k] > 0 ? mass[k] / to[k] : Wide<Real>(0);
    }

    // Adds the transitions counted by `add_mass`.
    void finish(const double*, const std::vector<Buffer<Real>>& threads, const Floats&,
                const Floats& d_transitions) const override {
        const int n_tags = this->chain_.n_tags;
        const std::vector<int>& order = this->owner_.rows.order;
        for (const Buffer<Real>& pairs : threads)
            for (int i = 0; i < n_tags; i++)
                for (int j = 0; j < n_tags; j++)
                    d_transitions.add(static_cast<int64_t>(order[i]) * n_tags + order[j],
                                      static_cast<double>(pairs[static_cast<std::size_t>(i) * width_ + j]));
    }

    const int width_;
    const TagSets sets_;
    std::vector<Real> stay_;  // a, for the tags of the sets
    Buffer<Real> leave_;      // x
    std::vector<Wide<Real>> p_;
};
