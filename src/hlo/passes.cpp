// f32 products as a TPU's matrix unit makes them, on a plugin that has none: operands in bf16 parts, sums in f32.
#include <utility>

#include "hlo/builder.h"

namespace tpupilot::hlo {
namespace {

// x rounded to bf16, in its own type.
Value rounded(Builder& b, const Value& x) {
  if (is_complex(x.elem())) {
    return b.binary("stablehlo.complex", rounded(b, b.unary("stablehlo.real", x)),
                    rounded(b, b.unary("stablehlo.imag", x)));
  }
  return b.op("stablehlo.reduce_precision", {x}, x.type, "exponent_bits = 8 : i32, mantissa_bits = 7 : i32");
}

// x where `part` is finite, else 0: only the product of the first parts tells of Inf, since Inf times an empty part
// would be NaN.
Value finite(Builder& b, const Value& x, const Value& part) {
  if (is_complex(x.elem())) {
    const auto of = [&](std::string_view name) { return finite(b, b.unary(name, x), b.unary(name, part)); };
    return b.binary("stablehlo.complex", of("stablehlo.real"), of("stablehlo.imag"));
  }
  return b.select(b.op("stablehlo.is_finite", {part}, part.type.with(Elem::Pred)), x, b.zeros(x.type));
}

Values parts_of(Builder& b, Value x, int count) {
  Values parts;
  for (int i = 0; i < count; ++i) {
    parts.push_back(rounded(b, x));
    if (i + 1 < count) x = finite(b, b.sub(x, parts.back()), parts.back());
  }
  return parts;
}

}  // namespace

Value Builder::by_passes(const Value& a, const Value& b,
                         const std::function<Value(const Value&, const Value&)>& product) {
  contracts_ = true;
  const bool split = (a.elem() == Elem::F32 || a.elem() == Elem::C64) && a.elem() == b.elem();
  if (!split || target_.passes == Passes::Exact || target_.platform == Platform::Tpu) return product(a, b);
  // Which part of a meets which of b, the smallest products first.
  using Pairs = std::vector<std::pair<size_t, size_t>>;
  static const Pairs kOne = {{0, 0}}, kThree = {{1, 0}, {0, 1}, {0, 0}},
                     kSix = {{2, 0}, {1, 1}, {0, 2}, {1, 0}, {0, 1}, {0, 0}};
  const Passes passes = std::exchange(target_.passes, Passes::Exact);  // `product` may be one of ours
  const Pairs& pairs = passes == Passes::One ? kOne : passes == Passes::Three ? kThree : kSix;
  const int count = passes == Passes::One ? 1 : passes == Passes::Three ? 2 : 3;
  const Values left = parts_of(*this, a, count), right = parts_of(*this, b, count);
  const Values firsts = {finite(*this, left[0], left[0]), finite(*this, right[0], right[0])};
  Value total;
  for (const auto& [i, j] : pairs) {
    const bool first = i == 0 && j == 0;
    const Value term = product(i == 0 && !first ? firsts[0] : left[i], j == 0 && !first ? firsts[1] : right[j]);
    total = total ? add(total, term) : term;
  }
  target_.passes = passes;
  return total;
}

}  // namespace tpupilot::hlo
