// The log-probability of segments.
//
// The probability of the segment y_b, ..., y_{e-1}, followed by one of the allowed tags, is
//
//     p = alpha_b[y_b] prod_{b < t < e} (c_{t-1} M[y_{t-1}, y_t] E_t[y_t]) tail
//     tail = c_{e-1} sum_{k in after} M[y_{e-1}, k] E_e[k] beta_e[k], or beta_{e-1}[y_{e-1}] at the end
//
// With weight w, the gradient of its logarithm consists of the counts of the segment, the mass w - w p(y_b) propagated
// leftwards from its first token,
//
//     s_b[k] = w (1[k = y_b] / alpha_b[y_b] - beta_b[k]),
//
// and the mass propagated rightwards from the token after it,
//
//     s'_e[k] = w (1[k in after] c_{e-1} M[y_{e-1}, k] E_e[k] / tail - alpha_e[k]);
//
// The marginals of the tokens in between and of their transitions are subtracted.

template <class Real>
class SegmentLogProbs final : public QueryBase<Real> {
  public:
    SegmentLogProbs(const ForwardBackward<Real>& owner, const Segments& segments, double* log_p)
        : QueryBase<Real>(owner), width_(owner.width), segments_(segments, owner.chain, owner.rows.order),
          tails_(segments.n_segments), possible_(segments.n_segments) {
        this->for_sequences([&](int64_t s) {
            for (int64_t i : segments_[s]) {
                log_p[i] = log_probability(s, i);
                possible_[i] = std::isfinite(log_p[i]);
            }
        });
    }

  private:
    void add_sources(const Group& group, const double* d_log_p, Propagation<Real>& propagation) const override {
        for (int r = 0; r < group.size; r++)
            for (int64_t i : segments_[group.sequences[r]]) {
                if (!possible_[i]) continue;
                const int64_t s = group.sequences[r];
                add_segment_sources(s, i, d_log_p[i], propagation.left(r), propagation.right(r));
            }
    }

    void add_mass(const Group& group, const double* d_log_p, Propagation<Real>& propagation, Real*) const override {
        for (int r = 0; r < group.size; r++)
            for (int64_t i : segments_[group.sequences[r]])
                if (possible_[i]) add_prefix(group.sequences[r], i, d_log_p[i], propagation, r);
    }

    void finish(const double* d_log_p, const std::vector<Buffer<Real>>&, const Floats&,
                const Floats& d_transitions) const override {
        for (int64_t s = 0; s < this->chain_.n_sequences; s++)
            for (int64_t i : segments_[s])
                if (possible_[i]) add_pairs(s, i, d_log_p[i], d_transitions);
    }

    // Returns the factor c_{t-1} M[from, to] E_t[to] of p.
    Wide<Real> step(int64_t t, int from, int to) const {
        return static_cast<Wide<Real>>(this->owner_.factor(t - 1)) *
               this->owner_.transition_row(from)[to] * this->owner_.emission_row(t)[to];
    }

    // Calls work(t, previous tag, tag) for all tokens of a segment except the first one.
    template <class Work>
    void for_steps(int64_t i, Work work) const {
        for (int64_t t = segments_.begin(i) + 1; t < segments_.end(i); t++)
            work(t, segments_.tag(i, t - 1), segments_.tag(i, t));
    }

    // Calls work(k, c M[y_{e-1}, k] E_e[k]) for the tags allowed after a segment.
    template <class Work>
    void for_followers(int64_t i, Work work) const {
        const int64_t end = segments_.end(i);
        const int last = segments_.tag(i, end - 1);
        for (int k = 0; k < this->chain_.n_tags; k++)
            if (segments_.may_follow(i, k)) work(k, step(end, last, k));
    }

    // Checks whether a segment ends with its sequence.
    bool is_over(int64_t s, int64_t i) const { return segments_.end(i) == this->chain_.past(s); }

