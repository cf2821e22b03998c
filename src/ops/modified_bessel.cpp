// Modified Bessel functions I0, I1, K0, K1, plain and scaled by an exponential.
#include <limits>
#include <numbers>

#include "ops/approximation.h"

namespace tpupilot::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Chebyshev coefficients of the Cephes Math Library (S. L. Moshier: i0.c, i1.c, k0.c, k1.c). For I: up to 8 in x / 2 -
// 2, beyond it in 32 / x - 2; for K: up to 2 in x^2 - 2, beyond it in 8 / x - 2.
constexpr double kI0Small[] = {
    -4.4153416464793395e-18, 3.3307945188222384e-17, -2.431279846547955e-16, 1.715391285555133e-15,
    -1.1685332877993451e-14, 7.676185498604936e-14,  -4.856446783111929e-13, 2.95505266312964e-12,
    -1.726826291441556e-11,  9.675809035373237e-11,  -5.189795601635263e-10, 2.6598237246823866e-09,
    -1.300025009986248e-08,  6.046995022541919e-08,  -2.670793853940612e-07, 1.1173875391201037e-06,
    -4.4167383584587505e-06, 1.6448448070728896e-05, -5.754195010082104e-05, 0.00018850288509584165,
    -0.0005763755745385824,  0.0016394756169413357,  -0.004324309995050576,  0.010546460394594998,
    -0.02373741480589947,    0.04930528423967071,    -0.09490109704804764,   0.17162090152220877,
    -0.3046826723431984,     0.6767952744094761};
constexpr double kI0Large[] = {
    -7.233180487874754e-18,  -4.830504485944182e-18,  4.46562142029676e-17,    3.461222867697461e-17,
    -2.8276239805165836e-16, -3.425485619677219e-16,  1.7725601330565263e-15,  3.8116806693526224e-15,
    -9.554846698828307e-15,  -4.150569347287222e-14,  1.54008621752141e-14,    3.8527783827421426e-13,
    7.180124451383666e-13,   -1.7941785315068062e-12, -1.3215811840447713e-11, -3.1499165279632416e-11,
    1.1889147107846439e-11,  4.94060238822497e-10,    3.3962320257083865e-09,  2.266668990498178e-08,
    2.0489185894690638e-07,  2.8913705208347567e-06,  6.889758346916825e-05,   0.0033691164782556943,
    0.8044904110141088};
constexpr double kI1Small[] = {
    2.7779141127610464e-18, -2.111421214358166e-17,  1.5536319577362005e-16, -1.1055969477353862e-15,
    7.600684294735408e-15,  -5.042185504727912e-14,  3.223793365945575e-13,  -1.9839743977649436e-12,
    1.1736186298890901e-11, -6.663489723502027e-11,  3.625590281552117e-10,  -1.8872497517228294e-09,
    9.381537386495773e-09,  -4.445059128796328e-08,  2.0032947535521353e-07, -8.568720264695455e-07,
    3.4702513081376785e-06, -1.3273163656039436e-05, 4.781565107550054e-05,  -0.00016176081582589674,
    0.0005122859561685758,  -0.0015135724506312532,  0.004156422944312888,   -0.010564084894626197,
    0.024726449030626516,   -0.05294598120809499,    0.1026436586898471,     -0.17641651835783406,
    0.25258718644363365};
constexpr double kI1Large[] = {
    7.517296310842105e-18,   4.414348323071708e-18,  -4.6503053684893586e-17, -3.209525921993424e-17,
    2.96262899764595e-16,    3.3082023109209285e-16, -1.8803547755107825e-15, -3.8144030724370075e-15,
    1.0420276984128802e-14,  4.272440016711951e-14,  -2.1015418427726643e-14, -4.0835511110921974e-13,
    -7.198551776245908e-13,  2.0356285441470896e-12, 1.4125807436613782e-11,  3.2526035830154884e-11,
    -1.8974958123505413e-11, -5.589743462196584e-10, -3.835380385964237e-09,  -2.6314688468895196e-08,
    -2.512236237870209e-07,  -3.882564808877691e-06, -0.00011058893876262371, -0.009761097491361469,
    0.7785762350182801};
constexpr double kK0Small[] = {
    1.374465435613523e-16, 4.25981614279661e-14, 1.0349695257633842e-11, 1.904516377220209e-09, 2.5347910790261494e-07,
    2.286212103119452e-05, 0.001264615411446926, 0.0359799365153615,     0.3442898999246285,    -0.5353273932339028};
constexpr double kK0Large[] = {
    5.300433772686263e-18,  -1.6475804301524212e-17, 5.2103915050390274e-17, -1.678231096805412e-16,
    5.512055978524319e-16,  -1.848593377343779e-15,  6.3400764774050706e-15, -2.2275133269916698e-14,
    8.032890775363575e-14,  -2.9800969231727303e-13, 1.140340588208475e-12,  -4.514597883373944e-12,
    1.8559491149547177e-11, -7.957489244477107e-11,  3.577397281400301e-10,  -1.69753450938906e-09,
    8.574034017414225e-09,  -4.660489897687948e-08,  2.766813639445015e-07,  -1.8317555227191195e-06,
    1.39498137188765e-05,   -0.00012849549581627802, 0.0015698838857300533,  -0.0314481013119645,
    2.4403030820659555};
