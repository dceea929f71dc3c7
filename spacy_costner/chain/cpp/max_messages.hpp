// Max-product messages in both directions, and their queries.
//
//     delta_t[j]     = max_i (delta_{t-1}[i] + M[i, j]) + E_t[j]
//     gamma_{t-1}[i] = max_j (M[i, j] + E_t[j] + gamma_t[j])
//
// As in max_product.hpp, the computation uses float64, and no back pointers are stored. If the best tag before or after
// a tag is needed, the maximum is recomputed.

class MaxMessages final : public Messages {
  public:
    MaxMessages(const Potentials& scores, int n_threads)
        : max_(scores, n_threads), chain_(max_.chain_), order_(max_.rows_.order),
          width_(max_.width_),
          by_target_(Matrix<double>::pack(max_.by_target_, chain_.n_tags, Maxima())),
          emissions_(chain_.n_tokens * width_), gamma_(chain_.n_tokens * width_),
          ahead_(chain_.n_tokens * width_), delta_(chain_.n_tokens * width_) {
        in_threads(max_.schedule_.groups(), max_.n_threads_, [&](const Group& group, int) {
            double* rows[ROWS];
            for (int r = 0; r < group.size; r++) rows[r] = delta_ + chain_.begins[group.sequences[r]] * width_;
            max_.forward(group, rows);
            backward(group);
        });
    }

    std::unique_ptr<Query> query(const std::string& name, const Arguments& arguments, double* values) const override;

  private:
    class SegmentMaxScores;

    // A token where a path deviates, the position of its tag there, and the score of the path.
    struct Deviation {
        double score = -INFINITY;
        int64_t token = 0;
        int tag = 0;
    };

    // Converts a product of messages to gamma of a token, and to E + gamma for the previous token (`ahead`).
    struct BackwardStep {
        const double* emissions[ROWS];
        double *gamma[ROWS], *ahead[ROWS];

        INLINE void operator()(int r, int column, Vec<double> best) {
            store(gamma[r] + column, best);
            store(ahead[r] + column, best + load(emissions[r] + column));
        }
    };

    // Computes max_{y: y_t = k} s(y), shape (N, K).
    void max_marginals(double* out) const {
        for (int64_t t = 0; t < chain_.n_tokens; t++)
            for (int k = 0; k < chain_.n_tags; k++)
                out[t * chain_.n_tags + order_[k]] = delta_row(t)[k] + row_of(gamma_, t)[k];
    }

    // Finds the path with the highest log-probability among all paths whose transitions are within the tolerance:
    //
    //     argmax_y sum_t log p_t[y_t]
    //     where  M[y_{t-1}, y_t] + E_t[y_t] + gamma_t[y_t] >= gamma_{t-1}[y_{t-1}] - tolerance
    //
    // The same condition applies to the first tag. Ties are broken in favor of the first tag in the tag set, starting
    // with the last token.
    void best_of_tied(const Ties& ties) const {
        for (int64_t s = 0; s < chain_.n_sequences; s++)
            if (!is_clear(s, ties)) follow_ties(s, ties);
    }

    // Checks whether only a single path is close enough to the best path, i.e. there is only one such tag at each
    // token. If so, writes its tags, and no other paths have to be searched.
    bool is_clear(int64_t s, const Ties& ties) const {
        for (int64_t t = chain_.begins[s]; t < chain_.past(s); t++) {
            const auto score = [&](int k) { return delta_row(t)[k] + row_of(gamma_, t)[k]; };
            int best = 0, n_near = 0;
            for (int k = 1; k < chain_.n_tags; k++)
                if (score(k) > score(best)) best = k;
            const double least = score(best) - ties.tolerance * chain_.lengths[s];
            for (int k = 0; k < chain_.n_tags; k++) n_near += score(k) >= least;
            if (n_near > 1) return false;
            ties.tags[t] = order_[best];
        }
        return true;
    }

