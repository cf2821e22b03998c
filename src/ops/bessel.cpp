// Bessel functions J0, J1, Y0, Y1, the spherical j0, and Airy's Ai: they oscillate.
#include <limits>
#include <numbers>

#include "ops/approximation.h"

namespace tpupilot::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Rational approximations of the Cephes Math Library (S. L. Moshier: j0.c, j1.c, airy.c). R and Y hold up to 5, P and Q
// give the modulus and phase beyond it.
constexpr double kJ0PP[] = {0.0007969367292973471,
                            0.08283523921074408,
                            1.239533716464143,
                            5.447250030587687,
                            8.74716500199817,
                            5.303240382353949,
                            1.0};
constexpr double kJ0PQ[] = {0.0009244088105588637,
                            0.08562884743544745,
                            1.2535274390105895,
                            5.470977403304171,
                            8.761908832370695,
                            5.306052882353947,
                            1.0};
constexpr double kJ0QP[] = {-0.011366383889846916, -1.2825271867050931, -19.553954425773597, -93.20601521237683,
                            -177.68116798048806,   -147.07750515495118, -51.41053267665993,  -6.050143506007285};
constexpr double kJ0QQ[] = {64.3178256118178,  856.4300259769806,  3882.4018360540163, 7240.467741956525,
                            5930.727011873169, 2062.0933166032783, 242.0057402402914};
constexpr double kJ0RP[] = {-4794432209.782018, 1956174919465.5657, -249248344360967.72, 9708622510473064.0};
constexpr double kJ0RQ[] = {499.563147152651,  173785.4016763747,  48440965.83399621,      11185553704.535683,
                            2112775201154.892, 310518229857422.56, 3.1812195594320496e+16, 1.7108629408104315e+18};
constexpr double kJ1PP[] = {0.0007621256162081731,
                            0.07313970569409176,
                            1.1271960812968493,
                            5.112079511468076,
                            8.424045901417724,
                            5.214515986823615,
                            1.0};
constexpr double kJ1PQ[] = {0.0005713231280725487,
                            0.06884559087544954,
                            1.105142326340617,
                            5.073863861286015,
                            8.399855543276042,
                            5.209828486823619,
                            1.0};
constexpr double kJ1QP[] = {0.05108625947501766, 4.982138729512334, 75.82382841325453,  366.7796093601508,
                            710.8563049989261,   597.4896124006136, 211.68875710057213, 25.207020585802372};
constexpr double kJ1QQ[] = {74.23732770356752, 1056.4488603826283, 4986.410583376536, 9562.318924047562,
                            7997.041604473507, 2826.1927851763908, 336.0936078106983};
constexpr double kJ1RP[] = {-899971225.7055594, 452228297998.19403, -72749424522181.83, 3682957328638529.0};
constexpr double kJ1RQ[] = {620.8364781180543, 256987.25675774884, 83514679.14319493,     22151159547.97925,
                            4749141220799.914, 784369607876235.9,  8.952223361846274e+16, 5.322786203326801e+18};
constexpr double kY0YP[] = {15592.436785523574, -14663929.59039716,  5435264770.518765,      -982136065717.9115,
                            87590639439536.7,   -3466283033847297.0, 4.4273326857256984e+16, -1.8495080043698668e+16};
constexpr double kY0YQ[] = {1041.2835366425984, 626107.330137135,   268919633.39381415,    86400248710.3935,
                            20297961275010.555, 3171577528429750.5, 2.5059625617265306e+17};
constexpr double kY1YP[] = {1263204747.9017804,  -647355876379.1603,    114509511541823.73,
                            -8127702555013251.0, 2.024394757135949e+17, -7.788771962659501e+17};
constexpr double kY1YQ[] = {594.3015923461282,  235564.09294306856, 73481194.44597217,     18760131610.870617,
                            3882312774962.3857, 620557727146953.8,  6.871410873553005e+16, 3.9727060811656064e+18};

// For Ai: A from 2.09 on, F and G (modulus and phase) below -2.09.
constexpr double kAiAN[] = {0.346538101525629,  12.007595273964581, 76.27960536152345,  168.08922493463058,
                            159.75639135016442, 70.53609068404442,  14.026469116338967, 1.0};
constexpr double kAiAD[] = {0.5675945326387702, 14.75625625848472, 84.51389701414746,  177.31808814540045,
                            164.2346928715297,  71.47784008255756, 14.095913560783403, 1.0};
constexpr double kAiAFN[] = {-0.1316963234183318,    -0.6264565444319123,    -0.6931580360369335,
                             -0.2797799815451191,    -0.04919001326095003,   -0.004062659235948854,
                             -0.0001592764962392621, -2.776491081552329e-06, -1.6778769848911465e-08};
constexpr double kAiAFD[] = {13.356042070655324,   32.682503279522464,    26.736704094149957,
                             9.187074029072596,    1.4752914677166642,    0.11568717379518804,
                             0.004402916416152112, 7.547203482874142e-05, 4.5185009297058035e-07};
constexpr double kAiAGN[] = {0.01973399320916857,  0.39110302961568827,   1.0657989759959559,   0.9391692298166502,
                             0.35146565610554764,  0.06338889196289255,   0.005858041130483885, 0.000282851600836737,
                             6.98793669997261e-06, 8.117892395543892e-08, 3.415517847659236e-10};
constexpr double kAiAGD[] = {9.30892908077442,       19.835292871831214,  15.564662893286462,   5.476860694229755,
                             0.9542936116189619,     0.08645808263523921, 0.004126565238242226, 0.00010125908511650914,
                             1.1716673321441352e-06, 4.9183457006293e-09};

