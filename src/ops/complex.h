// Complex values taken apart and put together, and the functions of C's <complex.h> on them: branch cuts on the side
// that the sign of a zero says, infinities and NaN as C's Annex G gives them, which is what ATen's CPU kernels return.
#pragma once

#include "ops/expr.h"

namespace tpupilot::ops {

inline Expr real(const Expr& x) { return apply("stablehlo.real", x); }
inline Expr imag(const Expr& x) { return apply("stablehlo.imag", x); }
inline Expr complex(const Expr& re, const Expr& im) { return apply("stablehlo.complex", re, im); }
inline Expr conj(const Expr& x) { return complex(real(x), -imag(x)); }
// By a real factor, part by part: the product with (factor, 0) would have NaN where a part is infinite.
inline Expr scaled(const Expr& x, const Expr& factor) { return complex(real(x) * factor, imag(x) * factor); }
inline Expr scaled(const Expr& x, double factor) { return complex(real(x) * factor, imag(x) * factor); }

Expr complex_abs(const Expr& x);
Expr complex_exp(const Expr& x);
Expr complex_expm1(const Expr& x);
Expr complex_exp2(const Expr& x);
Expr complex_log(const Expr& x);
Expr complex_log1p(const Expr& x);
Expr complex_sqrt(const Expr& x);
Expr complex_rsqrt(const Expr& x);
Expr complex_reciprocal(const Expr& x);
Expr complex_sigmoid(const Expr& x);
Expr complex_sgn(const Expr& x);
Expr complex_sin(const Expr& x);
Expr complex_cos(const Expr& x);
Expr complex_tan(const Expr& x);
Expr complex_sinh(const Expr& x);
Expr complex_cosh(const Expr& x);
Expr complex_tanh(const Expr& x);
Expr complex_asin(const Expr& x);
Expr complex_acos(const Expr& x);
Expr complex_atan(const Expr& x);
Expr complex_asinh(const Expr& x);
Expr complex_acosh(const Expr& x);
Expr complex_atanh(const Expr& x);

Expr complex_divide(const Expr& x, const Expr& y);
Expr complex_power(const Expr& x, const Expr& y);
// log(exp(x) + exp(y)), from the one of the larger real part.
Expr complex_logaddexp(const Expr& x, const Expr& y);

}  // namespace tpupilot::ops