    // Viterbi recursion over log-probabilities, using only the transitions within the tolerance. It computes the best
    // sum of log-probabilities of a path that ends in each tag, and the previous tag.
    void follow_ties(int64_t s, const Ties& ties) const {
        const int64_t n_tags = chain_.n_tags, begin = chain_.begins[s], length = chain_.lengths[s];
        const std::vector<int> place_of = places_in(order_);
        std::vector<int> tag_before(length * n_tags);
        const double* log_probs = ties.log_probs + begin * n_tags;
        std::vector<double> best_sums(log_probs, log_probs + n_tags), sums_before(n_tags);

        // First token
        const double* ahead = row_of(ahead_, begin);
        const double best_score = *std::max_element(ahead, ahead + n_tags);
        for (int64_t j = 0; j < n_tags; j++)
            if (ahead[place_of[j]] < best_score - ties.tolerance) best_sums[j] = -INFINITY;

        // All other tokens
        for (int64_t t = 1; t < length; t++) {
            sums_before.swap(best_sums);
            std::fill(best_sums.begin(), best_sums.end(), -INFINITY);
            int* from = &tag_before[t * n_tags];
            ahead = row_of(ahead_, begin + t);
            for (int64_t i = 0; i < n_tags; i++) {
                const double* onwards = transition_row(place_of[i]);
                const double least = row_of(gamma_, begin + t - 1)[place_of[i]] - ties.tolerance;
                for (int64_t j = 0; j < n_tags; j++)
                    if (sums_before[i] > best_sums[j] && onwards[place_of[j]] + ahead[place_of[j]] >= least) {
                        best_sums[j] = sums_before[i];
                        from[j] = static_cast<int>(i);
                    }
            }
            for (int64_t j = 0; j < n_tags; j++) best_sums[j] += ties.log_probs[(begin + t) * n_tags + j];
        }

        int64_t tag = std::max_element(best_sums.begin(), best_sums.end()) - best_sums.begin();
        for (int64_t t = length - 1;; tag = tag_before[t-- * n_tags + tag]) {
            ties.tags[begin + t] = tag;
            if (t == 0) break;
        }
    }

    // The recursion of gamma for a group, from the last token to the first. Sequences are sorted by length: the first
    // `running` sequences have a token t.
    void backward(const Group& group) {
        BackwardStep step;
        Buffer<double> products(ROWS * width_);
        int64_t last[ROWS] = {};
        const double* after[ROWS];
        for (int r = 0; r < group.size; r++) {
            const int64_t s = group.sequences[r];
            last[r] = chain_.lengths[s] - 1;
            max_.rows_.fetch_sequence(chain_, s, emissions_ + chain_.begins[s] * width_);
            const int64_t last_row = (chain_.past(s) - 1) * width_;
            step.emissions[r] = emissions_ + last_row;
            step.gamma[r] = gamma_ + last_row;
            step.ahead[r] = ahead_ + last_row;
            for (int k = 0; k < width_; k += LANES<double>) step(r, k, splat(0.0));
        }
        int running = 0;
        for (int64_t t = last[0]; t > 0; t--) {
            while (running < group.size && last[running] >= t) running++;
            for (int r = 0; r < running; r++) {
                after[r] = step.ahead[r];
                step.emissions[r] -= width_;
                step.gamma[r] -= width_;
                step.ahead[r] -= width_;
            }
            multiply<Maxima>(by_target_, after, running, products, step);
        }
    }

    // Finds the tag with the largest sum of `score` and both rows, and replaces the best deviation so far if the
    // deviation to this tag is better.
    void consider(int64_t token, double score, const double* one, const double* other, Deviation& best) const {
        const auto both = [=](int k) { return load(one + k) + load(other + k); };
        Vec<double> largest = both(0);
        for (int k = LANES<double>; k < width_; k += LANES<double>) largest = larger<double>(both(k), largest);
        const double total = score + largest_lane<double>(largest);
        if (total > best.score) best = {total, token, max_.first_largest(both)};
    }

    // Returns the best tag at token t after a tag. `previous` returns the best tag at token t before a tag.
    int next(int tag, int64_t t) const {
        const double *onwards = transition_row(tag), *ahead = row_of(ahead_, t);
        return max_.first_largest([=](int k) { return load(onwards + k) + load(ahead + k); });
    }

    int previous(int tag, int64_t t) const { return max_.tag_before(tag, delta_, t); }

