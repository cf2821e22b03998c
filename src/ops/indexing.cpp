#include "ops/indexing.h"

namespace tpupilot::ops {

using hlo::Builder;
using hlo::Dims;
using hlo::Elem;
using hlo::Value;

namespace {

Dims all_but(int64_t dim, int64_t rank) {
  Dims dims;
  for (int64_t d = 0; d < rank; ++d) {
    if (d != dim) dims.push_back(d);
  }
  return dims;
}

// Combining in f16 or bf16 would round at every step, and is many times slower on the CPU plugins.
Value scatter_wide(Builder& b, const Value& x, const Value& index, const Value& updates, const hlo::Scatter& s,
                   std::string_view combiner, bool unique) {
  if (x.type.numel() == 0 || updates.type.numel() == 0) return x;
  const Elem elem = combiner.empty() ? x.elem() : hlo::compute_elem(x.elem());
  return b.convert(b.scatter(b.convert(x, elem), index, b.convert(updates, elem), s, combiner, unique), x.elem());
}

// x cut to the sizes that index has in the dims other than `dim`.
Value cut_to(Builder& b, const Value& x, const Value& index, int64_t dim) {
  Dims limit = index.dims();
  limit[static_cast<size_t>(dim)] = x.dims()[static_cast<size_t>(dim)];
  return b.slice(x, Dims(limit.size(), 0), limit, Dims(limit.size(), 1));
}

}  // namespace

void require_within(Context& c, const Value& index, int64_t low, int64_t size, Refusal refusal) {
  Builder& b = c.b;
  const Value i = b.convert(index, Elem::S64);
  const Value above = b.compare(hlo::Direction::GE, i, b.constant_int(low, i.type));
  const Value below = b.compare(hlo::Direction::LT, i, b.constant_int(size, i.type));
  c.require(b.logical_and(above, below), i, std::move(refusal));
}

Refusal out_of_bounds(Refusal::Kind kind, int64_t dim, int64_t size) {
  return {kind,
          "index {} is out of bounds for dimension " + std::to_string(dim) + " with size " + std::to_string(size)};
}

Value wrapped_index(Builder& b, const Value& index, int64_t size) {
  const Value i = b.convert(index, Elem::S64);
  const Value negative = b.compare(hlo::Direction::LT, i, b.zeros(i.type));
  return b.select(negative, b.add(i, b.constant_int(size, i.type)), i);
}

Value gather_along(Builder& b, Value x, const Value& index, int64_t dim) {
  if (index.rank() == 0) {
    return b.reshape(gather_along(b, x.rank() == 0 ? b.reshape(x, {1}) : x, b.reshape(index, {1}), 0), {});
  }
  if (x.rank() == 0) x = b.reshape(x, {1});
  if (index.type.numel() == 0) return b.zeros(index.type.with(x.elem()));
  x = cut_to(b, x, index, dim);
  const Dims others = all_but(dim, x.rank());
  const hlo::Gather g{{}, {dim}, others, others, {dim}, index.rank(), Dims(x.dims().size(), 1)};
  return b.gather(x, b.convert(index, Elem::S64), g, index.dims());
}

Value scatter_along(Builder& b, const Value& x, const Value& index, const Value& updates, int64_t dim,
                    std::string_view combiner, bool unique) {
  if (x.rank() == 0 || index.rank() == 0) {
    const Dims full = x.rank() == 0 ? Dims{1} : x.dims();
    const Value flat = b.reshape(index, {index.type.numel()}), values = b.reshape(updates, flat.dims());
    return b.reshape(scatter_along(b, b.reshape(x, full), flat, values, 0, combiner, unique), x.dims());
  }
  if (index.type.numel() == 0) return x;
  const Value part = cut_to(b, x, index, dim);
  const Dims others = all_but(dim, x.rank());
  const hlo::Scatter s{{}, {dim}, others, others, {dim}, index.rank()};
  Value written = scatter_wide(b, part, b.convert(index, Elem::S64), updates, s, combiner, unique);
  if (part.dims() == x.dims()) return written;
  return b.dynamic_update_slice(x, written, hlo::Values(x.dims().size(), b.zeros({Elem::S32, {}})));
}

Value take_slices(Builder& b, const Value& x, const Value& index, int64_t dim) {
  Dims out = x.dims(), slice = x.dims();
  out[static_cast<size_t>(dim)] = index.dims()[0];
  slice[static_cast<size_t>(dim)] = 1;
  if (hlo::product(out) == 0) return b.zeros(x.type.with(out));
  const hlo::Gather g{all_but(dim, x.rank()), {dim}, {}, {}, {dim}, 1, slice};
  return b.gather(x, index, g, out);
}

Value put_slices(Builder& b, const Value& x, const Value& index, const Value& updates, int64_t dim,
                 std::string_view combiner) {
  const hlo::Scatter s{all_but(dim, x.rank()), {dim}, {}, {}, {dim}, 1};
  return scatter_wide(b, x, index, updates, s, combiner, false);
}

std::string_view sum_combiner(Elem elem) { return elem == Elem::Pred ? "stablehlo.or" : "stablehlo.add"; }

}  // namespace tpupilot::ops
