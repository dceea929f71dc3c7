// Rows of emissions in and out of the kernels' order and padding.
// No include guard: each_isa.hpp includes it once for each instruction set.

template <class Real>
class Rows {
  public:
    explicit Rows(const Chain<Real>& chain)
        : order(order_tags(chain.transitions, chain.n_tags)),
          width(padded<Real>(chain.n_tags)),
          n_tags_(chain.n_tags),
          in_order_(is_sorted_order(order)),
          start_(width),
          end_(width) {
        fetch(chain.start, start_);
        fetch(chain.end, end_);
        std::fill(start_ + n_tags_, start_ + width, Real(0));
        std::fill(end_ + n_tags_, end_ + width, Real(0));
    }

    // Emissions of token t of a sequence with the start and end scores added to the first and
    // last; the padding is minus infinity.
    INLINE void fetch_folded(const Real* emissions, int64_t t, int64_t length, Real* to) const {
        fetch(emissions + t * n_tags_, to);
        if (t == 0) add(start_, to);
        if (t == length - 1) add(end_, to);
    }

    INLINE void fetch(const Real* from, Real* to) const {
        if (in_order_) {
            int k = 0;
            for (; k + LANES<Real> <= n_tags_; k += LANES<Real>) store(to + k, load_anywhere(from + k));
            for (; k < n_tags_; k++) to[k] = from[k];
        } else {
            for (int k = 0; k < n_tags_; k++) to[k] = from[order[k]];
        }
        for (int k = n_tags_; k < width; k++) to[k] = -std::numeric_limits<Real>::infinity();
    }

    INLINE void put(const Real* from, Real* to) const {
        if (in_order_) {
            int k = 0;
            for (; k + LANES<Real> <= n_tags_; k += LANES<Real>) store_anywhere(to + k, load(from + k));
            for (; k < n_tags_; k++) to[k] = from[k];
        } else {
            for (int k = 0; k < n_tags_; k++) to[order[k]] = from[k];
        }
    }

    const std::vector<int> order;
    const int width;

  private:
    INLINE void add(const Real* scores, Real* to) const {
        for (int k = 0; k < width; k += LANES<Real>) store(to + k, load(to + k) + load(scores + k));
    }

    const int n_tags_;
    const bool in_order_;
    Buffer<Real> start_, end_;
};