    // Computes log p of segment i in sequence s, and stores its tail.
    double log_probability(int64_t s, int64_t i) {
        const int64_t begin = segments_.begin(i), end = segments_.end(i);
        using std::log;
        double log_p = log(static_cast<Wide<Real>>(this->owner_.alpha_row(begin)[segments_.tag(i, begin)]));
        for_steps(i, [&](int64_t t, int before, int tag) { log_p += log(step(t, before, tag)); });
        Wide<Real> tail = 0;
        if (is_over(s, i))
            tail = this->owner_.beta_row(end - 1)[segments_.tag(i, end - 1)];
        else
            for_followers(i, [&](int k, Wide<Real> step) { tail += step * this->owner_.beta_row(end)[k]; });
        tails_[i] = tail;
        return log_p + log(tail);
    }

    // Adds the sources of a segment.
    void add_segment_sources(int64_t s, int64_t i, double weight, Real* left, Real* right) const {
        const int64_t begin = segments_.begin(i), end = segments_.end(i), first = this->chain_.begins[s];
        const int tag = segments_.tag(i, begin);
        Real* row = left + (begin - first) * width_;
        add_row<Real>(this->owner_.beta_row(begin), static_cast<Real>(-weight), width_, row);
        row[tag] += static_cast<Real>(weight / this->owner_.alpha_row(begin)[tag]);
        if (is_over(s, i)) return;
        row = right + (end - first) * width_;
        add_row<Real>(this->owner_.alpha_row(end), static_cast<Real>(-weight), width_, row);
        for_followers(i, [&](int k, Wide<Real> step) { row[k] += static_cast<Real>(weight * step / tails_[i]); });
    }

    // Adds all tags of the segment except the first one, the tag after it, and the transitions to them.
    void add_prefix(int64_t s, int64_t i, double weight, Propagation<Real>& propagation, int r) const {
        const int64_t end = segments_.end(i), first = this->chain_.begins[s];
        for_steps(i, [&](int64_t t, int, int tag) {
            take_off(t, t - first, weight, propagation, r);
            propagation.left(r)[(t - first) * width_ + tag] += static_cast<Real>(weight);
        });
        if (is_over(s, i)) return;
        take_off(end, end - first, weight, propagation, r);
        Real* row = propagation.left(r) + (end - first) * width_;
        for_followers(i, [&](int k, Wide<Real> step) { row[k] += share(i, k, weight * step); });
    }

    // Subtracts the marginals of a token and of the transitions to it, multiplied by `weight`.
    void take_off(int64_t token, int64_t t, double weight, Propagation<Real>& propagation, int r) const {
        this->owner_.add_marginals(token, static_cast<Real>(-weight), propagation.left(r) + t * width_);
        propagation.take_off_pairs(r, t, static_cast<Real>(weight));
    }

    // Returns the part of a segment's mass with tag k after the segment.
    Real share(int64_t i, int k, Wide<Real> step) const {
        return static_cast<Real>(step * this->owner_.beta_row(segments_.end(i))[k] / tails_[i]);
    }

    // Counts the transitions of a segment, and the transitions to the tags after it.
    void add_pairs(int64_t s, int64_t i, double weight, const Floats& d_transitions) const {
        const std::vector<int>& order = this->owner_.rows.order;
        const int64_t n_tags = this->chain_.n_tags;
        for_steps(i, [&](int64_t, int before, int tag) {
            d_transitions.add(order[before] * n_tags + order[tag], weight);
        });
        if (is_over(s, i)) return;
        const int64_t last = order[segments_.tag(i, segments_.end(i) - 1)];
        for_followers(i, [&](int k, Wide<Real> step) {
            d_transitions.add(last * n_tags + order[k], static_cast<double>(share(i, k, weight * step)));
        });
    }

    const int width_;
    const SegmentsOfSequences segments_;
    std::vector<Wide<Real>> tails_;
    std::vector<char> possible_;
};
