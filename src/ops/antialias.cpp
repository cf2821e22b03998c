// Antialiased resampling is separable: along each dim an output is a weighted sum of the input elements under its
// filter, whose width is the scale's (at least one element's) times the filter's. Weights add up to 1. The number of
// elements decides the form of the program, so the scales are part of the key here.
#include "ops/antialias.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/cubic.h"
#include "ops/expr.h"
#include "ops/indexing.h"

namespace tpupilot::ops {
namespace {

struct Filter {
  double width;  // its support, in input elements at a scale of 1
  Expr (*weight)(const Expr& distance);
};

Expr triangle(const Expr& u) { return maximum(1 - abs(u), 0); }

Expr cubic(const Expr& u) {
  constexpr double a = -0.5;  // as Pillow's, which ATen follows here
  const Expr x = abs(u);
  return where(x < 1, cubic_near(x, a), where(x < 2, cubic_far(x, a), 0));
}

Expr sinc(const Expr& u) {
  const Expr x = u * std::numbers::pi;
  return where(equal(u, 0), 1, apply("stablehlo.sine", x) / x);
}
Expr lanczos3(const Expr& u) { return where((u >= -3) & (u < 3), sinc(u) * sinc(u / 3), 0); }

// The elements under the filter of each output along one dim: `first` ... first + count.
struct Reach {
  Expr first, weight_total;
  std::vector<Value> index;  // S64, in range
  std::vector<Expr> weight;
};

double scale_of(Context& c, int64_t in, int64_t out, std::string_view name) {
  if (c.boolean("align_corners")) return out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0;
  if (c.given(name) && c.constant(name) > 0) return 1 / c.constant(name);
  return static_cast<double>(in) / static_cast<double>(out);
}

Reach reach_of(Context& c, const Filter& filter, int64_t in, int64_t out, std::string_view scale_name, Elem elem) {
  const double exact = scale_of(c, in, out, scale_name);
  const double scale = elem == Elem::F64 ? exact : static_cast<double>(static_cast<float>(exact));
  const double support = filter.width / 2 * std::max(scale, 1.0), inverse = scale >= 1 ? 1 / scale : 1;
  const Expr at = expr(c, c.b.iota({elem, {out}}, 0)), centre = (at + 0.5) * scale;
  const auto last = static_cast<double>(in);
  const auto whole = [](const Expr& x) { return convert(convert(x, Elem::S64), x.v.elem()); };  // towards zero
  const Expr first = maximum(whole(centre - support + 0.5), 0), end = minimum(whole(centre + support + 0.5), last);
  Reach reach{first, number(at, 0), {}, {}};
  const auto most = std::min(in, static_cast<int64_t>(std::ceil(support)) * 2 + 1);
  for (int64_t k = 0; k < most; ++k) {
    const Expr element = first + static_cast<double>(k);
    const Expr weight = where(element < end, filter.weight((element - centre + 0.5) * inverse), 0);
    reach.index.push_back(convert(minimum(element, last - 1), Elem::S64));
    reach.weight.push_back(weight);
    reach.weight_total = reach.weight_total + weight;
  }
  for (Expr& weight : reach.weight) weight = where(equal(reach.weight_total, 0), weight, weight / reach.weight_total);
  return reach;
}

constexpr std::string_view kScales[] = {"scales_h", "scales_w"};

Value resampled(Context& c, const Filter& filter, Value x, const Dims& out) {
  for (size_t i = 2; i-- > 0;) {  // the last dim first
    const size_t dim = 2 + i;
    const Reach reach = reach_of(c, filter, x.dims()[dim], out[dim], kScales[i], x.elem());
    Expr total;
    for (size_t k = 0; k < reach.index.size(); ++k) {
      const Expr taken = expr(c, take_slices(c.b, x, reach.index[k], static_cast<int64_t>(dim)));
      // Elements that are not under the filter count nothing, whatever stands there.
      const Expr weight = along(reach.weight[k], static_cast<int64_t>(dim), taken.v.dims());
      const Expr part = where(equal(weight, 0), 0, taken * weight);
      total = total.v ? total + part : part;
    }
    x = total;
  }
  return x;
}

Value gradient(Context& c, const Filter& filter, Value g, const Dims& in) {
  for (size_t i = 0; i < 2; ++i) {
    const size_t dim = 2 + i;
    const Reach reach = reach_of(c, filter, in[dim], g.dims()[dim], kScales[i], g.elem());
    Dims dims = g.dims();
    dims[dim] = in[dim];
    Value total = c.b.zeros(g.type.with(dims));
    for (size_t k = 0; k < reach.index.size(); ++k) {
      const Expr weight = along(reach.weight[k], static_cast<int64_t>(dim), g.dims());
      const Expr part = where(equal(weight, 0), 0, expr(c, g) * weight);
      total = put_slices(c.b, total, reach.index[k], part, static_cast<int64_t>(dim), "stablehlo.add");
    }
    g = total;
  }
  return g;
}

void add(std::vector<Row>& rows, std::string_view forward, std::string_view backward, Filter filter) {
  rows.push_back({.overloads = {forward},
                  .emit =
                      [filter](Context& c) {
                        if (c.result().numel() == 0) return Values{c.b.zeros(c.result())};
                        const Elem given = c.result().elem;
                        const Elem elem = hlo::is_float(given) ? hlo::compute_elem(given) : Elem::F32;
                        const Value x = c.b.convert(c.tensor("self"), elem);
                        return Values{rounded_to(c, resampled(c, filter, x, c.result().dims), given)};
                      },
                  .constants = {"scales_h", "scales_w"}});
  rows.push_back({.overloads = {backward},
                  .emit =
                      [filter](Context& c) {
                        if (c.result().numel() == 0) return Values{c.b.zeros(c.result())};
                        return Values{gradient(c, filter, wide(c, "grad_output"), c.result().dims)};
                      },
                  .constants = {"scales_h", "scales_w"}});
}

}  // namespace

Value rounded_to(Context& c, const Value& x, Elem elem) {
  if (!hlo::is_integer(elem) || !hlo::is_float(x.elem())) return x;
  const Expr nearest = apply("stablehlo.round_nearest_even", expr(c, x));
  if (elem != Elem::U8) return c.b.convert(nearest, elem);
  return c.b.convert(minimum(maximum(nearest, 0), 255), elem);
}

std::vector<Row> antialias_rows() {
  std::vector<Row> rows;
  add(rows, "_upsample_bilinear2d_aa.out", "_upsample_bilinear2d_aa_backward.grad_input", {2, triangle});
  add(rows, "_upsample_bicubic2d_aa.out", "_upsample_bicubic2d_aa_backward.grad_input", {4, cubic});
  add(rows, "_upsample_lanczos2d_aa.out", "_upsample_lanczos2d_aa_backward.grad_input", {6, lanczos3});
  return rows;
}

}  // namespace tpupilot::ops
