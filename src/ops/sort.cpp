// What depends on the order of elements along one dim: sorting, order statistics, the most common value, binary search.
#include "ops/indexing.h"
#include "ops/promote.h"
#include "ops/scan.h"
#include "ops/sorting.h"

namespace tpupilot::ops {
namespace {

using hlo::Direction;

Value at_least_1d(Builder& b, const Value& x) { return x.rank() == 0 ? b.reshape(x, {1}) : x; }

struct Line {  // the argument "self", and the dim that its elements are ordered along
  Value x;
  int64_t dim;

  int64_t length() const { return x.dims()[dim]; }
};

Line line(Context& c) {
  const Value x = at_least_1d(c.b, c.tensor("self"));
  return {x, hlo::wrap_dim(c.integer("dim"), x.rank())};
}

Values in_result_shapes(Context& c, const Value& values, const Value& indices) {
  return {c.b.reshape(values, c.result(0).dims), c.b.reshape(indices, c.result(1).dims)};
}

Values sort_stable(Context& c) {
  const Line l = line(c);
  const Sorted s = sorted(c.b, l.x, l.dim, c.boolean("descending"));
  return in_result_shapes(c, s.values, s.indices);
}

Values topk(Context& c) {
  const Line l = line(c);
  const Sorted s = sorted(c.b, l.x, l.dim, c.boolean("largest"));
  const int64_t k = c.integer("k");
  return in_result_shapes(c, c.b.slice_dim(s.values, l.dim, 0, k), c.b.slice_dim(s.indices, l.dim, 0, k));
}

Values kthvalue(Context& c) {
  const Line l = line(c);
  const int64_t k = c.integer("k");
  if (k < 1 || k > l.length()) {
    throw hlo::Error("[kthvalue] k = " + std::to_string(k) + " is not within 1 and the dim's length " +
                     std::to_string(l.length()));
  }
  const Sorted s = sorted(c.b, l.x, l.dim, false);
  return in_result_shapes(c, c.b.slice_dim(s.values, l.dim, k - 1, k), c.b.slice_dim(s.indices, l.dim, k - 1, k));
}

// ---- medians: the lower one of two; NaN if there is one, or the median of what is not NaN ----
Value length_without_nan(Builder& b, const Line& l) {
  const Value counted = b.convert(b.logical_not(b.is_nan(l.x)), Elem::S64);
  return b.keep_dims(b.sum(counted, {l.dim}), l.x.dims(), {l.dim});
}

// The rank, in sorted order, of the median of each line: S64 with size 1 at the dim.
Value median_rank(Builder& b, const Line& l, bool ignore_nan) {
  const Value known = length_without_nan(b, l);
  const auto fixed = [&](int64_t v) { return b.constant_int(v, known.type); };
  Value of_known = b.binary("stablehlo.shift_right_arithmetic", b.sub(b.max(known, fixed(1)), fixed(1)), fixed(1));
  if (ignore_nan) return of_known;
  // The first NaN stands behind the last number.
  return b.select(b.compare(Direction::LT, known, fixed(l.length())), known, fixed((l.length() - 1) / 2));
}

Emitter median_along(bool ignore_nan) {
  return [ignore_nan](Context& c) {
    const Line l = line(c);
    const Sorted s = sorted(c.b, l.x, l.dim, false);
    const Value rank = median_rank(c.b, l, ignore_nan);
    return in_result_shapes(c, gather_along(c.b, s.values, rank, l.dim), gather_along(c.b, s.indices, rank, l.dim));
  };
}

Emitter median_of_all(bool ignore_nan) {
  return [ignore_nan](Context& c) {
    const Value x = c.tensor("self");
    const Line l{c.b.reshape(x, {x.type.numel()}), 0};
    if (l.length() == 0) {  // at::native::median of nothing
      return Values{hlo::is_float(x.elem()) ? c.b.constant(std::numeric_limits<double>::quiet_NaN(), c.result())
                                            : c.b.lowest(c.result())};
    }
    const Sorted s = sorted(c.b, l.x, 0, false);
    return Values{c.b.reshape(gather_along(c.b, s.values, median_rank(c.b, l, ignore_nan), 0), {})};
  };
}

// The most common value; the smallest of several, with the index of its last occurrence (ATen's mode_kernel_impl).
Values mode(Context& c) {
  Builder& b = c.b;
  const Line l = line(c);
  const Sorted s = sorted(b, l.x, l.dim, false);
  const int64_t n = l.length();
  const Value place = b.iota({Elem::S64, l.x.dims()}, l.dim);
  const Value minus_one = b.constant_int(-1, place.type);
  // Runs of equal elements begin where an element differs from the one before it.
  Value begins = b.compare(Direction::EQ, place, b.zeros(place.type));
  if (n > 1) {
    const Value same =
        b.compare(Direction::NE, b.slice_dim(s.values, l.dim, 1, n), b.slice_dim(s.values, l.dim, 0, n - 1));
    Dims low(l.x.rank(), 0), none(l.x.rank(), 0);
    low[l.dim] = 1;
    begins = b.logical_or(begins, b.pad(same, b.zeros({Elem::Pred, {}}), low, none, none));
  }
  const Value begin =
      scan(b, "stablehlo.maximum", b.select(begins, place, minus_one), b.lowest({Elem::S64, {}}), l.dim);
  const Value run = b.sub(place, begin);  // its maximum stands at the last element of the longest run
  const Value longest = b.unreduce(b.amax(run, {l.dim}), run.dims(), {l.dim});
  const Value found = b.select(b.compare(Direction::EQ, run, longest), place, b.constant_int(n - 1, place.type));
  const Value rank = b.keep_dims(b.amin(found, {l.dim}), l.x.dims(), {l.dim});
  return in_result_shapes(c, gather_along(b, s.values, rank, l.dim), gather_along(b, s.indices, rank, l.dim));
}

// ---- search ----
bool from_the_right(Context& c) {
  return c.boolean("right") || (c.has_argument("side") && c.given("side") && c.string("side") == "right");
}

Value searched(Context& c, std::string_view sequence, const Value& sorter) {
  const Value rows = c.tensor(sequence);
  const Elem elem = result_type(c, sequence, "self");
  const Value values = c.is_scalar("self") ? c.scalar("self", elem) : c.tensor("self");
  return search_sorted(c.b, convert_like_aten(c.b, rows, elem), convert_like_aten(c.b, values, elem), from_the_right(c),
                       sorter);
}

Values searchsorted(Context& c) {
  return {searched(c, "sorted_sequence", c.given("sorter") ? c.tensor("sorter") : Value{})};
}
Values bucketize(Context& c) { return {searched(c, "boundaries", {})}; }

// Every element against every candidate, or a search among the sorted candidates where there are many.
Values isin(Context& c) {
  Builder& b = c.b;
  constexpr int64_t kFewCandidates = 64;
  const std::string_view left = c.has_argument("element") ? "element" : "elements";
  const std::string_view right = c.has_argument("test_element") ? "test_element" : "test_elements";
  const Elem elem = result_type(c, left, right);
  const auto converted = [&](std::string_view name) {
    return c.is_scalar(name) ? c.scalar(name, elem) : convert_like_aten(b, c.tensor(name), elem);
  };
  const Value x = converted(left), candidates = converted(right);
  const int64_t n = candidates.type.numel();
  const Value flat = b.reshape(candidates, {n});
  Value found;
  if (n <= kFewCandidates) {
    Dims pairs = x.dims();
    pairs.push_back(n);
    const Value wide = b.broadcast(b.unsqueeze(x, x.rank()), pairs);
    found = b.any(b.compare(Direction::EQ, wide, b.broadcast(flat, pairs)), {x.rank()});
  } else {
    const Value row = sorted(b, flat, 0, false).values;
    const Value place = b.min(search_sorted(b, row, x, false), b.constant_int(n - 1, {Elem::S64, x.dims()}));
    const Value nearest = gather_along(b, row, b.reshape(place, {x.type.numel()}), 0);
    found = b.compare(Direction::EQ, b.reshape(nearest, x.dims()), x);
  }
  return {c.boolean("invert") ? b.logical_not(found) : found};
}

}  // namespace

std::vector<Row> sort_rows() {
  return {
      {.overloads = {"sort.values_stable"}, .emit = sort_stable},
      {.overloads = {"topk.values"}, .emit = topk},
      {.overloads = {"kthvalue.values"}, .emit = kthvalue},
      {.overloads = {"median.dim_values"}, .emit = median_along(false)},
      {.overloads = {"nanmedian.dim_values"}, .emit = median_along(true)},
      {.overloads = {"median"}, .emit = median_of_all(false)},
      {.overloads = {"nanmedian"}, .emit = median_of_all(true)},
      {.overloads = {"mode"}, .emit = mode},
      {.overloads = {"searchsorted.Tensor", "searchsorted.Tensor_out", "searchsorted.Scalar",
                     "searchsorted.Scalar_out"},
       .emit = searchsorted},
      {.overloads = {"bucketize.Tensor", "bucketize.Tensor_out", "bucketize.Scalar"}, .emit = bucketize},
      {.overloads = {"isin.Tensor_Tensor_out", "isin.Tensor_Scalar_out", "isin.Scalar_Tensor_out"}, .emit = isin},
  };
}

}  // namespace tpupilot::ops
