// Numbers that neither underflow nor overflow. Sequences whose scaled messages underflow both as floats and as doubles
// are recomputed with these numbers, using the same code.
#pragma once

#include <cmath>
#include <limits>

namespace costner {

// mantissa * 2^(256 exponent), with |mantissa| between 2^-128 and 2^128. The exponent of 0 is -infinity. Additions
// rarely have to shift a mantissa, and don't need logarithms.
struct Extended {
    double mantissa, exponent;

    Extended() : mantissa(0), exponent(-INFINITY) {}
    Extended(double x) : mantissa(x), exponent(0) {
        if (std::fabs(x) >= 0x1p-128 && std::fabs(x) < 0x1p128) return;
        if (!std::isfinite(x)) exponent = INFINITY;
        while (std::isfinite(mantissa) && std::fabs(mantissa) >= 0x1p128) move(0x1p-256, 1);
        while (mantissa != 0 && std::fabs(mantissa) < 0x1p-128) move(0x1p256, -1);
        if (mantissa == 0) exponent = -INFINITY;
    }
    explicit operator double() const {
        if (exponent == 0) return mantissa;
        const double places = std::fmin(std::fmax(exponent, -8), 8);
        return std::ldexp(mantissa, static_cast<int>(256 * places));
    }
    explicit operator float() const { return static_cast<float>(static_cast<double>(*this)); }

    void move(double factor, double by) {
        mantissa *= factor;
        exponent += by;
    }
};

// Normalizes a result whose mantissa is out of bounds by at most one step.
inline Extended settled(double mantissa, double exponent) {
    Extended x;
    const double size = std::fabs(mantissa);
    x.mantissa = size >= 0x1p128 ? mantissa * 0x1p-256 : size < 0x1p-128 ? mantissa * 0x1p256 : mantissa;
    x.exponent = size >= 0x1p128 ? exponent + 1 : size < 0x1p-128 ? exponent - 1 : exponent;
    if (mantissa == 0) x.exponent = -INFINITY;
    return x;
}

inline Extended operator*(Extended a, Extended b) {
    return settled(a.mantissa * b.mantissa, a.exponent + b.exponent);
}
inline Extended operator/(Extended a, Extended b) {
    return settled(a.mantissa / b.mantissa, a.exponent - b.exponent);
}
inline Extended operator+(Extended a, Extended b) {
    if (a.exponent == b.exponent) return settled(a.mantissa + b.mantissa, a.exponent);
    if (a.exponent < b.exponent) return b + a;
    if (a.exponent - b.exponent > 1) return a;
    return settled(a.mantissa + b.mantissa * 0x1p-256, a.exponent);
}
inline Extended operator-(Extended a) {
    a.mantissa = -a.mantissa;
    return a;
}
inline Extended operator-(Extended a, Extended b) { return a + -b; }
inline Extended& operator+=(Extended& a, Extended b) { return a = a + b; }
inline Extended& operator*=(Extended& a, Extended b) { return a = a * b; }
inline Extended& operator/=(Extended& a, Extended b) { return a = a / b; }

inline bool operator<(Extended a, Extended b) { return (a - b).mantissa < 0; }
inline bool operator>(Extended a, Extended b) { return b < a; }
inline bool operator<=(Extended a, Extended b) { return (a - b).mantissa <= 0; }
inline bool operator>=(Extended a, Extended b) { return b <= a; }
inline bool operator==(Extended a, Extended b) {
    return a.mantissa == b.mantissa && a.exponent == b.exponent;
}
inline bool operator!=(Extended a, Extended b) { return !(a == b); }

constexpr double LOG_OF_A_STEP = 256 * 0.693147180559945309417232;

inline double log(Extended x) {
    if (x.mantissa == 0) return -INFINITY;
    return std::log(x.mantissa) + x.exponent * LOG_OF_A_STEP;
}

inline bool isfinite(Extended x) { return std::isfinite(x.mantissa); }

// exp(x) for x <= 0. Positive values and NaN are returned unchanged.
inline Extended exp_of_negative(Extended score) {
    const double x = static_cast<double>(score);
    if (!(x <= 0)) return score;
    if (x == -INFINITY) return 0.0;
    const double exponent = std::nearbyint(x / LOG_OF_A_STEP);
    const double rest = x - exponent * LOG_OF_A_STEP;
    return settled(std::fabs(rest) < LOG_OF_A_STEP ? std::exp(rest) : 1.0, exponent);
}

// Smaller entries may have lost precision.
template <class Real>
constexpr Real SMALLEST = Real(1e-30);
template <>
inline constexpr double SMALLEST<double> = 1e-280;
template <>
inline const Extended SMALLEST<Extended> = settled(1.0, -1e300);

// The wider type, for sums that need its range and for sequences that underflow in Real.
template <class Real>
struct WideOf {
    typedef Extended type;
};
template <>
struct WideOf<float> {
    typedef double type;
};
template <class Real>
using Wide = typename WideOf<Real>::type;

}  // namespace costner
