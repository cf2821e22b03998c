// The regularised incomplete gamma functions P(a, x) and Q(a, x). The regions of (a, x) and the method in each are
// ATen's, which are SciPy's after Cephes and Boost. All methods run on all elements; a loop goes on while an element of
// its own region has not converged.
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "ops/approximation.h"
#include "ops/promote.h"

namespace tpupilot::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kTurns = 2000;  // of a loop at most, as in ATen

// Lanczos' approximation of the gamma function as Boost has it (J. Maddock); the divisor is x (x + 1) ... (x + 11).
constexpr double kLanczosG = 6.024680040776729583740234375;
constexpr double kLanczosNum[] = {0.006061842346248907, 0.5098416655656676, 19.519927882476175, 449.9445569063168,
                                  6955.999602515376,    75999.29304014542,  601859.6171681099,  3481712.154980646,
                                  14605578.087685067,   43338889.32467614,  86363131.2881386,   103794043.11634454,
                                  56906521.913471565};
constexpr double kLanczosDen[] = {1.0,        66.0,        1925.0,      32670.0,     357423.0,   2637558.0, 13339535.0,
                                  45995730.0, 105258076.0, 150917976.0, 120543840.0, 39916800.0, 0.0};

Expr lanczos(const Expr& x) {
  const std::vector<double> numerator(std::rbegin(kLanczosNum), std::rend(kLanczosNum));
  const std::vector<double> divisor(std::rbegin(kLanczosDen), std::rend(kLanczosDen));
  const Expr inverse = 1 / x;  // beyond 1 both are polynomials in it: powers of x would overflow
  return where(x > 1, horner(inverse, numerator) / horner(inverse, divisor),
               horner(x, kLanczosNum) / horner(x, kLanczosDen));
}

// In f64 where that is cheap: the plugins' f32 is 5e-7 off where the logarithm is 0.
Expr log_gamma(const Expr& x) {
  if (!x.b->target().cpu()) return apply("chlo.lgamma", x);
  return convert(apply("chlo.lgamma", convert(x, Elem::F64)), x.v.elem());
}

// x^a exp(-x) / gamma(a).
Expr prefactor(const Expr& a, const Expr& x) {
  const Expr apart = exp(a * log(x) - x - log_gamma(a));
  const Expr base = a + (kLanczosG - 0.5), excess = (x - base) / base;
  const Expr large = a * (log1p(excess) - excess) + x * (0.5 - kLanczosG) / base;
  const Expr exponent = where((a < 200) & (x < 200), a - x + a * log(x / base), large);
  const Expr close = sqrt(base / std::numbers::e) / lanczos(a) * exp(exponent);
  return where(abs(a - x) > 0.4 * a, apart, close);
}

double machine_epsilon(const Expr& x) {  // half a unit in the last place of 1
  const bool f64 = x.v.elem() == Elem::F64;
  return (f64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon()) / 2;
}

// `body` gives the next state from the number of the turn, from 1, and the state; the state's first value says which
// elements have not converged. Those that have, keep theirs.
using Turn = std::function<Values(const Expr& turn, const Values& state)>;
Values converge(Builder& b, const Values& start, Elem elem, const Turn& body) {
  Dims all(start[0].rank());
  std::iota(all.begin(), all.end(), 0);
  Values init = start;
  init.push_back(b.constant(1, {elem, {}}));
  Values out = b.while_loop(
      init,
      [&](const Values& s) {
        const Value more = b.compare(hlo::Direction::LT, s.back(), b.constant(kTurns, s.back().type));
        return b.logical_and(more, b.any(s[0], all));
      },
      [&](const Values& s) {
        const Expr turn{&b, b.broadcast(s.back(), s[0].dims())};
        Values next = body(turn, Values(s.begin(), s.end() - 1));
        for (size_t i = 1; i < next.size(); ++i) next[i] = b.select(s[0], next[i], s[i]);
        next[0] = b.logical_and(next[0], s[0]);
        next.push_back(b.add(s.back(), b.constant(1, s.back().type)));
        return next;
      });
  out.pop_back();
  return out;
}

