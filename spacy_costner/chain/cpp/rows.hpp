// Rows of scores in and out of the kernels' order, padding and precision.
// No include guard: one_isa.hpp includes it once for each instruction set.

template <class Real>
class Rows {
  public:
    template <class Score>
    explicit Rows(const Chain<Score>& chain)
        : width(padded<Real>(chain.n_tags)),
          order(order_tags(chain.transitions, chain.n_tags, width > 2 * PANEL * LANES<Real>)),
          n_tags_(chain.n_tags),
          in_order_(std::is_sorted(order.begin(), order.end())),
          start_(width),
          end_(width) {
        fetch(chain.start, start_);
        fetch(chain.end, end_);
        std::fill(start_ + n_tags_, start_ + width, Real(0));
        std::fill(end_ + n_tags_, end_ + width, Real(0));
    }

    // The emissions of a sequence with the start and end scores added to the first and the last
    // row; all padding is minus infinity.
    template <class Score>
    INLINE void fetch_sequence(const Chain<Score>& chain, int64_t s, Real* to) const {
        const int64_t length = chain.lengths[s];
        const Score* from = chain.emissions + chain.begins[s] * n_tags_;
        for (int64_t t = 0; t < length; t++) fetch(from + t * n_tags_, to + t * width);
        add(start_, to);
        add(end_, to + (length - 1) * width);
    }

    template <class Score>
    INLINE void fetch(const Score* from, Real* to) const {
        if (in_order_) {
            int k = 0;
            if constexpr (std::is_same_v<Score, Real>)
                for (; k + LANES<Real> <= n_tags_; k += LANES<Real>)
                    store(to + k, load_anywhere(from + k));
            for (; k < n_tags_; k++) to[k] = from[k];
        } else {
            for (int k = 0; k < n_tags_; k++) to[k] = from[order[k]];
        }
        for (int k = n_tags_; k < width; k++) to[k] = Real(-INFINITY);
    }

    template <class Score>
    INLINE void put(const Real* from, Score* to) const {
        if (in_order_) {
            int k = 0;
            if constexpr (std::is_same_v<Score, Real>)
                for (; k + LANES<Real> <= n_tags_; k += LANES<Real>)
                    store_anywhere(to + k, load(from + k));
            for (; k < n_tags_; k++) to[k] = static_cast<Score>(from[k]);
        } else {
            for (int k = 0; k < n_tags_; k++) to[order[k]] = static_cast<Score>(from[k]);
        }
    }

    const int width;
    const std::vector<int> order;  // place p holds tag order[p]

  private:
    INLINE void add(const Real* scores, Real* to) const {
        for (int k = 0; k < width; k += LANES<Real>)
            store(to + k, load(to + k) + load(scores + k));
    }

    const int n_tags_;
    const bool in_order_;
    Buffer<Real> start_, end_;
};