constexpr double kK1Small[] = {-7.023863479386288e-18,  -2.427449850519366e-15, -6.666901694199329e-13,
                               -1.4114883926335278e-10, -2.213387630734726e-08, -2.4334061415659684e-06,
                               -0.0001730288957513052,  -0.006975723859639864,  -0.12261118082265715,
                               -0.3531559607765449,     1.5253002273389478};
constexpr double kK1Large[] = {
    -5.756744483665017e-18,  1.7940508731475592e-17, -5.689462558442859e-17,  1.838093544366639e-16,
    -6.057047248373319e-16,  2.038703165624334e-15,  -7.019837090418314e-15,  2.4771544244813043e-14,
    -8.976705182324994e-14,  3.3484196660784293e-13, -1.2891739609510289e-12, 5.13963967348173e-12,
    -2.1299678384275683e-11, 9.218315187605006e-11,  -4.1903547593418965e-10, 2.015049755197033e-09,
    -1.0345762465678097e-08, 5.7410841254500495e-08, -3.5019606030878126e-07, 2.406484947837217e-06,
    -1.936197974166083e-05,  0.00019521551847135162, -0.002857816859622779,   0.10392373657681724,
    2.7206261904844427};

struct Tables {
  Coefficients small, large;
};
// `odd`: for the functions of order 1; their first table of I gives I1 / x.
Tables tables_of_i(bool odd) { return odd ? Tables{kI1Small, kI1Large} : Tables{kI0Small, kI0Large}; }
Tables tables_of_k(bool odd) { return odd ? Tables{kK1Small, kK1Large} : Tables{kK0Small, kK0Large}; }

// exp(-|x|) I(x).
Expr scaled_i(const Expr& signed_x, bool odd) {
  const Expr x = abs(signed_x);
  const auto [small, large] = tables_of_i(odd);
  const Expr near = chebyshev(x / 2 - 2, small);
  const Expr far = chebyshev(32 / x - 2, large) / sqrt(x);
  const Expr value = where(x <= 8, odd ? near * x : near, far);
  return odd ? where(signed_x < 0, -value, value) : value;
}
Expr i0e(const Expr& x) { return scaled_i(x, false); }
Expr i1e(const Expr& x) { return scaled_i(x, true); }

// The exponential comes first where ATen has it first: it overflows before the function does, and infinity / infinity
// is NaN.
Expr plain_i(const Expr& signed_x, bool odd) {
  const Expr x = abs(signed_x), growth = exp(x);
  const auto [small, large] = tables_of_i(odd);
  const Expr near = chebyshev(x / 2 - 2, small);
  const Expr far = growth * chebyshev(32 / x - 2, large) / sqrt(x);
  const Expr value = where(x <= 8, growth * (odd ? x * near : near), far);
  return odd ? where(signed_x < 0, -value, value) : value;
}
Expr i0(const Expr& x) { return plain_i(x, false); }
Expr i1(const Expr& x) { return plain_i(x, true); }

// K from 0 on: infinite at 0, NaN below. Up to 2 it has the logarithm's pole beside I, which is tame there.
Expr k(const Expr& x, bool odd, bool scaled) {
  const auto [small, large] = tables_of_k(odd);
  const Expr smooth = chebyshev(x * x - 2, small);
  const Expr near_i = exp(x) * chebyshev(x / 2 - 2, tables_of_i(odd).small);
  const Expr logarithm = log(x * 0.5);
  const Expr near = odd ? logarithm * (near_i * x) + smooth / x : smooth - logarithm * near_i;
  const Expr far = chebyshev(8 / x - 2, large) / sqrt(x);
  const Expr value = where(x <= 2, scaled ? near * exp(x) : near, scaled ? far : exp(-x) * far);
  return where(equal(x, 0), kInfinity, where(x < 0, kNan, value));
}
Expr k0(const Expr& x) { return k(x, false, false); }
Expr k1(const Expr& x) { return k(x, true, false); }
Expr scaled_k0(const Expr& x) { return k(x, false, true); }
Expr scaled_k1(const Expr& x) { return k(x, true, true); }

}  // namespace

std::vector<Row> modified_bessel_rows() {
  return {
      function_of_one({"i0.out", "special_modified_bessel_i0.out"}, i0),
      function_of_one({"special_i0e.out"}, i0e),
      function_of_one({"special_i1.out", "special_modified_bessel_i1.out"}, i1),
      function_of_one({"special_i1e.out"}, i1e),
      function_of_one({"special_modified_bessel_k0.out"}, k0),
      function_of_one({"special_modified_bessel_k1.out"}, k1),
      function_of_one({"special_scaled_modified_bessel_k0.out"}, scaled_k0),
      function_of_one({"special_scaled_modified_bessel_k1.out"}, scaled_k1),
  };
}

}  // namespace tpupilot::ops
