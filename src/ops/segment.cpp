// segment_reduce: runs of a dim, given by their lengths or their offsets (with all dims before it as a batch), reduced
// to one element each; and its gradient.
#include <limits>

#include "ops/expr.h"
#include "ops/indexing.h"
#include "ops/scan.h"

namespace tpupilot::ops {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// data as [batch, length, inner].
struct Segments {
  int64_t batch, length, inner, count;
  Elem elem;
  Value lengths;  // S64 [batch, count]
  Value index;    // S64 [batch, length, inner]: the element's segment; out of range behind the last
  Type data() const { return {elem, {batch, length, inner}}; }
  Type segments() const { return {elem, {batch, count, inner}}; }
};

// Each element's segment: how many of the segments' starts (and the last one's end) lie at or before it.
Value segment_index(Builder& b, const Value& offsets, int64_t length) {
  const int64_t batch = offsets.dims()[0];
  const Type marks{Elem::S64, {batch, length}};
  const Value ones = b.constant_int(1, offsets.type);
  const Value starts = scatter_along(b, b.zeros(marks), offsets, ones, 1, "stablehlo.add");
  const Value counted = scan(b, "stablehlo.add", starts, b.zeros({Elem::S64, {}}), 1);
  return b.sub(counted, b.constant_int(1, marks));
}

Segments segments_of(Context& c) {
  Builder& b = c.b;
  const Value data = c.tensor("data");
  const bool by_lengths = c.given("lengths");
  const Value given = c.tensor(by_lengths ? "lengths" : "offsets");
  const auto axis = static_cast<size_t>(given.rank() - 1);
  Segments s{};
  s.batch = hlo::product(Dims(data.dims().begin(), data.dims().begin() + given.rank() - 1));
  s.length = data.dims()[axis];
  s.inner = hlo::product(Dims(data.dims().begin() + given.rank(), data.dims().end()));
  s.count = given.dims().back() - (by_lengths ? 0 : 1);
  s.elem = hlo::compute_elem(data.elem());
  const Value flat = b.reshape(b.convert(given, Elem::S64), {s.batch, given.dims().back()});
  Value offsets = flat;
  if (by_lengths) {
    s.lengths = flat;
    const Value ends = s.count > 0 ? scan(b, "stablehlo.add", flat, b.zeros({Elem::S64, {}}), 1) : flat;
    offsets = b.pad(ends, b.zeros({Elem::S64, {}}), {0, 1}, {0, 0}, {0, 0});
  } else {
    s.lengths = b.sub(b.slice_dim(flat, 1, 1, s.count + 1), b.slice_dim(flat, 1, 0, s.count));
  }
  if (s.data().numel() > 0) s.index = b.broadcast_in_dim(segment_index(b, offsets, s.length), s.data().dims, {0, 1});
  return s;
}

Expr data_of(Context& c, const Segments& s) {
  return expr(c, c.b.reshape(c.b.convert(c.tensor("data"), s.elem), s.data().dims));
}

// [batch, count] for each inner element.
Expr for_inner(const Expr& x, const Segments& s) { return {x.b, x.b->broadcast_in_dim(x, s.segments().dims, {0, 1})}; }
Expr lengths_of(Context& c, const Segments& s) { return for_inner(convert(expr(c, s.lengths), s.elem), s); }

Expr combined(Context& c, const Segments& s, const Expr& start, const Expr& x, std::string_view combiner) {
  return expr(c, s.index ? scatter_along(c.b, start, s.index, x, 1, combiner) : start.v);
}
// Each element's segment's value.
Expr of_own(Context& c, const Segments& s, const Expr& x) {
  return s.count == 0 ? expr(c, c.b.zeros(s.data())) : expr(c, gather_along(c.b, x, s.index, 1));
}

Expr start_of(Context& c, const Segments& s, double neutral) {
  if (c.given("initial")) return broadcast(expr(c, c.scalar("initial", s.elem)), s.segments().dims);
  return expr(c, c.b.constant(neutral, s.segments()));
}

Values segment_reduce(Context& c) {
  const Segments s = segments_of(c);
  const std::string reduce = c.string("reduce");
  if (c.result().numel() == 0) return {c.b.zeros(c.result())};
  const Expr x = data_of(c, s);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Expr out;
  if (reduce == "max") {
    out = combined(c, s, start_of(c, s, -kInfinity), x, "stablehlo.maximum");
  } else if (reduce == "min") {
    out = combined(c, s, start_of(c, s, kInfinity), x, "stablehlo.minimum");
  } else if (reduce == "prod") {
    out = combined(c, s, start_of(c, s, 1), x, "stablehlo.multiply");
  } else {
    out = combined(c, s, start_of(c, s, 0), x, "stablehlo.add");
  }
  if (reduce == "mean") {
    const Expr lengths = lengths_of(c, s);
    const Expr empty = c.given("initial") ? out : number(out, kNan);
    out = where(lengths > 0, out / lengths, empty);
  }
  return {c.b.reshape(out, c.result().dims)};
}

// The derivative of a product by each factor. A 0 or NaN among the others cannot be divided out of the whole.
Expr product_slope(Context& c, const Segments& s, const Expr& x, const Expr& output) {
  const auto totals = [&](const Expr& v) {
    return of_own(c, s, combined(c, s, number(expr(c, c.b.zeros(s.segments())), 0), v, "stablehlo.add"));
  };
  const Expr is_zero = equal(x, 0), is_nan = !equal(x, x);
  const Expr rest =
      of_own(c, s, combined(c, s, start_of(c, s, 1), where(is_zero | is_nan, 1, x), "stablehlo.multiply"));
  const Expr zeros = totals(convert(is_zero, s.elem)) - convert(is_zero, s.elem),
             nans = totals(convert(is_nan, s.elem)) - convert(is_nan, s.elem);
  const Expr others = where(nans > 0, kNan, where(zeros > 0, 0, rest));
  return where(is_zero | is_nan, others, of_own(c, s, output) / x);
}

Values segment_reduce_backward(Context& c) {
  Builder& b = c.b;
  const Segments s = segments_of(c);
  const std::string reduce = c.string("reduce");
  if (c.result().numel() == 0) return {b.zeros(c.result())};
  const Expr x = data_of(c, s);
  const auto segments = [&](std::string_view name) {
    return expr(c, b.reshape(b.convert(c.tensor(name), s.elem), s.segments().dims));
  };
  const Expr grad = segments("grad");
  Expr g = of_own(c, s, grad);
  if (reduce == "mean") g = of_own(c, s, grad / lengths_of(c, s));
  if (reduce == "prod") g = g * product_slope(c, s, x, segments("output"));
  if (reduce == "max" || reduce == "min") {  // shared by all that are equal to the result, or NaN
    const Expr hit = equal(x, of_own(c, s, segments("output"))) | !equal(x, x);
    const Expr hits = combined(c, s, expr(c, b.zeros(s.segments())), convert(hit, s.elem), "stablehlo.add");
    g = where(hit, g / of_own(c, s, hits), 0);
  }
  // Behind the last segment nothing was used.
  const Expr used = expr(c, s.index) < static_cast<double>(s.count);
  return {b.reshape(where(used, g, 0), c.result().dims)};
}

}  // namespace

std::vector<Row> segment_rows() {
  constexpr std::string_view kSums = "lengths and offsets are not checked against the data; ATen on CPU raises";
  return {
      {.overloads = {"segment_reduce"}, .emit = segment_reduce, .remark = kSums},
      {.overloads = {"_segment_reduce_backward"}, .emit = segment_reduce_backward, .remark = kSums},
  };
}

}  // namespace tpupilot::ops
