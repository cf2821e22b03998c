// upsample_*: each spatial dim in turn takes, for output i, one source element (nearest) or two with weights (linear).
// The source place depends on a scale that is a program input, so it is computed in the program, in f32 as ATen does.
#include "ops/resample.h"

#include "ops/antialias.h"
#include "ops/cubic.h"
#include "ops/expr.h"
#include "ops/indexing.h"
#include "ops/windows.h"

namespace tpupilot::ops {
namespace {

enum class Mode { Nearest, NearestExact, Linear, Cubic };

struct Call {
  Mode mode;
  bool align_corners = false;
  int64_t first_dim = 2;
  Dims in, out;  // sizes of the spatial dims
};

// The type that the weights are computed in.
Elem compute_type(Elem elem) { return hlo::is_float(elem) ? hlo::compute_elem(elem) : Elem::F32; }

Call call_of(Context& c, Mode mode, const Dims& in, const Dims& out) {
  return {mode, c.has_argument("align_corners") && c.boolean("align_corners"), 2, Dims(in.begin() + 2, in.end()),
          Dims(out.begin() + 2, out.end())};
}

// Input elements per output element along spatial dim i.
Expr scale_of(Context& c, const Call& call, size_t i, Elem elem) {
  const auto in = static_cast<double>(call.in[i]), out = static_cast<double>(call.out[i]);
  const auto constant = [&](double v) { return expr(c, c.b.constant(v, {elem, {}})); };
  if (call.align_corners) return constant(out > 1 ? (in - 1) / (out - 1) : 0);
  static constexpr std::string_view kNames[] = {"scales_d", "scales_h", "scales_w"};
  const std::string_view name = call.in.size() == 1 ? "scales" : kNames[3 - call.in.size() + i];
  if (!c.given(name)) return constant(in / out);
  const Expr given = expr(c, c.scalar(name, Elem::F64));
  return where(given > 0, convert(1 / given, elem), constant(in / out));
}

Expr positions(Context& c, int64_t count, Elem elem) { return expr(c, c.b.iota({elem, {count}}, 0)); }

// The source element of each output along spatial dim i; S64, in range.
Value nearest_source(Context& c, const Call& call, size_t i) {
  const int64_t in = call.in[i], out = call.out[i];
  Expr place = positions(c, out, Elem::F32);
  if (call.mode == Mode::NearestExact) place = place + 0.5;
  place = apply("stablehlo.floor", place * scale_of(c, call, i, Elem::F32));
  return convert(minimum(place, static_cast<double>(in - 1)), Elem::S64);
}

bool is_nearest(const Call& call) { return call.mode == Mode::Nearest || call.mode == Mode::NearestExact; }

// out = in and out = 2 in need no scale: each element is repeated.
bool is_repeat(const Call& call, size_t i) {
  return call.mode == Mode::Nearest && (call.out[i] == call.in[i] || call.out[i] == 2 * call.in[i]);
}
Window1d repeat_window(const Call& call, size_t i) {
  const int64_t times = call.out[i] / call.in[i];
  return {call.first_dim + static_cast<int64_t>(i), times, times, 0, 1, call.in[i]};
}

// A source element of each output along a dim, and its weight.
struct Tap {
  Value index;  // S64
  Expr weight;
};

std::vector<Tap> cubic_taps(Context& c, const Call& call, size_t i, Elem elem) {
  const Expr scale = scale_of(c, call, i, elem), at = positions(c, call.out[i], elem);
  const Expr place = call.align_corners ? at * scale : (at + 0.5) * scale - 0.5;
  const Expr base = apply("stablehlo.floor", place);
  const auto weights = cubic_weights(place - base);
  std::vector<Tap> taps;
  for (size_t k = 0; k < weights.size(); ++k) {
    const Expr source = maximum(minimum(base + (static_cast<double>(k) - 1), static_cast<double>(call.in[i] - 1)), 0);
    taps.push_back({convert(source, Elem::S64), weights[k]});
  }
  return taps;
}

std::vector<Tap> linear_taps(Context& c, const Call& call, size_t i, Elem elem) {
  const Expr scale = scale_of(c, call, i, elem), at = positions(c, call.out[i], elem);
  Expr place = call.align_corners ? at * scale : maximum((at + 0.5) * scale - 0.5, 0);
  const auto last = static_cast<double>(call.in[i] - 1);
  const Expr low = minimum(apply("stablehlo.floor", place), last);
  const Expr weight = minimum(maximum(place - low, 0), 1);
  return {{convert(low, Elem::S64), 1 - weight}, {convert(minimum(low + 1, last), Elem::S64), weight}};
}

// Empty where the dim stays as it is.
std::vector<Tap> taps_of(Context& c, const Call& call, size_t i, Elem elem) {
  if (call.mode == Mode::Cubic) return cubic_taps(c, call, i, elem);
  return call.in[i] == call.out[i] ? std::vector<Tap>{} : linear_taps(c, call, i, elem);
}

Value resampled(Context& c, const Call& call, Value x) {
  Builder& b = c.b;
  for (size_t i = 0; i < call.in.size(); ++i) {
    const int64_t dim = call.first_dim + static_cast<int64_t>(i);
    if (is_repeat(call, i)) {
      x = window_spread(b, x, repeat_window(call, i), call.out[i]);
    } else if (is_nearest(call)) {
      x = take_slices(b, x, nearest_source(c, call, i), dim);
    } else {
      Expr total;
      for (const Tap& tap : taps_of(c, call, i, x.elem())) {
        const Expr taken = expr(c, take_slices(b, x, tap.index, dim));
        const Expr part = taken * along(tap.weight, dim, taken.v.dims());
        total = total.v ? total + part : part;
      }
      if (total.v) x = total;
    }
  }
  return x;
}

Value gradient(Context& c, const Call& call, Value g) {
  Builder& b = c.b;
  for (size_t i = 0; i < call.in.size(); ++i) {
    const int64_t dim = call.first_dim + static_cast<int64_t>(i);
    Dims smaller = g.dims();
    smaller[static_cast<size_t>(dim)] = call.in[i];
    const Value zeros = b.zeros(g.type.with(smaller));
    if (is_repeat(call, i)) {
      g = window_sum(b, g, repeat_window(call, i));
    } else if (is_nearest(call)) {
      g = put_slices(b, zeros, nearest_source(c, call, i), g, dim, "stablehlo.add");
    } else {
      Value total = zeros;
      const std::vector<Tap> taps = taps_of(c, call, i, g.elem());
      for (const Tap& tap : taps)
        total = put_slices(b, total, tap.index, expr(c, g) * along(tap.weight, dim, g.dims()), dim, "stablehlo.add");
      if (!taps.empty()) g = total;
    }
  }
  return g;
}

void add_rows(std::vector<Row>& rows, std::string_view forward, std::string_view backward, Mode mode) {
  rows.push_back({.overloads = {forward}, .emit = [mode](Context& c) {
                    Value x = c.tensor("self");
                    if (mode == Mode::Linear || mode == Mode::Cubic) x = c.b.convert(x, compute_type(x.elem()));
                    const Value y = resampled(c, call_of(c, mode, x.dims(), c.result().dims), x);
                    return Values{rounded_to(c, y, c.result().elem)};
                  }});
  rows.push_back({.overloads = {backward}, .emit = [mode](Context& c) {
                    const Value g = wide(c, "grad_output");
                    return Values{gradient(c, call_of(c, mode, c.integers("input_size"), g.dims()), g)};
                  }});
}

}  // namespace

std::vector<Row> resample_rows() {
  std::vector<Row> rows;
  add_rows(rows, "upsample_nearest1d.out", "upsample_nearest1d_backward.grad_input", Mode::Nearest);
  add_rows(rows, "upsample_nearest2d.out", "upsample_nearest2d_backward.grad_input", Mode::Nearest);
  add_rows(rows, "upsample_nearest3d.out", "upsample_nearest3d_backward.grad_input", Mode::Nearest);
  add_rows(rows, "_upsample_nearest_exact1d.out", "_upsample_nearest_exact1d_backward.grad_input", Mode::NearestExact);
  add_rows(rows, "_upsample_nearest_exact2d.out", "_upsample_nearest_exact2d_backward.grad_input", Mode::NearestExact);
  add_rows(rows, "_upsample_nearest_exact3d.out", "_upsample_nearest_exact3d_backward.grad_input", Mode::NearestExact);
  add_rows(rows, "upsample_linear1d.out", "upsample_linear1d_backward.grad_input", Mode::Linear);
  add_rows(rows, "upsample_bilinear2d.out", "upsample_bilinear2d_backward.grad_input", Mode::Linear);
  add_rows(rows, "upsample_trilinear3d.out", "upsample_trilinear3d_backward.grad_input", Mode::Linear);
  add_rows(rows, "upsample_bicubic2d.out", "upsample_bicubic2d_backward.grad_input", Mode::Cubic);
  for (Row& row : antialias_rows()) rows.push_back(std::move(row));
  return rows;
}

}  // namespace tpupilot::ops
