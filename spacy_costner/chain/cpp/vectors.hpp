// The vectors of an instruction set, with a width of VECTOR_BYTES, or plain numbers if it is 0.

#if VECTOR_BYTES
template <class Real>
struct Simd {
    typedef Real Vec __attribute__((vector_size(VECTOR_BYTES)));
    typedef Vec Aligned __attribute__((may_alias));
    typedef Vec Anywhere __attribute__((may_alias, aligned(alignof(Real))));
    static constexpr int lanes = VECTOR_BYTES / sizeof(Real);
};
#else
template <class Real>
struct Simd {
    typedef Real Vec, Aligned, Anywhere;
    static constexpr int lanes = 1;
};
#endif

template <>
struct Simd<Extended> {
    typedef Extended Vec, Aligned, Anywhere;
    static constexpr int lanes = 1;
};

template <class Real>
using Vec = typename Simd<Real>::Vec;

template <class Real>
constexpr int LANES = Simd<Real>::lanes;

template <class Real>
INLINE Vec<Real> load(const Real* from) {
    return *reinterpret_cast<const typename Simd<Real>::Aligned*>(from);
}

template <class Real>
INLINE void store(Real* to, Vec<Real> x) {
    *reinterpret_cast<typename Simd<Real>::Aligned*>(to) = x;
}

template <class Real>
INLINE Vec<Real> load_anywhere(const Real* from) {
    return *reinterpret_cast<const typename Simd<Real>::Anywhere*>(from);
}

template <class Real>
INLINE void store_anywhere(Real* to, Vec<Real> x) {
    *reinterpret_cast<typename Simd<Real>::Anywhere*>(to) = x;
}

template <class Real>
INLINE Vec<Real> splat(Real x) { return x - Vec<Real>{}; }

template <class Real>
INLINE Vec<Real> larger(Vec<Real> a, Vec<Real> b) { return a > b ? a : b; }

template <class Real>
INLINE Vec<Real> smaller(Vec<Real> a, Vec<Real> b) { return a < b ? a : b; }

// Swaps elements that are `WIDTH` lanes apart. A few such steps are sufficient to fill all lanes with the fold of all
// elements.
#if VECTOR_BYTES
template <int WIDTH, class Real, int... LANE>
INLINE Vec<Real> swap_lanes(Vec<Real> x, std::integer_sequence<int, LANE...>) {
#ifdef __clang__
    return __builtin_shufflevector(x, x, (LANE ^ WIDTH)...);
#else
    typedef decltype(x < x) Mask;
    return __builtin_shuffle(x, Mask{(LANE ^ WIDTH)...});
#endif
}

template <class Real, int WIDTH = LANES<Real> / 2, class Fold>
INLINE Vec<Real> fold_lanes(Vec<Real> x, Fold fold) {
    if constexpr (WIDTH > 0) {
        const auto lanes = std::make_integer_sequence<int, LANES<Real>>();
        x = fold(x, swap_lanes<WIDTH, Real>(x, lanes));
        if constexpr (WIDTH > 1) return fold_lanes<Real, WIDTH / 2>(x, fold);
    }
    return x;
}

template <class Real>
INLINE Real first_lane(Vec<Real> x) {
    if constexpr (LANES<Real> == 1)
        return x;
    else
        return x[0];
}
#else
template <class Real, class Fold>
INLINE Real fold_lanes(Real x, Fold) { return x; }

template <class Real>
INLINE Real first_lane(Real x) { return x; }
#endif

template <class Real>
INLINE Vec<Real> sum(Vec<Real> a, Vec<Real> b) { return a + b; }

template <class Real>
INLINE Real sum_lanes(Vec<Real> x) { return first_lane<Real>(fold_lanes<Real>(x, sum<Real>)); }

template <class Real>
INLINE Real largest_lane(Vec<Real> x) {
    return first_lane<Real>(fold_lanes<Real>(x, larger<Real>));
}

template <class Real>
INLINE Real smallest_lane(Vec<Real> x) {
    return first_lane<Real>(fold_lanes<Real>(x, smaller<Real>));
}

// Adds a row of `width` numbers, multiplied by `scale`, to another row.
template <class Real>
INLINE void add_row(const Real* from, Real scale, int width, Real* to) {
    const Vec<Real> factor = splat(scale);
    for (int k = 0; k < width; k += LANES<Real>) store(to + k, load(to + k) + load(from + k) * factor);
}

template <class Real>
INLINE Real dot(const Real* one, const Real* other, int width) {
    Vec<Real> total = splat(Real(0));
    for (int k = 0; k < width; k += LANES<Real>) total += load(one + k) * load(other + k);
    return sum_lanes<Real>(total);
}

// exp(x) for x <= 0, accurate to the second last bit. It is exactly 0 below -87. Positive values and NaN are returned
// unchanged.
//
//     exp(x) = 2^n exp(r),  n = round(x / log 2),  r = x - n log 2
//
// Adding and subtracting 1.5 * 2^23 rounds to an integer, which is stored in the lowest bits and shifted into the
// exponent from there. The polynomial is the one in Cephes' expf (Moshier, 1992).
#if VECTOR_BYTES
INLINE Vec<float> exp_of_negative(Vec<float> x) {
    typedef unsigned Bits __attribute__((vector_size(VECTOR_BYTES)));
    const Vec<float> rounder = splat(12582912.0f), lowest = splat(-87.0f);
    const Vec<float> t = larger<float>(x, lowest) * 1.44269504f + rounder;
    const Vec<float> n = t - rounder;
    const Vec<float> r = larger<float>(x, lowest) - n * 0.693359375f + n * 2.12194440e-4f;
    Vec<float> p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const Vec<float> y = (Vec<float>)((Bits)p + ((Bits)t << 23));
    const Vec<float> in_range = x < lowest ? splat(0.0f) : y;
    return x <= splat(0.0f) ? in_range : x;
}

INLINE Vec<double> exp_of_negative(Vec<double> x) {
    for (int i = 0; i < LANES<double>; i++) x[i] = x[i] <= 0 ? ::exp(x[i]) : x[i];
    return x;
}
#else
template <class Real>
INLINE Real exp_of_negative(Real x) { return x <= 0 ? ::exp(x) : x; }
#endif
