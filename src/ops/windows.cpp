#include "ops/windows.h"

#include <algorithm>

namespace tpupilot::ops {

using hlo::Builder;
using hlo::Dims;
using hlo::Elem;
using hlo::Value;

namespace {

constexpr int64_t kMostSlices = 16;  // longer windows are left to reduce_window

size_t at(int64_t dim) { return static_cast<size_t>(dim); }

bool tiles(const Value& x, const Window1d& w) {
  return w.stride == w.size && w.padding == 0 && w.dilation == 1 && x.dims()[at(w.dim)] == w.count * w.size;
}

Dims split(const Dims& dims, int64_t dim, int64_t inner) {
  Dims out = dims;
  out[at(dim)] /= inner;
  out.insert(out.begin() + dim + 1, inner);
  return out;
}

Value reduce_window_sum(Builder& b, const Value& padded, const Window1d& w) {
  Dims size(padded.dims().size(), 1), stride = size, out = padded.dims();
  size[at(w.dim)] = w.size;
  stride[at(w.dim)] = w.stride;
  out[at(w.dim)] = w.count;
  const hlo::Type scalar{padded.elem(), {}};
  const std::string body =
      b.region({scalar, scalar}, [&](const hlo::Values& v) { return hlo::Values{b.add(v[0], v[1])}; });
  return b.op(
      "stablehlo.reduce_window", {padded, b.zeros(scalar)}, padded.type.with(out),
      "window_dimensions = " + hlo::array_attribute(size) + ", window_strides = " + hlo::array_attribute(stride), body);
}

}  // namespace

Value padded_for(Builder& b, const Value& x, const Window1d& w, const Value& fill) {
  const int64_t covered = (w.count - 1) * w.stride + (w.size - 1) * w.dilation + 1;
  Dims low(x.dims().size(), 0), high = low;
  low[at(w.dim)] = w.padding;
  high[at(w.dim)] = covered - w.padding - x.dims()[at(w.dim)];
  return b.pad(x, fill, low, high, Dims(low.size(), 0));
}

Value tap(Builder& b, const Value& padded, const Window1d& w, int64_t t) {
  const int64_t start = t * w.dilation;
  return b.slice_dim(padded, w.dim, start, start + (w.count - 1) * w.stride + 1, w.stride);
}

Value window_sum(Builder& b, const Value& x, const Window1d& w) {
  if (w.size == 1 && tiles(x, w)) return x;
  if (tiles(x, w) && w.size > kMostSlices) return b.sum(b.reshape(x, split(x.dims(), w.dim, w.size)), {w.dim + 1});
  const Value padded = padded_for(b, x, w, b.zeros({x.elem(), {}}));
  if (w.size > kMostSlices) return reduce_window_sum(b, padded, w);
  Value total = tap(b, padded, w, 0);
  for (int64_t t = 1; t < w.size; ++t) total = b.add(total, tap(b, padded, w, t));
  return total;
}

Value window_spread(Builder& b, const Value& g, const Window1d& w, int64_t length) {
  if (w.stride == w.size && w.padding == 0 && length == w.count * w.size) {
    Dims repeated = g.dims(), merged = g.dims(), map;
    repeated.insert(repeated.begin() + w.dim + 1, w.size);
    merged[at(w.dim)] = length;
    for (int64_t d = 0; d < g.rank(); ++d) map.push_back(d <= w.dim ? d : d + 1);
    return b.reshape(b.broadcast_in_dim(g, repeated, map), merged);
  }
  // Element i lies in the windows that start at i - size + 1 ... i: a window sum over the gradients put where windows
  // start.
  Dims low(g.dims().size(), 0), high = low, interior = low;
  const int64_t starts = (w.count - 1) * w.stride + 1;
  low[at(w.dim)] = w.size - 1 - w.padding;
  high[at(w.dim)] = length + w.size - 1 - starts - low[at(w.dim)];
  interior[at(w.dim)] = w.stride - 1;
  const Value placed = b.pad(g, b.zeros({g.elem(), {}}), low, high, interior);
  return window_sum(b, placed, {w.dim, w.size, 1, 0, 1, length});
}

Maximum window_max(Builder& b, const Value& x, const Value& carried, const Window1d& w) {
  const Value padded = padded_for(b, x, w, b.lowest({x.elem(), {}}));
  const Value padded_carried = carried ? padded_for(b, carried, w, b.zeros({Elem::S32, {}})) : Value{};
  Maximum best{tap(b, padded, w, 0), {}, carried ? tap(b, padded_carried, w, 0) : Value{}};
  const hlo::Type places{Elem::S32, best.value.dims()};
  const Value start =
      b.sub(b.mul(b.iota(places, w.dim), b.constant_int(w.stride, places)), b.constant_int(w.padding, places));
  best.place = start;
  for (int64_t t = 1; t < w.size; ++t) {
    const Value candidate = tap(b, padded, w, t);
    Value better = b.compare(hlo::Direction::GT, candidate, best.value);
    if (hlo::is_float(x.elem())) better = b.logical_or(better, b.is_nan(candidate));
    // Before x begins there is only fill: the first element of x is better than that even if it is as low.
    if ((t - 1) * w.dilation < w.padding)
      better = b.logical_or(better, b.compare(hlo::Direction::LT, best.place, b.zeros(places)));
    best.value = b.select(better, candidate, best.value);
    best.place = b.select(better, b.add(start, b.constant_int(t * w.dilation, places)), best.place);
    if (carried) best.carried = b.select(better, tap(b, padded_carried, w, t), best.carried);
  }
  return best;
}

}  // namespace tpupilot::ops
