// The probabilities of entities, computed token by token.
//
// An entity with label x begins with an opening tag of x, continues with transitions inside x, and ends after a closing
// tag that is followed by any other transition. On the scale of alpha,
//
//     a_b[k] = alpha_b[k]                                                     if k opens an entity of x
//     a_t[j] = c_{t-1} E_t[j] sum_{(i, j) inside x} a_{t-1}[i] M[i, j]
//
// sums over all paths with an entity that begins at b and contains t. With
//
//     leave_t[i] = c_t sum_{(i, j) not inside x} M[i, j] E_{t+1}[j] beta_{t+1}[j],    leave_T = beta_T
//
// the probability that the entity contains t, and the probability that t is its last token, are
//
//     reach(b, t) = sum_k a_t[k] beta_t[k]
//     p(b, t)     = sum_{k closes} a_t[k] leave_t[k]
//
// Whitespace can't be the last token of an entity. If an entity continues into whitespace, the probabilities p(b, t) of
// the whitespace are added to the probability of the last word.
//
// reach(b, t) never increases with t, and is at least p(b, t') for all t' >= t. The search for all entities above a
// given probability can therefore stop as soon as it is below this probability. Entities that share a token are
// mutually exclusive, so the sum of reach(b, t) at t is at most 1. The search takes at most N / floor steps in words,
// and the resulting entities have at most N / floor tokens in total.

// The tags of a label, by their positions in the order of the kernels.
struct LabelTags {
    std::vector<int> places;                  // the members below are indices into this
    std::vector<int> opening, closing;
    std::vector<std::pair<int, int>> inside;  // from, to
};

// Returns the tags of each label. order: The tag at each position.
inline std::vector<LabelTags> tags_by_label(const EntityTags& tags, const std::vector<int>& order) {
    const int64_t n_tags = order.size();
    std::vector<LabelTags> of_labels;
    for (int64_t place = 0; place < n_tags; place++) {
        const int64_t tag = order[place], label = tags.label_of[tag];
        if (label < 0) continue;
        if (label >= static_cast<int64_t>(of_labels.size())) of_labels.resize(label + 1);
        LabelTags& of_label = of_labels[label];
        const int number = static_cast<int>(of_label.places.size());
        if (tags.opening[tag]) of_label.opening.push_back(number);
        if (tags.closing[tag]) of_label.closing.push_back(number);
        of_label.places.push_back(static_cast<int>(place));
        for (int other = 0; other <= number; other++) {
            const int64_t other_tag = order[of_label.places[other]];
            if (tags.inside[tag * n_tags + other_tag]) of_label.inside.push_back({number, other});
            if (other != number && tags.inside[other_tag * n_tags + tag]) of_label.inside.push_back({other, number});
        }
    }
    return of_labels;
}

// The sums a_t over all paths with an entity of a given label that begins at a given token and contains token t.
template <class Real>
class EntityWalk {
  public:
    EntityWalk(const ForwardBackward<Real>& owner, const EntityTags& tags, const std::vector<LabelTags>& of_labels)
        : owner_(owner), tags_(tags), of_labels_(of_labels) {}

    // Starts with the entities of a label that begin at a token of sequence s.
    void begin(int64_t s, int64_t token, int64_t label) {
        token_ = token;
        past_ = owner_.chain.past(s);
        of_label_ = &of_labels_[label];
        sums_.assign(of_label_->places.size(), Wide<Real>(0));
        for (int k : of_label_->opening) sums_[k] = owner_.alpha_row(token)[of_label_->places[k]];
    }

    // Moves to the next token, which must be in the sequence.
    void advance() {
        const Wide<Real> factor = owner_.factor(token_++);
        const Real* emissions = owner_.emission_row(token_);
        next_.assign(sums_.size(), Wide<Real>(0));
        for (const auto& [from, to] : of_label_->inside) {
            const int place = of_label_->places[to];
            const Real transition = owner_.transition_row(of_label_->places[from])[place];
            next_[to] += factor * sums_[from] * transition * emissions[place];
        }
        sums_.swap(next_);
    }

    int64_t token() const { return token_; }
    bool is_last() const { return token_ + 1 == past_; }
    bool is_space(int64_t token) const { return tags_.is_space && tags_.is_space[token]; }

    // p(the entity contains the token)
    double reach() const {
        const Real* beta = owner_.beta_row(token_);
        Wide<Real> sum = 0;
        for (std::size_t k = 0; k < sums_.size(); k++) sum += sums_[k] * beta[of_label_->places[k]];
        return static_cast<double>(sum);
    }

    // p(the token is the last one of the entity)
    Wide<Real> over() const {
        Wide<Real> sum = 0;
        for (int k : of_label_->closing)
            if (sums_[k] > Wide<Real>(0)) sum += sums_[k] * leave(of_label_->places[k]);
        return sum;
    }