Expr ratio(const Expr& x, Coefficients numerator, Coefficients denominator) {
  return horner(x, numerator) / horner(x, denominator);
}

// Beyond 5: sqrt(2 / (pi x)) (P cos(x - shift) - 5 / x Q sin(x - shift)), and for Y a quarter turn on.
struct Wave {
  Coefficients pp, pq, qp, qq;
  double shift;
};
constexpr Wave kWave0 = {kJ0PP, kJ0PQ, kJ0QP, kJ0QQ, std::numbers::pi / 4};
constexpr Wave kWave1 = {kJ1PP, kJ1PQ, kJ1QP, kJ1QQ, 3 * std::numbers::pi / 4};

Expr far(const Expr& x, const Wave& w, bool second_kind) {
  const Expr inverse = 5 / x, z = inverse * inverse;
  const Expr p = ratio(z, w.pp, w.pq), q = inverse * ratio(z, w.qp, w.qq);
  const Expr sine = apply("stablehlo.sine", x - w.shift), cosine = apply("stablehlo.cosine", x - w.shift);
  const Expr wave = second_kind ? p * sine + q * cosine : p * cosine - q * sine;
  return wave * (std::numbers::sqrt2 * std::numbers::inv_sqrtpi) / sqrt(x);
}

// From 0 to 5: with the first two zeros as factors.
Expr near_j0(const Expr& x) {
  const Expr z = x * x;
  const Expr value = (z - 5.78318596294678452118) * (z - 30.4712623436620863991) * ratio(z, kJ0RP, kJ0RQ);
  return where(x < 1e-5, 1 - z / 4, value);
}
Expr near_j1(const Expr& x) {
  const Expr z = x * x;
  return ratio(z, kJ1RP, kJ1RQ) * x * (z - 14.6819706421238932572) * (z - 49.2184563216946036703);
}

Expr j0(const Expr& signed_x) {
  const Expr x = abs(signed_x);
  return where(x <= 5, near_j0(x), far(x, kWave0, false));
}
Expr j1(const Expr& signed_x) {
  const Expr x = abs(signed_x);
  const Expr value = where(x <= 5, near_j1(x), far(x, kWave1, false));
  return where(signed_x < 0, -value, value);
}

// Y up to 5 is regular but for the logarithm: -infinity at 0, NaN below.
Expr of_second_kind(const Expr& x, const Expr& near, const Expr& far) {
  return where(equal(x, 0), -kInfinity, where(x < 0, kNan, where(x <= 5, near, far)));
}
constexpr double kTwoOverPi = 2 * std::numbers::inv_pi;
Expr y0(const Expr& x) {
  const Expr near = ratio(x * x, kY0YP, kY0YQ) + kTwoOverPi * log(x) * near_j0(x);
  return of_second_kind(x, near, far(x, kWave0, true));
}
Expr y1(const Expr& x) {
  const Expr near = x * ratio(x * x, kY1YP, kY1YQ) + kTwoOverPi * (near_j1(x) * log(x) - 1 / x);
  return of_second_kind(x, near, far(x, kWave1, true));
}

// sin(x) / x; near 0 its series up to x^12.
Expr spherical_j0(const Expr& x) {
  static constexpr double kSeries[] = {1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040,
                                       1.0 / 120,        -1.0 / 6,        1.0};
  const Expr value = where(abs(x) < 0.5, horner(x * x, kSeries), apply("stablehlo.sine", x) / x);
  return where(equal(abs(x), kInfinity), 0, value);
}

// The two power series of Ai around 0 in x^3: 1 / (2 3 5 6 ... (3k-1) 3k), or 3k (3k+1); 13 terms do for f64 at 2.09.
Expr airy_near_zero(const Expr& x) {
  constexpr int kTerms = 13;
  std::vector<double> even(kTerms + 1, 1), odd(kTerms + 1, 1);
  for (int k = 1; k <= kTerms; ++k) {
    even[kTerms - k] = even[kTerms - k + 1] / ((3 * k - 1) * (3 * k));
    odd[kTerms - k] = odd[kTerms - k + 1] / ((3 * k) * (3 * k + 1));
  }
  const Expr z = x * x * x;
  return 0.355028053887817239260 * horner(z, even) - 0.258819403792806798405 * (x * horner(z, odd));
}
Expr airy_ai(const Expr& x) {
  const Expr length = abs(x), root = sqrt(length), zeta = 2 * length * root / 3, inverse = 1 / zeta;
  const double scale = std::numbers::inv_sqrtpi;
  const Expr decay = scale * ratio(inverse, kAiAN, kAiAD) / (2 * sqrt(root) * exp(zeta));
  const Expr z = inverse * inverse, turn = zeta + std::numbers::pi / 4;
  const Expr modulus = 1 + z * ratio(z, kAiAFN, kAiAFD), phase = inverse * ratio(z, kAiAGN, kAiAGD);
  const Expr wave =
      scale / sqrt(root) * (apply("stablehlo.sine", turn) * modulus - apply("stablehlo.cosine", turn) * phase);
  const Expr value = where(x < -2.09, wave, where(x >= 2.09, where(x > 103.892, 0, decay), airy_near_zero(x)));
  return where(equal(length, kInfinity), kNan, value);
}

}  // namespace

std::vector<Row> bessel_rows() {
  return {
      function_of_one({"special_bessel_j0.out"}, j0),
      function_of_one({"special_bessel_j1.out"}, j1),
      function_of_one({"special_bessel_y0.out"}, y0),
      function_of_one({"special_bessel_y1.out"}, y1),
      function_of_one({"special_airy_ai.out"}, airy_ai),
      function_of_one({"special_spherical_bessel_j0.out"}, spherical_j0),
  };
}

}  // namespace tpupilot::ops
