// Functions of the normal distribution: its quantile, the logarithm of its integral, and the scaled erfc.
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/approximation.h"

namespace tpupilot::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Rational approximations of the Cephes Math Library (S. L. Moshier: ndtri.c).
constexpr double kNdtriP0[] = {-59.96335010141079, 98.00107541859997, -56.67628574690703, 13.931260938727968,
                               -1.2391658386738125};
constexpr double kNdtriQ0[] = {1.0,
                               1.9544885833814176,
                               4.676279128988815,
                               86.36024213908905,
                               -225.46268785411937,
                               200.26021238006066,
                               -82.03722561683334,
                               15.90562251262117,
                               -1.1833162112133};
constexpr double kNdtriP1[] = {4.0554489230596245,  31.525109459989388,   57.16281922464213,
                               44.08050738932008,   14.684956192885803,   2.1866330685079025,
                               -0.1402560791713545, -0.03504246268278482, -0.0008574567851546854};
constexpr double kNdtriQ1[] = {1.0,
                               15.779988325646675,
                               45.39076351288792,
                               41.3172038254672,
                               15.04253856929075,
                               2.504649462083094,
                               -0.14218292285478779,
                               -0.03808064076915783,
                               -0.0009332594808954574};
constexpr double kNdtriP2[] = {3.2377489177694603,     6.915228890689842,      3.9388102529247444,
                               1.3330346081580755,     0.20148538954917908,    0.012371663481782003,
                               0.00030158155350823543, 2.6580697468673755e-06, 6.239745391849833e-09};
constexpr double kNdtriQ2[] = {1.0,
                               6.02427039364742,
                               3.6798356385616087,
                               1.3770209948908132,
                               0.21623699359449663,
                               0.013420400608854318,
                               0.00032801446468212774,
                               2.8924786474538068e-06,
                               6.790194080099813e-09};

// Chebyshev coefficients of (1 + 2x) exp(x^2) erfc(x) in (x - 3.75) / (x + 3.75), x from 0 on: the form of M. M.
// Shepherd and J. G. Laframboise, Math. Comp. 36 (1981), 249. Computed with 40 digits.
constexpr double kErfcx[] = {
    5.011176251146234e-17,  7.358279698584135e-17,   -1.2514235266552742e-15, -1.8652193165711416e-15,
    3.347743608252844e-14,  3.25247721567429e-14,    -9.654704090129005e-13,  1.9455792756115014e-13,
    2.8687949328837192e-11, -6.318088421072039e-11,  -7.75440021705151e-10,   4.521959810377362e-09,
    1.0764999464812356e-08, -2.1886401049321882e-07, 7.740383066189592e-07,   4.139027986072106e-06,
    -6.916973302501298e-05, 0.0004907758365258077,   -0.002413163540417609,   0.009074997670705263,
    -0.026658668435305753,  0.059209939998191886,    -0.08424913336651792,    -0.0045900545806464785,
    2.3551578691348034};

Expr erfcx_of_positive(const Expr& x) {
  const Expr t = 1 - 7.5 / (x + 3.75);
  return chebyshev(2 * t, kErfcx) / (1 + 2 * x);
}
// By erfcx(-x) = 2 exp(x^2) - erfcx(x) below 0.
Expr erfcx(const Expr& x) {
  const Expr positive = erfcx_of_positive(abs(x));
  const Expr reflected = 2 * exp(x * x) - positive;
  return where(x >= 0, positive, where(x < -26.7, kInfinity, reflected));
}

Expr log_ndtr(const Expr& x) {
  const Expr t = x * (std::numbers::sqrt2 / 2);
  const Expr tail = log(erfcx_of_positive(abs(t)) * 0.5) - t * t;
  return where(x < -1, tail, log1p(apply("chlo.erfc", t) * -0.5));
}

// In the middle as a function of y - 1/2, elsewhere of sqrt(-2 log y) of the nearer tail.
Expr ndtri(const Expr& p) {
  constexpr double kTail = 0.13533528323661269189;  // exp(-2)
  const Expr upper = p > 1 - kTail, y = where(upper, 1 - p, p);
  const Expr centred = y - 0.5, square = centred * centred;
  const Expr middle = (centred + centred * (square * horner(square, kNdtriP0) / horner(square, kNdtriQ0))) *
                      std::sqrt(2 * std::numbers::pi);
  const Expr x = sqrt(-2 * log(y)), z = 1 / x;
  const Expr correction =
      where(x < 8, z * horner(z, kNdtriP1) / horner(z, kNdtriQ1), z * horner(z, kNdtriP2) / horner(z, kNdtriQ2));
  const Expr tail = x - log(x) / x - correction;
  const Expr value = where(y > kTail, middle, where(upper, tail, -tail));
  const Expr bounded = where(equal(p, 0), -kInfinity, where(equal(p, 1), kInfinity, value));
  return where((p < 0) | (p > 1), kNan, bounded);
}

}  // namespace

std::vector<Row> normal_rows() {
  return {
      function_of_one({"special_erfcx.out"}, erfcx),
      function_of_one({"special_log_ndtr.out"}, log_ndtr),
      function_of_one({"special_ndtri.out"}, ndtri),
  };
}

}  // namespace tpupilot::ops
