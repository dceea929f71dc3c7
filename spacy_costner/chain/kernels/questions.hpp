// What can be asked of a posterior, each question with its way back.
// No include guard: one_isa.hpp includes it once for each instruction set.

template <class Real>
class PosteriorOf<Real>::Question : public Asked {
  protected:
    explicit Question(const PosteriorOf& owner) : owner_(owner), chain_(owner.chain_) {
        lost = owner.sums_.lost_;
    }

    // Calls work(s) for each sequence that is not lost.
    template <class Work>
    void for_sequences(Work work) const {
        owner_.for_groups([&](const Group& group, int) {
            for (int r = 0; r < group.size; r++)
                if (!lost[group.sequences[r]]) work(group.sequences[r]);
        });
    }

    // The gradient of the mass that work(spread, group, thread) lays, spreads and counts.
    template <class Work>
    void spread(const Gradient& out, Work work) const {
        Real* d_emissions = static_cast<Real*>(out.emissions);
        for (int64_t s = 0; s < chain_.n_sequences; s++)
            if (lost[s])
                std::fill_n(d_emissions + chain_.begins[s] * chain_.n_tags,
                            static_cast<int64_t>(chain_.lengths[s]) * chain_.n_tags, Real(0));
        std::vector<Spread> threads;
        for (int i = 0; i < owner_.sums_.n_threads_; i++) threads.emplace_back(owner_);
        owner_.for_groups([&](const Group& group, int thread) {
            const Group& rest = threads[thread].take(group, lost);
            if (rest.size == 0) return;
            work(threads[thread], rest, thread);
            for (int r = 0; r < rest.size; r++) threads[thread].put(r, d_emissions);
        });
        owner_.sums_.collect_pairs(owner_.sums_.pairs_of(threads), static_cast<Real*>(out.transitions));
        collect_ends(chain_, d_emissions, static_cast<Real*>(out.start), static_cast<Real*>(out.end));
    }

    const PosteriorOf& owner_;
    const Chain<Real>& chain_;
};

// log Z. Its gradient is the marginals, mass that has been spread already.
template <class Real>
class PosteriorOf<Real>::LogPartition final : public Question {
  public:
    LogPartition(const PosteriorOf& owner, double* log_z) : Question(owner) {
        std::copy(owner.log_z_.begin(), owner.log_z_.end(), log_z);
    }

    void backprop(const double* d_log_z, const Gradient& out) const override {
        this->spread(out, [&](Spread& spread, const Group& group, int) {
            for (int r = 0; r < group.size; r++) {
                const Real weight = static_cast<Real>(d_log_z[group.sequences[r]]);
                lay(group.sequences[r], weight, spread.left(r));
                spread.count_marginals(r, weight, spread.pairs);
            }
        });
    }

  private:
    void lay(int64_t s, Real weight, Real* row) const {
        const int width = this->owner_.width_;
        for (int64_t t = this->chain_.begins[s]; t < this->owner_.past(s); t++, row += width) {
            const Real *alpha = this->owner_.alpha_row(t), *beta = this->owner_.beta_row(t);
            for (int k = 0; k < width; k += LANES<Real>)
                store(row + k, load(alpha + k) * load(beta + k) * weight);
        }
    }
};

// log p(y_t in S_t). With weight w its gradient is the mass
// w (p(y_t = k | y_t in S_t) - p(y_t = k)), so that
//
//     s_t[k] = w (1[k in S_t] / p - 1) beta_t[k],  p = sum_{k in S_t} alpha_t[k] beta_t[k]
//
// and s' the same with alpha.
template <class Real>
class PosteriorOf<Real>::LogMarginals final : public Question {
  public:
    LogMarginals(const PosteriorOf& owner, const uint8_t* allowed, double* log_p)
        : Question(owner), sets_(allowed, owner.chain_.n_tokens, owner.rows_.order),
          p_(owner.chain_.n_tokens) {
        this->for_sequences([&](int64_t s) {
            bool small = false;
            for (int64_t t = this->chain_.begins[s]; t < owner.past(s); t++) {
                p_[t] = probability(t);
                small |= p_[t] > 0 && p_[t] < SMALLEST;
                log_p[t] = std::log(p_[t]);
            }
            this->lost[s] = small;
        });
    }

    void backprop(const double* d_log_p, const Gradient& out) const override {
        this->spread(out, [&](Spread& spread, const Group& group, int) {
            for (int r = 0; r < group.size; r++)
                lay(group.sequences[r], d_log_p, spread.left(r), spread.right(r));
            spread.to_left();
            for (int r = 0; r < group.size; r++) spread.count_left(r);
            spread.to_right();
            for (int r = 0; r < group.size; r++) spread.count_right(r);
        });
    }

  private:
    double probability(int64_t token) const {
        const Real *alpha = this->owner_.alpha_row(token), *beta = this->owner_.beta_row(token);
        double p = 0;
        for (int k : sets_[token]) p += static_cast<double>(alpha[k]) * beta[k];
        return std::min(p, 1.0);
    }

    void lay(int64_t s, const double* d_log_p, Real* left, Real* right) const {
        const int width = this->owner_.width_;
        for (int64_t t = this->chain_.begins[s]; t < this->owner_.past(s); t++) {
            const Real *alpha = this->owner_.alpha_row(t), *beta = this->owner_.beta_row(t);
            const double weight = p_[t] > 0 ? d_log_p[t] : 0.0;
            const double on_set = p_[t] > 0 ? weight / p_[t] - weight : 0.0;
            for (int k = 0; k < width; k += LANES<Real>) {
                store(left + k, load(beta + k) * static_cast<Real>(-weight));
                store(right + k, load(alpha + k) * static_cast<Real>(-weight));
            }
            for (int k : sets_[t]) {
                left[k] = static_cast<Real>(on_set * beta[k]);
                right[k] = static_cast<Real>(on_set * alpha[k]);
            }
            left += width, right += width;
        }
    }

    const TagSets sets_;
    std::vector<double> p_;
};