// P by DLMF 8.11.4.
Expr lower_series(const Expr& a, const Expr& x, const Expr& region) {
  Builder& b = *x.b;
  const auto of = [&b](const Value& v) { return Expr{&b, v}; };
  const Expr one = number(x, 1);
  const Values s = converge(b, {region, one, one}, x.v.elem(), [&](const Expr& turn, const Values& in) {
    const Expr term = of(in[1]) * (x / (a + turn)), sum = of(in[2]) + term;
    return Values{term > machine_epsilon(x) * sum, term, sum};
  });
  return of(s[2]) * prefactor(a, x) / a;
}

// Q of small x by DLMF 8.7.3, without the cancellation of 1 - P.
Expr upper_series(const Expr& a, const Expr& x, const Expr& region) {
  Builder& b = *x.b;
  const auto of = [&b](const Value& v) { return Expr{&b, v}; };
  const Values s =
      converge(b, {region, number(x, 1), number(x, 0)}, x.v.elem(), [&](const Expr& turn, const Values& in) {
        const Expr factor = of(in[1]) * (-x / turn), term = factor / (a + turn), sum = of(in[2]) + term;
        return Values{abs(term) > machine_epsilon(x) * abs(sum), factor, sum};
      });
  const Expr power = a * log(x);
  return -expm1(power - log_gamma(1 + a)) - exp(power - log_gamma(a)) * of(s[2]);
}

// Q by the continued fraction DLMF 8.9.2: P[k] / Q[k], both scaled down before they overflow.
Expr upper_fraction(const Expr& a, const Expr& x, const Expr& region) {
  Builder& b = *x.b;
  const auto of = [&b](const Value& v) { return Expr{&b, v}; };
  const double epsilon = machine_epsilon(x);
  const Expr one = number(x, 1), q = (x + 2 - a) * x;
  // Not converged; p and q of the turn before the last, of the last; their ratio.
  const Values start = {region, one, x, x + 1, q, (x + 1) / q};
  const Values s = converge(b, start, x.v.elem(), [&](const Expr& turn, const Values& in) {
    const Expr yc = (1 - a + turn) * turn, z = x + 2 - a + 2 * turn;
    const Expr p = of(in[3]) * z - of(in[1]) * yc, divisor = of(in[4]) * z - of(in[2]) * yc;
    const Expr ratio = p / divisor, zero = equal(divisor, 0);
    const Expr change = where(zero, 1, abs((of(in[5]) - ratio) / ratio));
    const Expr scale = where(abs(p) > 1 / epsilon, number(p, epsilon), number(p, 1));
    return Values{change > epsilon, of(in[3]) * scale, of(in[4]) * scale,
                  p * scale,        divisor * scale,   where(zero, of(in[5]), ratio)};
  });
  return of(s[5]) * prefactor(a, x);
}

