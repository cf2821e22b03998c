// Max, average and adaptive pooling in 2-d and 3-d, batched or not, and their gradients. Computed in the opmath type.
#include <algorithm>
#include <functional>

#include "ops/expr.h"
#include "ops/indexing.h"
#include "ops/resample.h"
#include "ops/windows.h"

namespace tpupilot::ops {
namespace {

// The attributes of a pooling call, one entry a spatial dim; the spatial dims are self's last.
struct Pool {
  Dims size, stride, padding, dilation;
  size_t rank() const { return size.size(); }
};

Pool pool_of(Context& c) {
  Pool p{c.integers("kernel_size"), c.integers("stride"), c.integers("padding"), {}};
  if (p.stride.empty()) p.stride = p.size;
  p.dilation = c.has_argument("dilation") ? c.integers("dilation") : Dims(p.rank(), 1);
  return p;
}

// The window along the i-th spatial dim of a value of this rank, with as many places as the pooled sizes say.
Window1d window_of(const Pool& p, size_t i, int64_t rank, const Dims& pooled) {
  const int64_t dim = rank - static_cast<int64_t>(p.rank()) + static_cast<int64_t>(i);
  return {dim, p.size[i], p.stride[i], p.padding[i], p.dilation[i], pooled[static_cast<size_t>(dim)]};
}

// ---------------------------------------------------------------- max

Values max_pool(Context& c) {
  Builder& b = c.b;
  const Pool p = pool_of(c);
  const Expr x = wide(c, "self");
  const Dims& pooled = c.result(0).dims;
  if (c.result(0).numel() == 0) return {b.zeros(c.result(0)), b.zeros(c.result(1))};
  Value value = x, flat;  // flat: the place in the plane of the spatial dims that are done
  int64_t inner = 1;
  for (size_t i = p.rank(); i-- > 0;) {
    const Window1d w = window_of(p, i, x.v.rank(), pooled);
    const Maximum m = window_max(b, value, flat, w);
    // The barriers keep the next dim from computing this one again in each of its taps.
    value = i > 0 ? b.barrier(m.value) : m.value;
    const Value place = inner == 1 ? m.place : b.mul(m.place, b.constant_int(inner, m.place.type));
    flat = flat ? b.add(place, m.carried) : place;
    if (i > 0) flat = b.barrier(flat);
    inner *= x.v.dims()[static_cast<size_t>(w.dim)];
  }
  return {value, b.convert(flat, Elem::S64)};
}

bool windows_are_apart(const Pool& p) {
  for (size_t i = 0; i < p.rank(); ++i) {
    if (p.stride[i] != p.size[i] || p.padding[i] != 0 || p.dilation[i] != 1) return false;
  }
  return true;
}

// Gradient and place repeated over the window, and kept where the place is the element's own.
Value spread_to_places(Context& c, const Pool& p, const Value& grad, const Value& indices) {
  Builder& b = c.b;
  const Dims& full = c.result().dims;
  Value g = grad, place = b.convert(indices, Elem::S32);
  Value own = b.zeros({Elem::S32, full});
  int64_t inner = 1;
  for (size_t i = p.rank(); i-- > 0;) {
    Window1d w = window_of(p, i, grad.rank(), grad.dims());
    const int64_t length = full[static_cast<size_t>(w.dim)], covered = w.count * w.size;
    const auto fit = [&](const Value& v, int64_t fill) {  // ceil_mode covers more than there is, floor less
      Dims none(full.size(), 0), high = none;
      high[static_cast<size_t>(w.dim)] = length - covered;
      return b.pad(v, b.constant_int(fill, {v.elem(), {}}), none, high, none);
    };
    g = fit(window_spread(b, g, w, covered), 0);
    place = fit(window_spread(b, place, w, covered), -1);
    own = b.add(own, b.mul(b.iota(own.type, w.dim), b.constant_int(inner, own.type)));
    inner *= length;
  }
  return b.select(b.compare(hlo::Direction::EQ, place, own), g, b.zeros(g.type));
}

// Adds each gradient at its place in its plane: one scatter over all planes.
Value scatter_to_places(Context& c, size_t spatial, const Value& grad, const Value& indices) {
  Builder& b = c.b;
  const Dims& full = c.result().dims;
  const int64_t plane = hlo::product(Dims(full.end() - static_cast<std::ptrdiff_t>(spatial), full.end()));
  const int64_t planes = plane == 0 ? 0 : c.result().numel() / plane,
                pooled = planes == 0 ? 0 : grad.type.numel() / planes;
  const hlo::Type type{Elem::S64, {planes, pooled}};
  const Value offset = b.mul(b.iota(type, 0), b.constant_int(plane, type));
  const Value place = b.reshape(b.add(b.reshape(indices, type.dims), offset), {planes * pooled});
  const Value zeros = b.zeros({grad.elem(), {planes * plane}});
  return b.reshape(put_slices(b, zeros, place, b.reshape(grad, place.dims()), 0, "stablehlo.add"), full);
}

Values max_pool_backward(Context& c) {
  const Pool p = pool_of(c);
  const Expr g = wide(c, "grad_output");
  if (c.result().numel() == 0 || g.v.type.numel() == 0) return {c.b.zeros(c.result())};
  const Value indices = c.tensor("indices");
  return {windows_are_apart(p) ? spread_to_places(c, p, g, indices) : scatter_to_places(c, p.rank(), g, indices)};
}

// Of the pools whose windows are not all alike.
Values backward_by_places(Context& c) {
  const Expr g = wide(c, "grad_output");
  const size_t spatial = c.overload().find("3d") != std::string_view::npos ? 3 : 2;
  if (c.result().numel() == 0 || g.v.type.numel() == 0) return {c.b.zeros(c.result())};
  return {scatter_to_places(c, spatial, g, c.tensor("indices"))};
}

// ---------------------------------------------------------------- average

// x over the number of elements of its window along each spatial dim; `length` are the sizes of the pooled tensor's
// input.
Expr divided(Context& c, const Pool& p, const Expr& x, const Dims& lengths) {
  if (c.given("divisor_override")) {
    const int64_t divisor = c.integer("divisor_override");
    if (divisor == 0) throw hlo::Error("[" + std::string(c.overload()) + "] divisor must be not zero");
    return x / static_cast<double>(divisor);
  }
  const bool with_padding = c.boolean("count_include_pad");
  Expr divisor;
  for (size_t i = 0; i < p.rank(); ++i) {
    const Window1d w = window_of(p, i, x.v.rank(), x.v.dims());
    const int64_t length = lengths[static_cast<size_t>(w.dim)];
    std::vector<int64_t> counts;
    for (int64_t k = 0; k < w.count; ++k) {
      const int64_t start = k * w.stride - w.padding, end = std::min(start + w.size, length + w.padding);
      counts.push_back(with_padding ? end - start : std::min(end, length) - std::max<int64_t>(start, 0));
    }
    const Expr count = along(convert(expr(c, c.b.constant_ints(counts, Elem::S64)), x.v.elem()), w.dim, x.v.dims());
    divisor = i == 0 ? count : divisor * count;
  }
  return x / divisor;
}

Values avg_pool(Context& c) {
  const Pool p = pool_of(c);
  const Expr x = wide(c, "self");
  if (c.result().numel() == 0) return {c.b.zeros(c.result())};
  Value total = x;
  for (size_t i = p.rank(); i-- > 0;) {
    total =
        window_sum(c.b, i + 1 < p.rank() ? c.b.barrier(total) : total, window_of(p, i, x.v.rank(), c.result().dims));
  }
  return {divided(c, p, expr(c, total), x.v.dims())};
}

Values avg_pool_backward(Context& c) {
  const Pool p = pool_of(c);
  const Expr g = wide(c, "grad_output");
  const Dims& full = c.result().dims;
  if (c.result().numel() == 0) return {c.b.zeros(c.result())};
  Value spread = divided(c, p, g, full);
  for (size_t i = 0; i < p.rank(); ++i) {
    const Window1d w = window_of(p, i, g.v.rank(), g.v.dims());
    spread = window_spread(c.b, i > 0 ? c.b.barrier(spread) : spread, w, full[static_cast<size_t>(w.dim)]);
  }
  return {spread};
}

// ---------------------------------------------------------------- adaptive

// Output i of `count` pools elements floor(i n / count) ... ceil((i + 1) n / count).
struct Bin {
  int64_t start, end;
};
std::vector<Bin> bins(int64_t n, int64_t count) {
  std::vector<Bin> all;
  all.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) all.push_back({i * n / count, ((i + 1) * n + count - 1) / count});
  return all;
}

// Bins of equal size tile the dim.
bool are_windows(int64_t n, int64_t count) { return count > 0 && n % count == 0; }

Value adaptive_average(Builder& b, const Value& x, int64_t dim, int64_t count) {
  const int64_t n = x.dims()[static_cast<size_t>(dim)];
  if (are_windows(n, count)) {
    const Value total = window_sum(b, x, {dim, n / count, n / count, 0, 1, count});
    return b.div(total, b.constant_int(n / count, total.type));
  }
  Values parts;
  for (const Bin bin : bins(n, count)) {
    const Value total = b.unsqueeze(b.sum(b.slice_dim(x, dim, bin.start, bin.end), {dim}), dim);
    parts.push_back(b.div(total, b.constant_int(bin.end - bin.start, total.type)));
  }
  return b.concatenate(parts, dim);
}

Value adaptive_average_gradient(Builder& b, const Value& g, int64_t dim, int64_t n) {
  const int64_t count = g.dims()[static_cast<size_t>(dim)];
  if (are_windows(n, count)) {
    const Value share = b.div(g, b.constant_int(n / count, g.type));
    return window_spread(b, share, {dim, n / count, n / count, 0, 1, count}, n);
  }
  Value total;
  Dims map(g.dims().size());
  for (size_t d = 0; d < map.size(); ++d) map[d] = static_cast<int64_t>(d);
  for (int64_t i = 0; const Bin bin : bins(n, count)) {
    const Value one = b.slice_dim(g, dim, i, i + 1);
    Dims covered = g.dims(), low(map.size(), 0), high = low;
    covered[static_cast<size_t>(dim)] = bin.end - bin.start;
    low[static_cast<size_t>(dim)] = bin.start;
    high[static_cast<size_t>(dim)] = n - bin.end;
    const Value share = b.div(one, b.constant_int(bin.end - bin.start, one.type));
    const Value term =
        b.pad(b.broadcast_in_dim(share, covered, map), b.zeros({g.elem(), {}}), low, high, Dims(map.size(), 0));
    total = total ? b.add(total, term) : term;
    ++i;
  }
  return total;
}

Values adaptive_avg_pool(Context& c) {
  const Dims sizes = c.integers("output_size");
  Value x = wide(c, "self");
  if (c.result().numel() == 0) return {c.b.zeros(c.result())};
  for (size_t i = sizes.size(); i-- > 0;) {
    x = adaptive_average(c.b, x, x.rank() - static_cast<int64_t>(sizes.size() - i), sizes[i]);
    if (i > 0) x = c.b.barrier(x);
  }
  return {x};
}

Values adaptive_avg_pool_backward(Context& c) {
  const int64_t spatial = c.overload().find("3d") != std::string_view::npos ? 3 : 2;
  Value g = wide(c, "grad_output");
  if (c.result().numel() == 0 || g.type.numel() == 0) return {c.b.zeros(c.result())};
  for (int64_t dim = g.rank() - spatial; dim < g.rank(); ++dim) {
    g = adaptive_average_gradient(c.b, g, dim, c.result().dims[static_cast<size_t>(dim)]);
    if (dim + 1 < g.rank()) g = c.b.barrier(g);
  }
  return {g};
}

// A maximum over each bin, by windows of one place.
Maximum adaptive_maximum(Builder& b, const Value& x, const Value& carried, int64_t dim, int64_t count) {
  const int64_t n = x.dims()[static_cast<size_t>(dim)];
  if (are_windows(n, count)) return window_max(b, x, carried, {dim, n / count, n / count, 0, 1, count});
  Values values, places, carrieds;
  for (const Bin bin : bins(n, count)) {
    const auto cut = [&](const Value& v) { return v ? b.slice_dim(v, dim, bin.start, bin.end) : v; };
    const Maximum m = window_max(b, cut(x), cut(carried), {dim, bin.end - bin.start, 1, 0, 1, 1});
    values.push_back(m.value);
    places.push_back(b.add(m.place, b.constant_int(bin.start, m.place.type)));
    if (carried) carrieds.push_back(m.carried);
  }
  return {b.concatenate(values, dim), b.concatenate(places, dim), carried ? b.concatenate(carrieds, dim) : Value{}};
}

Values adaptive_max_pool(Context& c) {
  Builder& b = c.b;
  const Dims sizes = c.integers("output_size");
  Value value = wide(c, "self"), flat;
  if (c.result(0).numel() == 0) return {b.zeros(c.result(0)), b.zeros(c.result(1))};
  int64_t inner = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    const int64_t dim = value.rank() - static_cast<int64_t>(sizes.size() - i),
                  n = value.dims()[static_cast<size_t>(dim)];
    const Maximum m = adaptive_maximum(b, value, flat, dim, sizes[i]);
    value = b.barrier(m.value);
    const Value place = b.mul(m.place, b.constant_int(inner, m.place.type));
    flat = b.barrier(flat ? b.add(place, m.carried) : place);
    inner *= n;
  }
  return {value, b.convert(flat, Elem::S64)};
}

}  // namespace