  private:
    // Returns leave_t[i] for a position. See above.
    Wide<Real> leave(int from) const {
        if (is_last()) return owner_.beta_row(token_)[from];
        const std::vector<int>& order = owner_.rows.order;
        const int n_tags = owner_.chain.n_tags;
        const uint8_t* inside = tags_.inside + static_cast<int64_t>(order[from]) * n_tags;
        const Real *transitions = owner_.transition_row(from), *emissions = owner_.emission_row(token_ + 1);
        const Real* beta = owner_.beta_row(token_ + 1);
        Wide<Real> sum = 0;
        for (int j = 0; j < n_tags; j++)
            if (!inside[order[j]]) sum += static_cast<Wide<Real>>(transitions[j]) * emissions[j] * beta[j];
        return owner_.factor(token_) * sum;
    }

    const ForwardBackward<Real>& owner_;
    const EntityTags& tags_;
    const std::vector<LabelTags>& of_labels_;
    const LabelTags* of_label_ = nullptr;
    int64_t token_ = 0, past_ = 0;
    std::vector<Wide<Real>> sums_, next_;
};

// The probabilities of given entities, or 0 for entities that cross sequences.
template <class Real>
class EntityProbs final : public QueryBase<Real> {
  public:
    EntityProbs(const ForwardBackward<Real>& owner, const EntityTags& tags, const Entities& entities, double* probs)
        : QueryBase<Real>(owner) {
        const std::vector<LabelTags> of_labels = tags_by_label(tags, owner.rows.order);
        const std::vector<int64_t>& begins = owner.chain.begins;
        std::vector<char> is_computed(owner.chain.n_sequences);
        this->for_sequences([&](int64_t s) { is_computed[s] = 1; });
        EntityWalk<Real> walk(owner, tags, of_labels);
        for (int64_t i = 0; i < entities.n_entities; i++) {
            const int64_t begin = entities.begin[i], end = entities.end[i], label = entities.label[i];
            const int64_t s = std::upper_bound(begins.begin(), begins.end(), begin) - begins.begin() - 1;
            const bool has_tags = 0 <= label && label < static_cast<int64_t>(of_labels.size());
            if (!is_computed[s] || end > owner.chain.past(s) || !has_tags) continue;
            walk.begin(s, begin, label);
            probs[i] = probability(walk, end);
        }
    }

  private:
    // Returns the probability of the entity that begins at the start of the walk and ends at a token, or in the
    // whitespace after it.
    static double probability(EntityWalk<Real>& walk, int64_t end) {
        while (walk.token() + 1 < end) walk.advance();
        Wide<Real> p = walk.over();
        while (!walk.is_last() && walk.is_space(walk.token() + 1)) {
            walk.advance();
            p += walk.over();
        }
        return std::min(static_cast<double>(p), 1.0);
    }
};

// All entities with at least a given probability.
template <class Real>
class LikelyEntities final : public QueryBase<Real> {
  public:
    LikelyEntities(const ForwardBackward<Real>& owner, const EntityTags& tags, const LikelySearch& search)
        : QueryBase<Real>(owner), search_(search), of_labels_(tags_by_label(tags, owner.rows.order)) {
        this->for_sequences([&](int64_t s) {
            EntityWalk<Real> walk(owner, tags, of_labels_);
            for (int64_t token = owner.chain.begins[s]; token < owner.chain.past(s); token++) find(s, token, walk);
        });
    }

  private:
    // Finds the entities that begin at a token, sorted by end and by descending probability.
    void find(int64_t s, int64_t begin, EntityWalk<Real>& walk) const {
        std::vector<LikelyEntity>& entities = (*search_.entities)[s];
        const std::size_t first = entities.size();
        for (std::size_t label = 0; label < of_labels_.size(); label++) {
            walk.begin(s, begin, label);
            find_ends(begin, label, walk, entities);
        }
        const auto is_before = [](const LikelyEntity& a, const LikelyEntity& b) {
            return a.end != b.end ? a.end < b.end : a.prob > b.prob;
        };
        if (entities.size() > first + 1) std::stable_sort(entities.begin() + first, entities.end(), is_before);
    }

    // Finds the entities that begin at a token, with all possible ends. The last token has to be a word. p is the sum
    // of its probability and the probabilities of the whitespace after it, up to the next word.
    void find_ends(int64_t begin, int64_t label, EntityWalk<Real>& walk, std::vector<LikelyEntity>& entities) const {
        const double min_reach = 0.999 * search_.floor;  // slightly lower, to allow for rounding errors
        int64_t end = begin;                             // the token after the last word, if any
        Wide<Real> p = 0;
        const auto add_if_likely = [&] {
            const double prob = std::min(static_cast<double>(p), 1.0);
            if (end > begin && prob >= search_.floor) entities.push_back({begin, end, label, prob});
        };
        for (;; walk.advance()) {
            if (!walk.is_space(walk.token())) {
                add_if_likely();
                if (!(walk.reach() >= min_reach)) return;
                end = walk.token() + 1;
                p = 0;
            }
            p += walk.over();
            if (walk.is_last()) return add_if_likely();
        }
    }

    const LikelySearch search_;
    const std::vector<LabelTags> of_labels_;
};