// Temme's uniform expansion, DLMF 8.12: d[k][n] of sum_k a^-k sum_n d[k][n] eta^n. From the series of eta in x / a - 1
// (8.12.11) and Stirling's series of the gamma function (5.11.6), by their recurrences in long double.
constexpr int kInverseTerms = 12, kEtaTerms = 20;
std::vector<std::vector<double>> temme() {
  constexpr int kAll = kEtaTerms + 2 * kInverseTerms;
  std::vector<long double> alpha(kAll + 3), stirling(kInverseTerms), root(size_t{2} * kInverseTerms);
  alpha[1] = 1;
  for (int n = 2; n < kAll + 3; ++n) {
    long double sum = alpha[n - 1];
    for (int j = 2; j < n; ++j) sum -= j * alpha[j] * alpha[n - j + 1];
    alpha[n] = sum / (n + 1);
  }
  root[0] = std::numbers::sqrt2_v<long double> / 2;
  for (int k = 1; k < 2 * kInverseTerms; ++k) {
    long double sum = root[k - 1] / k;
    for (int j = 1; j < k; ++j) sum -= root[j] * root[k - j] / (j + 1);
    root[k] = sum / (root[0] * (1 + 1.0L / (k + 1)));
  }
  long double rising = 1;  // (1/2) (3/2) ... (k - 1/2)
  for (int k = 0; k < kInverseTerms; ++k) {
    stirling[k] = std::numbers::sqrt2_v<long double> * rising * root[size_t{2} * k];
    rising *= k + 0.5L;
  }
  std::vector<long double> first(kAll), row;
  for (int n = 0; n < kAll; ++n) first[n] = n == 0 ? -1.0L / 3 : (n + 2) * alpha[n + 2];
  std::vector<std::vector<double>> d;
  for (int k = 0; k < kInverseTerms; ++k) {
    std::vector<long double> next(kAll - 2 * k);
    for (size_t n = 0; n < next.size(); ++n) {
      next[n] =
          (k % 2 == 0 ? 1 : -1) * stirling[k] * first[n] + (k == 0 ? 0 : static_cast<long double>(n + 2) * row[n + 2]);
    }
    row = k == 0 ? first : next;
    d.emplace_back(row.rend() - kEtaTerms, row.rend());
  }
  return d;
}

// P or Q where a is large and x near it.
Expr uniform_expansion(const Expr& a, const Expr& x, bool lower) {
  static const std::vector<std::vector<double>> kTable = temme();
  const Expr sigma = (x - a) / a, length = sqrt(-2 * (log1p(sigma) - sigma));
  const Expr eta = where(sigma < 0, -length, where(sigma > 0, length, number(length, 0)));
  const Expr inverse = 1 / a;
  Expr sum = number(a, 0);
  for (size_t k = kTable.size(); k-- > 0;) sum = sum * inverse + horner(eta, kTable[k]);
  const double sign = lower ? -1 : 1;
  const Expr correction = exp(-0.5 * a * eta * eta) * sum / sqrt(2 * std::numbers::pi * a);
  return 0.5 * apply("chlo.erfc", sign * eta * sqrt(a / 2)) + sign * correction;
}

Expr incomplete(const Expr& a, const Expr& x, bool lower) {
  const Expr distance = abs(x - a) / a;
  const Expr uniform = ((a > 20) & (a < 200) & (distance < 0.3)) | ((a > 200) & (distance < 4.5 / sqrt(a)));
  const Expr below = where(x > 1.1, x < a, where(x <= 0.5, -0.4 / log(x) < a, x * 1.1 < a));
  const Expr series = lower ? !((x > 1) & (x > a)) : below;
  const Expr inside = (a > 0) & (x > 0) & (a < kInfinity) & (x < kInfinity) & !uniform;
  const Expr fraction = (!series) & (x > 1.1);
  const Expr p = lower_series(a, x, inside & series);
  const Expr q =
      where(fraction, upper_fraction(a, x, inside & fraction), upper_series(a, x, inside & !series & !fraction));
  const Expr value =
      where(uniform, uniform_expansion(a, x, lower), lower ? where(series, p, 1 - q) : where(series, 1 - p, q));
  // The borders: all of the distribution lies below x where a is 0 or x infinite, none where x is 0 or a infinite.
  const double all = lower ? 1 : 0;
  const Expr zero = equal(a, 0), none = equal(x, 0) | equal(a, kInfinity);
  const Expr undefined = (x < 0) | (a < 0) | (zero & !(x > 0)) | (equal(a, kInfinity) & equal(x, kInfinity));
  const Expr bounded = where(zero, all, where(none, 1 - all, where(equal(x, kInfinity), all, value)));
  return where(undefined, kNan, bounded);
}

Row of_two(std::string_view overload, bool lower) {
  return {.overloads = {overload},
          .emit = [lower](Context& c) { return Values{incomplete(operand(c, "self"), operand(c, "other"), lower)}; }};
}

}  // namespace

std::vector<Row> gamma_rows() { return {of_two("igamma.out", true), of_two("igammac.out", false)}; }

}  // namespace tpupilot::ops
