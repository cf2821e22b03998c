// Complex values taken apart and put together.
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

}  // namespace tpupilot::ops
