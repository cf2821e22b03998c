// Histograms over one or more dims, as at::native::histogramdd has them: bins are half open, but the last includes its
// right edge; what lies outside is not counted.
#include <string>

#include "ops/indexing.h"
#include "ops/promote.h"
#include "ops/sorting.h"

namespace tpupilot::ops {
namespace {

using hlo::Direction;

// self as [points, dims]; histogram's is one-dimensional.
Value points_of(Context& c) {
  const Value x = c.tensor("self");
  const bool many = c.overload().starts_with("_histogramdd") || c.overload().starts_with("bin_edges");
  const int64_t columns = many ? x.dims().back() : 1;
  return c.b.reshape(x, {hlo::product(Dims(x.dims().begin(), x.dims().end() - (many ? 1 : 0))), columns});
}

Value column(Builder& b, const Value& points, int64_t d) {
  return b.reshape(b.slice_dim(points, 1, d, d + 1), {points.dims()[0]});
}

struct Ends {
  Expr left, right;
};

// Widened by `margin` on both sides where they are equal.
Ends apart(const Ends& e, double margin) {
  const Expr same = equal(e.left, e.right);
  return {where(same, e.left - margin, e.left), where(same, e.right + margin, e.right)};
}

Ends ends_of_data(Context& c, const Value& x) {
  if (x.type.numel() == 0) {
    return {expr(c, c.b.zeros({x.elem(), {}})), expr(c, c.b.constant(1, {x.elem(), {}}))};
  }
  return {expr(c, c.b.amin(x, {0})), expr(c, c.b.amax(x, {0}))};
}

Ends ends_of(Context& c, const Value& x, int64_t d) {
  const std::vector<double> range = c.floats("range");
  if (range.empty()) return apart(ends_of_data(c, x), 0.5);
  const Type scalar{x.elem(), {}};
  return apart({expr(c, c.b.constant(range.at(2 * d), scalar)), expr(c, c.b.constant(range.at(2 * d + 1), scalar))},
               0.5);
}

// at::linspace with bins + 1 steps: the second half counts from the end.
Value even_edges(Context& c, const Ends& e, int64_t bins) {
  Builder& b = c.b;
  const Elem elem = e.left.v.elem();
  const Type index{Elem::S64, {bins + 1}};
  const Value i = b.iota(index, 0);
  const Expr from_start = expr(c, b.convert(i, elem));
  const Expr from_end = expr(c, b.convert(b.sub(b.constant_int(bins, index), i), elem));
  const Expr step = (e.right - e.left) / static_cast<double>(bins);
  const Expr low = expr(c, b.compare(Direction::LT, i, b.constant_int((bins + 1) / 2, index)));
  const Dims dims{bins + 1};
  const Expr wide = broadcast(step, dims);
  return where(low, broadcast(e.left, dims) + wide * from_start, broadcast(e.right, dims) - wide * from_end);
}

Expr within(const Expr& x, const Expr& left, const Expr& right) { return (x >= left) & (x <= right); }

// The bin of each element, `bins` for those outside.
Value bins_by_search(Context& c, const Value& x, const Value& edges) {
  Builder& b = c.b;
  const int64_t bins = edges.dims()[0] - 1;
  const auto edge = [&](int64_t i) { return expr(c, b.reshape(b.slice_dim(edges, 0, i, i + 1), {})); };
  const Type index{Elem::S64, x.dims()};
  const Value above = b.sub(search_sorted(b, edges, x, true), b.constant_int(1, index));
  const Value bin = b.min(above, b.constant_int(bins - 1, index));
  return b.select(within(expr(c, x), edge(0), edge(bins)), bin, b.constant_int(bins, index));
}

struct Axis {
  Value edges, bins;
};

// The sums of the weights, or the counts, in all bins of all axes; a density if asked for.
Value binned(Context& c, const std::vector<Axis>& axes, int64_t points) {
  Builder& b = c.b;
  const Elem elem = axes[0].edges.elem();
  const Type index{Elem::S64, {points}};
  Value place = b.zeros(index), known = b.constant_int(1, {Elem::Pred, {points}});
  Dims shape;
  for (const Axis& a : axes) {
    const int64_t bins = a.edges.dims()[0] - 1;
    shape.push_back(bins);
    place = b.add(b.mul(place, b.constant_int(bins, index)), a.bins);
    known = b.logical_and(known, b.compare(Direction::LT, a.bins, b.constant_int(bins, index)));
  }
  const int64_t total = hlo::product(shape);
  place = b.select(known, place, b.constant_int(total, index));
  const bool weighted = c.has_argument("weight") && c.given("weight");
  const Value amounts =
      weighted ? b.reshape(b.convert(c.tensor("weight"), elem), {points}) : b.constant(1, index.with(elem));
  Expr hist = expr(c, b.reshape(put_slices(b, b.zeros({elem, {total}}), place, amounts, 0, "stablehlo.add"), shape));
  if (!c.has_argument("density") || !c.boolean("density")) return hist;
  Dims all;
  for (size_t d = 0; d < shape.size(); ++d) all.push_back(static_cast<int64_t>(d));
  hist = hist / sum_like(hist, all);
  for (size_t d = 0; d < axes.size(); ++d) {
    const Value& e = axes[d].edges;
    const Expr widths = expr(c, b.sub(b.slice_dim(e, 0, 1, shape[d] + 1), b.slice_dim(e, 0, 0, shape[d])));
    hist = hist / along(widths, static_cast<int64_t>(d), shape);
  }
  return hist;
}

Axis even_axis(Context& c, const Value& points, int64_t d, int64_t bins) {
  const Value x = column(c.b, points, d);
  const Value edges = even_edges(c, ends_of(c, x, d), bins);
  return {edges, bins_by_search(c, x, edges)};
}

Values histogram_count(Context& c) {
  const Value points = points_of(c);
  const Axis axis = even_axis(c, points, 0, c.integer("bins"));
  return {binned(c, {axis}, points.dims()[0]), axis.edges};
}
Values histogram_edges(Context& c) {
  const Value points = points_of(c), edges = c.tensor("bins");
  return {binned(c, {{edges, bins_by_search(c, column(c.b, points, 0), edges)}}, points.dims()[0]), edges};
}
Values histogramdd_counts(Context& c) {
  const Value points = points_of(c);
  const Dims bins = c.integers("bins");
  std::vector<Axis> axes;
  axes.reserve(bins.size());
  for (size_t d = 0; d < bins.size(); ++d) axes.push_back(even_axis(c, points, static_cast<int64_t>(d), bins[d]));
  return {binned(c, axes, points.dims()[0])};
}
Values histogramdd_edges(Context& c) {
  const Value points = points_of(c);
  std::vector<Axis> axes;
  for (const std::optional<Value>& edges : c.tensors("bins")) {
    const Value x = column(c.b, points, static_cast<int64_t>(axes.size()));
    axes.push_back({*edges, bins_by_search(c, x, *edges)});
  }
  return {binned(c, axes, points.dims()[0])};
}

Values bin_edges(Context& c) {
  const int64_t d = c.integer("dim");
  return {even_edges(c, ends_of(c, column(c.b, points_of(c), d), d), c.integer("bins"))};
}

// The bin by the element's share of the range, in the element's own type; equal bounds mean the data's.
Values histc(Context& c) {
  Builder& b = c.b;
  const Value given = c.tensor("self");
  const int64_t bins = c.integer("bins"), n = given.type.numel();
  if (n == 0) return {b.zeros(c.result())};
  const Value x = b.reshape(given, {n});
  const Expr least = expr(c, c.scalar("min", x.elem())), most = expr(c, c.scalar("max", x.elem()));
  const Expr same = equal(least, most);
  const Ends data = ends_of_data(c, x);
  const Ends e = apart({where(same, data.left, least), where(same, data.right, most)}, 1);
  const Expr share = (expr(c, x) - e.left) * static_cast<double>(bins) / (e.right - e.left);
  const Type index{Elem::S64, {n}};
  const Value bin = b.min(convert_like_aten(b, share, Elem::S64), b.constant_int(bins - 1, index));
  const Value place = b.select(within(expr(c, x), e.left, e.right), bin, b.constant_int(bins, index));
  return {put_slices(b, b.zeros(c.result()), place, b.constant(1, index.with(x.elem())), 0, "stablehlo.add")};
}

std::vector<Type> one_axis(Context& c) {
  const Elem elem = c.tensor("self").elem();
  const int64_t bins =
      c.overload().starts_with("histogram.bin_ct") ? c.integer("bins") : c.tensor("bins").dims()[0] - 1;
  return {{elem, {bins}}, {elem, {bins + 1}}};
}
std::vector<Type> many_axes(Context& c) {
  Dims bins;
  if (c.overload() == "_histogramdd_from_bin_cts") {
    bins = c.integers("bins");
  } else {
    for (const std::optional<Value>& edges : c.tensors("bins")) bins.push_back(edges->dims().at(0) - 1);
  }
  return {{c.tensor("self").elem(), bins}};
}

}  // namespace

std::vector<InternalOp> histogram_ops() {
  return {{"bin_edges(Tensor self, int dim, int bins, float[]? range) -> Tensor",
           {.emit = bin_edges, .shape = [](Context& c) {
              return std::vector<Type>{{c.tensor("self").elem(), {c.integer("bins") + 1}}};
            }}}};
}

std::vector<Row> histogram_rows() {
  constexpr std::string_view kRange = "a range that is not finite because the data are not is not noticed";
  return {
      {.overloads = {"histc", "histc.out"}, .emit = histc, .remark = kRange},
      {.overloads = {"histogram.bin_ct", "histogram.bin_ct_out"},
       .emit = histogram_count,
       .shape = one_axis,
       .remark = kRange},
      {.overloads = {"histogram.bins_tensor", "histogram.bins_tensor_out"}, .emit = histogram_edges, .shape = one_axis},
      {.overloads = {"_histogramdd_from_bin_cts"}, .emit = histogramdd_counts, .shape = many_axes, .remark = kRange},
      {.overloads = {"_histogramdd_from_bin_tensors"}, .emit = histogramdd_edges, .shape = many_axes},
  };
}

}  // namespace tpupilot::ops