    const double* row_of(const Buffer<double>& rows, int64_t token) const { return rows + token * width_; }
    const double* delta_row(int64_t token) const { return row_of(delta_, token); }
    const double* transition_row(int place) const {
        return max_.transitions_ + static_cast<std::size_t>(place) * width_;
    }

    const MaxProduct max_;
    const Chain& chain_;
    const std::vector<int>& order_;
    const int width_;
    const Matrix<double> by_target_;
    Buffer<double> emissions_, gamma_, ahead_, delta_;
};

// The score of the best path with each segment, and of the best path without it.
//
// A path shares a prefix with the segment, up to a token t with a different tag or up to the token after the segment.
// It contains the segment if its tag after the segment is allowed, or if the sequence ends with the segment. The best
// path that deviates at t to tag k has the score
//
//     prefix_{t-1} + M[y_{t-1}, k] + E_t[k] + gamma_t[k],
//     prefix_t = delta_b[y_b] + sum_{b < u <= t} (M[y_{u-1}, y_u] + E_u[y_u])
//
// or, at the first token b, delta_b[k] + gamma_b[k].
class MaxMessages::SegmentMaxScores final : public Query {
  public:
    // scores: The scores with each segment, followed by the scores without it. Shape: (2, S)
    SegmentMaxScores(const MaxMessages& owner, const Segments& segments, double* scores)
        : owner_(owner), chain_(owner.chain_), segments_(segments, owner.chain_, owner.order_),
          with_(segments.n_segments), without_(segments.n_segments) {
        Buffer<double> row(owner.width_);
        for (int64_t s = 0; s < chain_.n_sequences; s++)
            for (int64_t i : segments_[s]) {
                find_deviations(s, i, row);
                scores[i] = with_[i].score;
                scores[segments.n_segments + i] = without_[i].score;
            }
    }

    void backprop(const Queries&, const Derivatives& d_values, const Gradient& out) const override {
        const double* d_scores = d_values[0];
        const bool wide = chain_.emissions.wide;
        const Floats d_emissions = {out.emissions, wide}, d_transitions = {out.transitions, wide};
        d_emissions.clear(0, chain_.n_tokens * chain_.n_tags);
        d_transitions.clear(0, static_cast<int64_t>(chain_.n_tags) * chain_.n_tags);
        for (int64_t s = 0; s < chain_.n_sequences; s++) {
            std::vector<double> left(chain_.lengths[s] * chain_.n_tags), right(left.size());
            for (int64_t i : segments_[s]) {
                add_prefix(s, i, with_[i], d_scores[i], left, right, d_emissions, d_transitions);
                add_prefix(s, i, without_[i], d_scores[segments_.size() + i], left, right, d_emissions, d_transitions);
            }
            propagate_left(s, left, d_emissions, d_transitions);
            propagate_right(s, right, d_emissions, d_transitions);
        }
        collect_ends(chain_, d_emissions, out);
    }

  private:
    // Returns the score of a transition to token t, including the emission.
    double step(int64_t t, int from, int to) const {
        return owner_.transition_row(from)[to] + owner_.row_of(owner_.emissions_, t)[to];
    }

    // Finds the best paths with and without segment i, considering deviations at each of its tokens and at the token
    // after it. `row` is scratch memory.
    void find_deviations(int64_t s, int64_t i, double* row) {
        const int64_t begin = segments_.begin(i), end = segments_.end(i);
        double prefix = 0;
        for (int64_t t = begin; t < end; t++) {
            const int tag = segments_.tag(i, t);
            const bool opens = t == begin;
            const int before = opens ? 0 : segments_.tag(i, t - 1);
            std::copy_n(opens ? owner_.delta_row(t) : owner_.transition_row(before), owner_.width_, row);
            row[tag] = -INFINITY;
            owner_.consider(t, prefix, row, owner_.row_of(opens ? owner_.gamma_ : owner_.ahead_, t), without_[i]);
            prefix += opens ? owner_.delta_row(t)[tag] : step(t, before, tag);
        }
        if (end == chain_.past(s)) {
            with_[i] = {prefix, end, 0};
            return;
        }
        for (const bool follows : {true, false}) {
            std::copy_n(owner_.transition_row(segments_.tag(i, end - 1)), owner_.width_, row);
            for (int k = 0; k < chain_.n_tags; k++)
                if (segments_.may_follow(i, k) != follows) row[k] = -INFINITY;
            owner_.consider(end, prefix, row, owner_.row_of(owner_.ahead_, end), follows ? with_[i] : without_[i]);
        }
    }