std::vector<Row> pooling_rows() {
  std::vector<Row> rows = {
      {.overloads = {"max_pool2d_with_indices.out", "max_pool3d_with_indices", "max_pool3d_with_indices.out"},
       .emit = max_pool},
      {.overloads = {"max_pool2d_with_indices_backward.grad_input", "max_pool3d_with_indices_backward",
                     "max_pool3d_with_indices_backward.grad_input"},
       .emit = max_pool_backward},
      {.overloads = {"avg_pool2d.out", "avg_pool3d.out"}, .emit = avg_pool},
      {.overloads = {"avg_pool2d_backward.grad_input", "avg_pool3d_backward.grad_input"}, .emit = avg_pool_backward},
      {.overloads = {"_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool2d.out",
                     "adaptive_avg_pool3d.out"},
       .emit = adaptive_avg_pool},
      {.overloads = {"_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward",
                     "adaptive_avg_pool3d_backward.grad_input"},
       .emit = adaptive_avg_pool_backward},
      {.overloads = {"adaptive_max_pool2d.out", "adaptive_max_pool3d.out"}, .emit = adaptive_max_pool},
      {.overloads = {"adaptive_max_pool2d_backward.grad_input", "adaptive_max_pool3d_backward.grad_input",
                     "fractional_max_pool2d_backward.grad_input"},
       .emit = backward_by_places},
      {.overloads = {"fractional_max_pool3d_backward", "fractional_max_pool3d_backward.grad_input"},
       .emit = backward_by_places,
       .shape = [](Context& c) { return std::vector{c.tensor("self").type}; }},  // it has no Meta kernel
  };
  for (Row& row : resample_rows()) rows.push_back(std::move(row));
  return rows;
}

}  // namespace tpupilot::ops
