// Sorting, along one dim, stable. NaN counts as the largest value, as in ATen.
#include "ops/promote.h"

namespace tpupilot::ops {
namespace {

// Integers in the order of the floats: NaN last, -0 and 0 equal. The sort then compares integers only.
Value ordered_key(Builder& b, const Value& x) {
  if (!hlo::is_float(x.elem())) return x.elem() == Elem::Pred ? b.convert(x, Elem::U8) : x;
  const Value wide = x.elem() == Elem::F64 ? x : b.convert(x, Elem::F32);
  const Elem bits = x.elem() == Elem::F64 ? Elem::S64 : Elem::S32;
  const Value canonical = b.add(wide, b.zeros(wide.type));  // -0 + 0 = 0
  const Value raw = b.bitcast(canonical, {bits, x.dims()});
  const Value flipped = b.binary("stablehlo.xor", raw, b.highest(raw.type));  // negative floats count down
  const Value key = b.select(b.compare(hlo::Direction::LT, raw, b.zeros(raw.type)), flipped, raw);
  return b.select(b.is_nan(wide), b.highest(key.type), key);
}

struct Sorted {
  Value values, indices;
};

Sorted sorted(Builder& b, const Value& x, int64_t dim, bool descending) {
  const Value key = ordered_key(b, x);
  const Value index = b.iota({Elem::S64, x.dims()}, dim);
  const Values results = b.sort({key, x, index}, dim, [&](const Values& v) {
    return b.compare(descending ? hlo::Direction::GT : hlo::Direction::LT, v[0], v[1]);
  });
  return {results[1], results[2]};
}

Value at_least_1d(Builder& b, const Value& x) { return x.rank() == 0 ? b.reshape(x, {1}) : x; }

Values sort_stable(Context& c) {
  const Value x = at_least_1d(c.b, c.tensor("self"));
  const Sorted s = sorted(c.b, x, hlo::wrap_dim(c.integer("dim"), x.rank()), c.boolean("descending"));
  return {c.b.reshape(s.values, c.result(0).dims), c.b.reshape(s.indices, c.result(1).dims)};
}

Values topk(Context& c) {
  const Value x = at_least_1d(c.b, c.tensor("self"));
  const int64_t dim = hlo::wrap_dim(c.integer("dim"), x.rank());
  const Sorted s = sorted(c.b, x, dim, c.boolean("largest"));
  const int64_t k = c.integer("k");
  return {c.b.reshape(c.b.slice_dim(s.values, dim, 0, k), c.result(0).dims),
          c.b.reshape(c.b.slice_dim(s.indices, dim, 0, k), c.result(1).dims)};
}

}  // namespace

std::vector<Row> sort_rows() {
  return {
      {.overloads = {"sort.values_stable"}, .emit = sort_stable},
      {.overloads = {"topk.values"}, .emit = topk},
  };
}

}  // namespace tpupilot::ops