    // Counts the transitions of a path from the first token of a segment to its deviation, and adds mass to the tags at
    // both ends, (T, K), which is propagated later.
    void add_prefix(int64_t s, int64_t i, const Deviation& deviation, double mass, std::vector<double>& left,
                    std::vector<double>& right, const Floats& d_emissions, const Floats& d_transitions) const {
        if (!std::isfinite(deviation.score) || mass == 0) return;
        const int64_t begin = segments_.begin(i);
        int before = deviation.token == begin ? deviation.tag : segments_.tag(i, begin);
        left[place(s, begin, before)] += mass;
        for (int64_t t = begin + 1; t <= deviation.token && t < chain_.past(s); t++) {
            const int tag = t == deviation.token ? deviation.tag : segments_.tag(i, t);
            count(t, before, tag, mass, d_emissions, d_transitions);
            before = tag;
        }
        if (deviation.token < chain_.past(s)) right[place(s, deviation.token, deviation.tag)] += mass;
    }

    // Adds mass to the gradient of the tag at token t, and of the transition to it.
    void count(int64_t t, int before, int tag, double mass, const Floats& d_emissions,
               const Floats& d_transitions) const {
        add(t, tag, mass, d_emissions);
        add(owner_.order_[before], tag, mass, d_transitions);
    }

    // Adds mass to the entry of a tag, given by its position, in a row of derivatives.
    void add(int64_t row, int tag, double mass, const Floats& to) const {
        to.add(row * chain_.n_tags + owner_.order_[tag], mass);
    }

    // Returns the index of a token and tag in the mass of a sequence, (T, K).
    int64_t place(int64_t s, int64_t token, int tag) const { return (token - chain_.begins[s]) * chain_.n_tags + tag; }

    // Propagates mass leftwards: each tag passes its mass to the best previous tag.
    void propagate_left(int64_t s, std::vector<double>& mass, const Floats& d_emissions,
                        const Floats& d_transitions) const {
        for (int64_t t = chain_.past(s) - 1; t >= chain_.begins[s]; t--)
            for (int tag = 0; tag < chain_.n_tags; tag++) {
                const double moved = mass[place(s, t, tag)];
                if (moved == 0) continue;
                add(t, tag, moved, d_emissions);
                if (t == chain_.begins[s]) continue;
                const int before = owner_.previous(tag, t - 1);
                add(owner_.order_[before], tag, moved, d_transitions);
                mass[place(s, t - 1, before)] += moved;
            }
    }

    // Propagates mass rightwards: each tag passes its mass to the best next tag.
    void propagate_right(int64_t s, std::vector<double>& mass, const Floats& d_emissions,
                         const Floats& d_transitions) const {
        for (int64_t t = chain_.begins[s]; t + 1 < chain_.past(s); t++)
            for (int tag = 0; tag < chain_.n_tags; tag++) {
                const double moved = mass[place(s, t, tag)];
                if (moved == 0) continue;
                const int after = owner_.next(tag, t + 1);
                count(t + 1, tag, after, moved, d_emissions, d_transitions);
                mass[place(s, t + 1, after)] += moved;
            }
    }

    const MaxMessages& owner_;
    const Chain& chain_;
    const SegmentsOfSequences segments_;
    std::vector<Deviation> with_, without_;
};

inline std::unique_ptr<Query> MaxMessages::query(const std::string& name, const Arguments& arguments,
                                                 double* values) const {
    if (name == "segment_max_scores") return std::make_unique<SegmentMaxScores>(*this, arguments.segments, values);
    if (name == "max_marginals") {
        max_marginals(values);
        return nullptr;
    }
    if (name == "best_of_tied") {
        best_of_tied(arguments.ties);
        return nullptr;
    }
    throw std::invalid_argument("query: expected a name of MaxMessages::query, got " + name);
}
