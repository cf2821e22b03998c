// grid_sampler_2d and _3d: each output point reads the input around a computed place. A place has, along each spatial
// dim, 1 (nearest), 2 (linear) or 4 (cubic) taps with weights; the point's value is the sum over all combinations.
#include <functional>

#include "ops/cubic.h"
#include "ops/expr.h"

namespace tpupilot::ops {
namespace {

enum Interpolation : int64_t { kLinear = 0, kNearest = 1, kBicubic = 2 };
enum Padding : int64_t { kZeros = 0, kBorder = 1, kReflection = 2 };

struct Call {
  int64_t interpolation, padding;
  bool align_corners;
  Dims sizes;  // spatial, outermost first
  int64_t batch, channels, points;
};

// A coordinate in elements, and its derivative by the grid's value.
struct Place {
  Expr at, slope;
};

// One tap along one dim; everything [N, points]. `slope` is the derivative of the weight by the grid's value.
struct Tap {
  Expr index, inside, weight, slope;  // index: floating, in range where `inside`
};

Place unnormalized(const Call& call, const Expr& grid, int64_t size) {
  const auto n = static_cast<double>(size);
  if (call.align_corners) return {(grid + 1) * ((n - 1) / 2), number(grid, (n - 1) / 2)};
  return {((grid + 1) * n - 1) * 0.5, number(grid, n / 2)};
}

// To 0 ... size - 1; NaN to 0. No slope outside.
Place clipped(const Place& p, int64_t size) {
  const auto last = static_cast<double>(size - 1);
  const Expr above = p.at > 0, below = p.at < last;
  return {where(above, minimum(p.at, last), 0), where(above & below, p.slope, 0)};
}

// Reflected between low / 2 and high / 2 as often as needed.
Place reflected(const Place& p, double twice_low, double twice_high) {
  if (twice_low == twice_high) return {number(p.at, 0), number(p.at, 0)};
  const double low = twice_low / 2, span = (twice_high - twice_low) / 2;
  const Expr shifted = p.at - low, from = abs(shifted);
  const Expr slope = where(shifted < 0, -p.slope, p.slope);
  const Expr extra = apply("stablehlo.remainder", from, number(from, span));
  const Expr flips = apply("stablehlo.floor", from / span);
  const Expr even = equal(apply("stablehlo.remainder", flips, number(flips, 2)), 0);
  return {where(even, extra + low, (span + low) - extra), where(even, slope, -slope)};
}

Place padded(const Call& call, const Place& p, int64_t size) {
  if (call.padding == kZeros) return p;
  if (call.padding == kBorder) return clipped(p, size);
  const auto n = static_cast<double>(size);
  return clipped(call.align_corners ? reflected(p, 0, 2 * (n - 1)) : reflected(p, -1, 2 * n - 1), size);
}

Expr in_range(const Expr& at, int64_t size) { return (at >= 0) & (at <= static_cast<double>(size - 1)); }

std::vector<Tap> taps_of(const Call& call, const Expr& grid, int64_t size) {
  const Place raw = unnormalized(call, grid, size);
  std::vector<Tap> taps;
  if (call.interpolation == kBicubic) {
    const Expr base = apply("stablehlo.floor", raw.at), t = raw.at - base;
    const auto weights = cubic_weights(t), slopes = cubic_slopes(t);
    for (size_t k = 0; k < 4; ++k) {
      const Expr at = padded(call, {base + (static_cast<double>(k) - 1), raw.slope}, size).at;
      taps.push_back({at, in_range(at, size), weights[k], slopes[k] * raw.slope});
    }
    return taps;
  }
  const Place place = padded(call, raw, size);
  if (call.interpolation == kNearest) {
    const Expr at = apply("stablehlo.round_nearest_even", place.at);
    return {{at, in_range(at, size), number(at, 1), number(at, 0)}};
  }
  const Expr low = apply("stablehlo.floor", place.at), t = place.at - low;
  return {{low, in_range(low, size), 1 - t, -place.slope}, {low + 1, in_range(low + 1, size), t, place.slope}};
}

Call call_of(Context& c) {
  const Dims in = c.tensor("input").dims();
  const Dims grid = c.tensor("grid").dims();
  Call call{c.integer("interpolation_mode"),
            c.integer("padding_mode"),
            c.boolean("align_corners"),
            Dims(in.begin() + 2, in.end()),
            in[0],
            in[1],
            hlo::product(Dims(grid.begin() + 1, grid.end() - 1))};
  if (call.interpolation == kBicubic && call.sizes.size() != 2)
    throw hlo::Error("grid_sampler(): bicubic interpolation only supports 4D input");
  return call;
}

// Taps of every spatial dim; the grid's last dim starts with the innermost.
std::vector<std::vector<Tap>> all_taps(Context& c, const Call& call, Elem elem) {
  const auto spatial = static_cast<int64_t>(call.sizes.size());
  const Value grid = c.b.reshape(c.b.convert(c.tensor("grid"), elem), {call.batch, call.points, spatial});
  std::vector<std::vector<Tap>> taps;
  for (int64_t d = 0; d < spatial; ++d) {
    const int64_t at = spatial - 1 - d;
    const Expr values = expr(c, c.b.squeeze(c.b.slice_dim(grid, 2, at, at + 1), 2));
    taps.push_back(taps_of(call, values, call.sizes[static_cast<size_t>(d)]));
  }
  return taps;
}

// One combination of taps: where it reads in the plane of the spatial dims, S64 [N, points, 1], and whether it may.
struct Corner {
  Value index;
  Expr inside;
  std::vector<const Tap*> taps;
};

Corner corner_of(Context& c, const Call& call, std::vector<const Tap*> taps) {
  Builder& b = c.b;
  Expr inside = taps[0]->inside;
  for (size_t d = 1; d < taps.size(); ++d) inside = inside & taps[d]->inside;
  Value flat;
  for (size_t d = 0; d < taps.size(); ++d) {
    const Value at = convert(where(inside, taps[d]->index, 0), Elem::S64);
    flat = flat ? b.add(b.mul(flat, b.constant_int(call.sizes[d], flat.type)), at) : at;
  }
  return {b.unsqueeze(flat, 2), inside, std::move(taps)};
}

void for_corners(Context& c, const Call& call, const std::vector<std::vector<Tap>>& taps,
                 const std::function<void(const Corner&)>& each) {
  const std::function<void(std::vector<const Tap*>)> descend = [&](const std::vector<const Tap*>& chosen) {
    if (chosen.size() == taps.size()) return each(corner_of(c, call, chosen));
    for (const Tap& tap : taps[chosen.size()]) {
      std::vector<const Tap*> more = chosen;
      more.push_back(&tap);
      descend(more);
    }
  };
  descend({});
}

// The product of the weights; along dim `slope` of the weight's derivative.
Expr weight_of(const Corner& corner, size_t slope = static_cast<size_t>(-1)) {
  Expr product;
  for (size_t d = 0; d < corner.taps.size(); ++d) {
    const Expr& factor = d == slope ? corner.taps[d]->slope : corner.taps[d]->weight;
    product = d == 0 ? factor : product * factor;
  }
  return product;
}

// [N, points] for every channel.
Expr for_channels(const Expr& x, const Call& call) {
  return {x.b, x.b->broadcast_in_dim(x, {call.batch, call.channels, call.points}, {0, 2})};
}

// The input at a corner, [N, C, points]; 0 outside.
Expr read(Context& c, const Call& call, const Value& planes, const Corner& corner) {
  const hlo::Gather g{{1}, {2}, {0}, {0}, {2}, 2, {1, call.channels, 1}};
  const Value taken = c.b.gather(planes, corner.index, g, {call.batch, call.channels, call.points});
  return where(for_channels(corner.inside, call), expr(c, taken), 0);
}

Value planes_of(Context& c, const Call& call, Elem elem) {
  return c.b.reshape(c.b.convert(c.tensor("input"), elem), {call.batch, call.channels, hlo::product(call.sizes)});
}

Values grid_sampler(Context& c) {
  const Call call = call_of(c);
  if (c.result().numel() == 0) return {c.b.zeros(c.result())};
  const Elem elem = result_opmath(c);
  const auto taps = all_taps(c, call, elem);
  const Value planes = planes_of(c, call, elem);
  Expr total;
  for_corners(c, call, taps, [&](const Corner& corner) {
    const Expr part = read(c, call, planes, corner) * for_channels(weight_of(corner), call);
    total = total.v ? total + part : part;
  });
  return {reshape(total, c.result().dims)};
}

// What a corner adds to the input's gradient.
Value written(Context& c, const Call& call, const Value& total, const Corner& corner, const Expr& g) {
  const Expr part = where(for_channels(corner.inside, call), g * for_channels(weight_of(corner), call), 0);
  const hlo::Scatter s{{1}, {2}, {0}, {0}, {2}, 2};
  return c.b.scatter(total, corner.index, part, s, "stablehlo.add");
}

Values grid_sampler_backward(Context& c) {
  Builder& b = c.b;
  const Call call = call_of(c);
  const std::vector<bool> wanted = c.booleans("output_mask");
  const Elem elem = hlo::compute_elem(c.tensor("input").elem());
  if (c.tensor("grad_output").type.numel() == 0 || c.tensor("input").type.numel() == 0) {
    return {wanted[0] ? b.zeros(c.tensor("input").type) : Value{},
            wanted[1] ? b.zeros(c.tensor("grid").type) : Value{}};
  }
  const auto taps = all_taps(c, call, elem);
  const Expr g = expr(c, b.reshape(b.convert(c.tensor("grad_output"), elem), {call.batch, call.channels, call.points}));
  const Value planes = planes_of(c, call, elem);
  Value input = b.zeros(planes.type);
  std::vector<Expr> slopes(taps.size(), expr(c, b.zeros({elem, {call.batch, call.points}})));
  for_corners(c, call, taps, [&](const Corner& corner) {
    if (wanted[0]) input = written(c, call, input, corner, g);
    if (!wanted[1] || call.interpolation == kNearest) return;
    const Expr meeting = sum(g * read(c, call, planes, corner), {1});
    for (size_t d = 0; d < slopes.size(); ++d) slopes[d] = slopes[d] + meeting * weight_of(corner, d);
  });
  Values columns;
  for (size_t d = slopes.size(); d-- > 0;) columns.push_back(b.unsqueeze(slopes[d], 2));
  return {wanted[0] ? b.reshape(input, c.tensor("input").dims()) : Value{},
          wanted[1] ? b.reshape(b.concatenate(columns, 2), c.tensor("grid").dims()) : Value{}};
}

std::vector<Type> sampled_shape(Context& c) {
  const Type input = c.tensor("input").type;
  const Dims grid = c.tensor("grid").dims();
  Dims dims{input.dims[0], input.dims[1]};
  dims.insert(dims.end(), grid.begin() + 1, grid.end() - 1);
  return {input.with(dims)};
}

}  // namespace

std::vector<Row> grid_sample_rows() {
  return {
      {.overloads = {"grid_sampler_2d", "grid_sampler_3d"}, .emit = grid_sampler},
      {.overloads = {"_grid_sampler_2d_cpu_fallback"}, .emit = grid_sampler, .shape = sampled_shape},
      {.overloads = {"grid_sampler_2d_backward", "grid_sampler_3d_backward"}, .emit = grid_sampler_backward},
  };
}

}  // namespace tpupilot::ops
