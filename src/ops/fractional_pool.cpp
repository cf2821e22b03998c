// fractional_max_pool* (Graham 2014) and max_unpool*: maxima over windows whose starts a random sample decides, and
// values put back where maxima came from. Places count in the plane of the spatial dims.
#include <functional>

#include "ops/expr.h"
#include "ops/indexing.h"

namespace tpupilot::ops {
namespace {

struct Planes {
  Dims sizes;  // spatial
  int64_t planes, area;
};
Planes planes_of(const Dims& dims, size_t spatial) {
  Planes p{Dims(dims.end() - static_cast<std::ptrdiff_t>(spatial), dims.end()), 1, 0};
  p.area = hlo::product(p.sizes);
  for (size_t i = 0; i + spatial < dims.size(); ++i) p.planes *= dims[i];
  return p;
}

// Where the windows along one dim start, S64 [planes, count]: i (size - kernel) / (count - 1), moved by the sample.
Value starts(Context& c, const Expr& sample, int64_t size, int64_t kernel, int64_t count) {
  Builder& b = c.b;
  const Dims dims{sample.v.dims()[0], count};
  Value last = b.constant_int(size - kernel, {Elem::S64, dims});
  if (count == 1) return last;
  const Expr moved = along(sample, 0, dims), i = expr(c, b.iota({sample.v.elem(), dims}, 1));
  const Expr alpha = number(moved, static_cast<double>(size - kernel)) / static_cast<double>(count - 1);
  const auto whole = [](const Expr& x) { return convert(x, Elem::S64); };
  const Expr start = whole((i + moved) * alpha) - whole(moved * alpha);
  return where(equal(expr(c, b.iota({Elem::S64, dims}, 1)), static_cast<double>(count - 1)), expr(c, last), start);
}

// The place of element `offset` of every window, S64 [planes, output...].
Value window_places(Context& c, const Planes& p, const Values& all_starts, const Dims& offset, const Dims& out) {
  Builder& b = c.b;
  Value flat;
  for (size_t d = 0; d < offset.size(); ++d) {
    const Value start = b.broadcast_in_dim(all_starts[d], out, {0, static_cast<int64_t>(d) + 1});
    const Value at = b.add(start, b.constant_int(offset[d], start.type));
    flat = flat ? b.add(b.mul(flat, b.constant_int(p.sizes[d], flat.type)), at) : at;
  }
  return flat;
}

Values fractional_max_pool(Context& c) {
  Builder& b = c.b;
  const Dims kernel = c.integers("kernel_size"), counts = c.integers("output_size");
  const Expr x = wide(c, "self");
  if (c.result(0).numel() == 0) return {b.zeros(c.result(0)), b.zeros(c.result(1))};
  const Planes p = planes_of(x.v.dims(), kernel.size());
  const auto spatial = static_cast<int64_t>(kernel.size());
  const Value samples = b.reshape(b.convert(c.tensor("random_samples"), x.v.elem()), {p.planes, spatial});
  Values all_starts;
  for (int64_t d = 0; d < spatial; ++d) {
    const int64_t column = spatial == 2 ? 1 - d : d;  // ATen's 2-d kernel takes the last dim's sample first
    const Expr sample = expr(c, b.reshape(b.slice_dim(samples, 1, column, column + 1), {p.planes}));
    const auto at = static_cast<size_t>(d);
    all_starts.push_back(starts(c, sample, p.sizes[at], kernel[at], counts[at]));
  }
  Dims out = counts;
  out.insert(out.begin(), p.planes);
  const Value flat = b.reshape(x, {p.planes, p.area});
  Expr best, place;
  const std::function<void(Dims)> visit = [&](const Dims& offset) {
    if (offset.size() < kernel.size()) {
      for (int64_t k = 0; k < kernel[offset.size()]; ++k) {
        Dims more = offset;
        more.push_back(k);
        visit(more);
      }
      return;
    }
    const Expr at = expr(c, window_places(c, p, all_starts, offset, out));
    const Value index = b.reshape(at, {p.planes, hlo::product(counts)});
    const Expr candidate = expr(c, b.reshape(gather_along(b, flat, index, 1), out));
    const Expr better = best.v ? (candidate > best) | !equal(candidate, candidate) : Expr{};
    best = best.v ? where(better, candidate, best) : candidate;
    place = place.v ? where(better, at, place) : at;
  };
  visit({});
  return {b.reshape(best, c.result(0).dims), b.reshape(place, c.result(1).dims)};
}

Values max_unpool(Context& c) {
  Builder& b = c.b;
  const Value self = c.tensor("self");
  if (c.result().numel() == 0 || self.type.numel() == 0) return {b.zeros(c.result())};
  const Planes p = planes_of(c.result().dims, c.integers("output_size").size());
  const Dims dims{p.planes, self.type.numel() / p.planes};
  const Value index = b.reshape(b.convert(c.tensor("indices"), Elem::S64), dims);
  std::string volume;
  for (const int64_t size : p.sizes) volume += (volume.empty() ? "" : "x") + std::to_string(size);
  require_within(
      c, index, 0, p.area,
      {Refusal::Kind::Runtime, "Found an invalid max index: {} (output volumes are of size " + volume + ")"});
  const Value zeros = b.zeros({self.elem(), {p.planes, p.area}});
  return {b.reshape(scatter_along(b, zeros, index, b.reshape(self, dims), 1), c.result().dims)};
}

}  // namespace

std::vector<Row> fractional_pool_rows() {
  return {
      {.overloads = {"fractional_max_pool2d.output", "fractional_max_pool3d.output"}, .emit = fractional_max_pool},
      {.overloads = {"max_unpool2d", "max_unpool2d.out", "max_unpool3d", "max_unpool3d.out"},
       .emit = max_unpool,
       .remark = kOutOfRange},
  };
}

}  // namespace tpupilot::ops
