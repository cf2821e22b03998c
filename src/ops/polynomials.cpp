// Orthogonal polynomials of degree n at x, element by element: the closed forms that ATen takes, else the three-term
// recurrence in a loop over the largest degree.
#include <limits>
#include <numeric>

#include "ops/promote.h"

namespace tpupilot::ops {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// P[k+1] from P[k] and P[k-1].
using Step = std::function<Expr(const Expr& k, const Expr& current, const Expr& before)>;

// P[n], given P[1], where n is above 1; elsewhere 0 or P[1]. An element is done when its degree is reached, or at NaN,
// which a degree beyond counting soon comes to.
Expr recurrence(const Expr& n, const Expr& first, const Step& step) {
  Builder& b = *n.b;
  const auto of = [&b](const Value& v) { return Expr{&b, v}; };
  const auto running = [&](const Values& s) { return (of(b.broadcast(s[0], n.v.dims())) < n) & !of(b.is_nan(s[1])); };
  Dims all(n.v.rank());
  std::iota(all.begin(), all.end(), 0);
  const Values out = b.while_loop(
      {b.constant_int(1, {Elem::S64, {}}), first, number(first, 1)},
      [&](const Values& s) { return b.any(running(s), all); },
      [&](const Values& s) {
        const Expr k = of(b.broadcast(b.convert(s[0], first.v.elem()), first.v.dims()));
        const Expr on = running(s), next = where(on, step(k, of(s[1]), of(s[2])), of(s[1]));
        return Values{b.add(s[0], b.constant_int(1, s[0].type)), next, where(on, of(s[1]), of(s[2]))};
      });
  return of(out[1]);
}

struct Arguments {
  Expr x;
  Expr n;       // the degree as an integer; negative for NaN and for what has no integer
  Expr degree;  // the same, of the type of x
  Expr sign;    // (-1)^n
};
Arguments arguments(Context& c) {
  const Expr x = operand(c, "x");
  const Expr n{&c.b, convert_like_aten(c.b, operand(c, "n"), Elem::S64)};
  const Expr even = equal(n & number(n, 1), 0);
  return {x, n, convert(n, x.v.elem()), where(even, number(x, 1), number(x, -1))};
}

Expr of_degree(const Expr& n, const Expr& value) { return where(n < 0, 0, where(equal(n, 0), 1, value)); }

// acos without the cancellation of 1 - x^2.
Expr arc_cosine(const Expr& x) { return 2 * atan2(sqrt(1 - x), sqrt(1 + x)); }

// ---- Chebyshev's four kinds, and the same of 2x - 1 ----
struct Kind {
  char letter;
  double closed_above;  // the degree beyond which ATen takes the trigonometric form
  bool shifted;
};

struct Trigonometric {
  Expr value, at_one, at_minus_one;
  Expr degenerate;  // Pred: the divisor has rounded to what ATen tests for; the value is then `limit`
  Expr limit;
};
Trigonometric trigonometric(const Kind& kind, const Arguments& a, const Expr& y) {
  const auto sine = [](const Expr& x) { return apply("stablehlo.sine", x); };
  const auto cosine = [](const Expr& x) { return apply("stablehlo.cosine", x); };
  const Expr angle = arc_cosine(y), half = angle / 2, one = number(y, 1), wide = a.degree + a.degree + 1;
  const Expr never{y.b, y.b->zeros(y.v.type.with(Elem::Pred))};
  switch (kind.letter) {
    case 't':
      return {cosine(a.degree * angle), one, a.sign, never, one};
    case 'u':
      return {sine((a.degree + 1) * angle) / sine(angle), a.degree + 1, a.sign * (a.degree + 1), never, one};
    case 'v':
      return {cosine((a.degree + 0.5) * angle) / cosine(half), one, a.sign * wide, equal(sine(half), 1), a.sign * wide};
    default:
      return {sine((a.degree + 0.5) * angle) / sine(half), wide, a.sign, equal(cosine(half), 1),
              kind.shifted ? a.sign : wide};
  }
}

Values chebyshev_polynomial(Context& c, const Kind& kind) {
  const Arguments a = arguments(c);
  const Expr y = kind.shifted ? a.x + a.x - 1 : a.x, twice = y + y;
  const Expr first = kind.letter == 't' ? y : kind.letter == 'u' ? twice : kind.letter == 'v' ? twice - 1 : twice + 1;
  const Trigonometric t = trigonometric(kind, a, y);
  const Expr closed = (a.n > kind.closed_above) & (abs(y) < 1), edge = equal(abs(y), 1);
  const Expr value = recurrence(where(closed | edge, 0, a.n), first,
                                [&](const Expr&, const Expr& p, const Expr& before) { return twice * p - before; });
  const Expr inside = where(closed, where(t.degenerate, t.limit, t.value), value);
  return {of_degree(a.n, where(edge, where(y > 0, t.at_one, t.at_minus_one), inside))};
}
Row chebyshev(std::string_view overload, Kind kind) {
  return {.overloads = {overload}, .emit = [kind](Context& c) { return chebyshev_polynomial(c, kind); }};
}

// ---- Hermite, Laguerre, Legendre ----
Values hermite(Context& c, double scale) {  // physicists' H with 2, probabilists' He with 1
  const Arguments a = arguments(c);
  const double highest = a.x.v.elem() == Elem::F64 ? 512 : 128;  // ATen's; beyond it is NaN
  const Expr beyond = a.n > highest, x = scale * a.x;
  const Expr value = recurrence(where(beyond, 0, a.n), x, [&](const Expr& k, const Expr& p, const Expr& before) {
    return x * p - scale * k * before;
  });
  return {of_degree(a.n, where(beyond, kNan, value))};
}
Values hermite_h(Context& c) { return hermite(c, 2); }
Values hermite_he(Context& c) { return hermite(c, 1); }

Values laguerre(Context& c) {
  const Arguments a = arguments(c);
  const Expr zero = equal(a.x, 0), first = 1 - a.x;
  const Expr value = recurrence(where(zero, 0, a.n), first, [&](const Expr& k, const Expr& p, const Expr& before) {
    return ((k + k + first) * p - k * before) / (k + 1);
  });
  return {of_degree(a.n, where(zero, 1, value))};
}

Values legendre(Context& c) {
  const Arguments a = arguments(c);
  const Expr edge = equal(abs(a.x), 1);
  const Expr value = recurrence(where(edge, 0, a.n), a.x, [&](const Expr& k, const Expr& p, const Expr& before) {
    return ((k + k + 1) * a.x * p - k * before) / (k + 1);
  });
  return {of_degree(a.n, where(edge, where(a.x > 0, number(a.x, 1), a.sign), value))};
}

}  // namespace

std::vector<Row> polynomial_rows() {
  return {
      chebyshev("special_chebyshev_polynomial_t.out", {'t', 6, false}),
      chebyshev("special_chebyshev_polynomial_u.out", {'u', 8, false}),
      chebyshev("special_chebyshev_polynomial_v.out", {'v', 8, false}),
      chebyshev("special_chebyshev_polynomial_w.out", {'w', 8, false}),
      chebyshev("special_shifted_chebyshev_polynomial_t.out", {'t', 6, true}),
      chebyshev("special_shifted_chebyshev_polynomial_u.out", {'u', 6, true}),
      chebyshev("special_shifted_chebyshev_polynomial_v.out", {'v', 6, true}),
      chebyshev("special_shifted_chebyshev_polynomial_w.out", {'w', 4, true}),
      {.overloads = {"special_hermite_polynomial_h.out"}, .emit = hermite_h},
      {.overloads = {"special_hermite_polynomial_he.out"}, .emit = hermite_he},
      {.overloads = {"special_laguerre_polynomial_l.out"}, .emit = laguerre},
      {.overloads = {"special_legendre_polynomial_p.out"}, .emit = legendre},
  };
}

}  // namespace tpupilot::ops
