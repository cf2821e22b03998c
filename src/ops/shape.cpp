// Elements put elsewhere, unchanged.
#include "ops/promote.h"

namespace tpupilot::ops {
namespace {

// Old-style empty vectors, of shape (0), may stand among tensors of any rank.
bool is_legacy_empty(const Value& v) { return v.rank() == 1 && v.dims()[0] == 0; }

Values cat(Context& c) {
  const Type& out = c.result();
  const int64_t dim = hlo::wrap_dim(c.integer("dim"), out.rank());
  Values parts;
  for (const std::optional<Value>& part : c.tensors("tensors")) {
    if (is_legacy_empty(*part) && out.rank() != 1) continue;
    parts.push_back(convert_like_aten(c.b, *part, out.elem));
  }
  if (parts.empty()) return {c.b.zeros(out)};
  return {parts.size() == 1 ? parts[0] : c.b.concatenate(parts, dim)};
}

Values flip(Context& c) {
  const Value x = c.tensor("self");
  Dims dims = c.integers("dims");
  for (int64_t& d : dims) d = hlo::wrap_dim(d, x.rank());
  return {x.rank() == 0 || dims.empty() ? x : c.b.reverse(x, dims)};
}

// x[-shift:] before x[:-shift] along a dim.
Value rolled(Builder& b, const Value& x, int64_t dim, int64_t shift) {
  const int64_t n = x.dims()[dim];
  if (n == 0) return x;
  const int64_t cut = ((-shift) % n + n) % n;
  if (cut == 0) return x;
  return b.concatenate({b.slice_dim(x, dim, cut, n), b.slice_dim(x, dim, 0, cut)}, dim);
}

Values roll(Context& c) {
  Value x = c.tensor("self");
  const Dims shifts = c.integers("shifts"), dims = c.integers("dims");
  const Dims shape = x.dims();
  if (dims.empty()) return {c.b.reshape(rolled(c.b, c.b.reshape(x, {x.type.numel()}), 0, shifts.at(0)), shape)};
  for (size_t i = 0; i < dims.size(); ++i) x = rolled(c.b, x, hlo::wrap_dim(dims[i], x.rank()), shifts.at(i));
  return {x};
}

}  // namespace

std::vector<Row> shape_rows() {
  return {
      {.overloads = {"cat.out"}, .emit = cat},
      {.overloads = {"flip"}, .emit = flip},
      {.overloads = {"roll"}, .emit = roll},
  };
}

}  // namespace tpupilot::ops
