// ATen's rules for element types: which one an operation is computed in, and how values change from one to another.
#pragma once

#include "ops/expr.h"

namespace tpupilot::ops {

// What `x.to(dtype)` gives in ATen on an x86 CPU: complex numbers lose their imaginary part, anything but zero is true,
// floats are cut towards zero; a float that the integer cannot hold gives the smallest one for i32 and i64, and its low
// bits for narrower ones.
Value convert_like_aten(Builder& b, const Value& x, Elem elem);

// The element type that a value of type `a` and one of type `b` are combined in (c10::promoteTypes).
Elem promote(Elem a, Elem b);

// at::result_type of two arguments of the call: tensors with dims outrank 0-d ones, and those outrank Python numbers.
// A name that is a Scalar argument counts as a Python number.
Elem result_type(Context& c, std::string_view a, std::string_view b);

// A tensor or Scalar argument in `elem`, broadcast to `dims`.
Expr operand(Context& c, std::string_view name, Elem elem, const Dims& dims);
// The same in the opmath type of the first result, at its shape.
Expr operand(Context& c, std::string_view name);

}  // namespace tpupilot::ops
