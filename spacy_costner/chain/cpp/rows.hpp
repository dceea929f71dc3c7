// Conversion of rows of scores to and from the order, padding and precision of the kernels.

template <class Real>
class Rows {
  public:
    explicit Rows(const Chain& chain)
        : width(padded<Real>(chain.n_tags)),
          order(order_tags(chain, width > 2 * PANEL * LANES<Real>)),
          n_tags_(chain.n_tags),
          in_order_(std::is_sorted(order.begin(), order.end())),
          start_(width),
          end_(width) {
        fetch(chain.start, 0, start_);
        fetch(chain.end, 0, end_);
        std::fill(start_ + n_tags_, start_ + width, Real(0));
        std::fill(end_ + n_tags_, end_ + width, Real(0));
    }

    // Reads the emissions of a token, including the start scores at the first token of its sequence and the end scores
    // at the last token. The padding is minus infinity.
    INLINE void fetch_token(const Chain& chain, int64_t s, int64_t token, Real* to) const {
        fetch(chain.emissions, token, to);
        if (token == chain.begins[s]) add_row<Real>(start_, 1, width, to);
        if (token + 1 == chain.past(s)) add_row<Real>(end_, 1, width, to);
    }

    void fetch_sequence(const Chain& chain, int64_t s, Real* to) const {
        for (int64_t t = chain.begins[s]; t < chain.past(s); t++, to += width) fetch_token(chain, s, t, to);
    }

    // Reads a row of scores, (n, K).
    INLINE void fetch(const Scores& scores, int64_t row, Real* to) const {
        if (scores.wide) fetch_numbers(scores.as<double>() + row * n_tags_, to);
        else fetch_numbers(scores.as<float>() + row * n_tags_, to);
    }

    // Writes a row of derivatives, (n, K).
    INLINE void put(const Real* from, const Floats& derivatives, int64_t row) const {
        if (derivatives.wide) put_numbers(from, derivatives.as<double>() + row * n_tags_);
        else put_numbers(from, derivatives.as<float>() + row * n_tags_);
    }

    const int width;
    const std::vector<int> order;  // order[p] is the tag at position p

  private:
    template <class Score>
    INLINE void fetch_numbers(const Score* from, Real* to) const {
        if (in_order_) {
            int k = 0;
            if constexpr (std::is_same_v<Score, Real>)
                for (; k + LANES<Real> <= n_tags_; k += LANES<Real>)
                    store(to + k, load_anywhere(from + k));
            for (; k < n_tags_; k++) to[k] = static_cast<Real>(from[k]);
        } else {
            for (int k = 0; k < n_tags_; k++) to[k] = static_cast<Real>(from[order[k]]);
        }
        for (int k = n_tags_; k < width; k++) to[k] = Real(-INFINITY);
    }

    template <class Score>
    INLINE void put_numbers(const Real* from, Score* to) const {
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

    const int n_tags_;
    const bool in_order_;
    Buffer<Real> start_, end_;
};
