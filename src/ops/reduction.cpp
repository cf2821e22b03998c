// Reductions. Sums of f16 and bf16 are taken in f32; NaN wins in extrema; the first of equal elements is their index.
#include <cmath>
#include <limits>

#include "ops/promote.h"

namespace tpupilot::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Reduced {
  Expr x;
  Dims dims;
};

// The argument in the opmath type of the result, and the dims to reduce.
Reduced reduced(Context& c, Elem elem) {
  const Value x = convert_like_aten(c.b, c.tensor("self"), elem);
  Dims dims;
  if (c.has_argument("dim") && c.given("dim")) {
    dims = c.dims_or_all("dim", x.rank());
  } else {
    for (int64_t i = 0; i < x.rank(); ++i) dims.push_back(i);
  }
  return {expr(c, x), dims};
}

Expr finished(Context& c, const Value& v) { return reshape(expr(c, v), c.result().dims); }

double count(const Reduced& r) {
  double n = 1;
  for (const int64_t d : r.dims) n *= static_cast<double>(r.x.v.dims()[d]);
  return n;
}

Values sum_of(Context& c) {
  const Reduced r = reduced(c, result_opmath(c));
  return {finished(c, sum(r.x, r.dims))};
}

Values mean(Context& c) {
  const Reduced r = reduced(c, result_opmath(c));
  return {finished(c, sum(r.x, r.dims)) / count(r)};
}

Values prod(Context& c) {
  Reduced r = reduced(c, result_opmath(c));
  return {finished(c, c.b.reduce("stablehlo.multiply", r.x, c.b.constant(1, {r.x.v.elem(), {}}), r.dims))};
}

Values any_of(Context& c) {
  const Reduced r = reduced(c, Elem::Pred);
  return {finished(c, c.b.any(r.x, r.dims))};
}
Values all_of(Context& c) {
  const Reduced r = reduced(c, Elem::Pred);
  return {finished(c, c.b.all(r.x, r.dims))};
}
Values count_nonzero(Context& c) {
  const Reduced r = reduced(c, Elem::Pred);
  return {finished(c, c.b.sum(c.b.convert(r.x, Elem::S64), r.dims))};
}

// ---- extrema ----
enum class Extremum { Max, Min };

Value extremum(Builder& b, const Value& x, const Dims& dims, Extremum which) {
  return which == Extremum::Max ? b.amax(x, dims) : b.amin(x, dims);
}

// The smallest index along `dim` whose element is the extremum `best` (broadcast to x), or NaN if that is.
Value first_index(Builder& b, const Value& x, const Value& best, int64_t dim) {
  Value found = b.compare(hlo::Direction::EQ, x, best);
  if (hlo::is_float(x.elem())) found = b.logical_or(found, b.is_nan(x));
  const Type index{Elem::S64, x.dims()};
  const Value candidates =
      b.select(found, b.iota(index, dim), b.constant_int(std::numeric_limits<int64_t>::max(), index));
  return b.amin(candidates, {dim});
}

Emitter extremum_of(Extremum which) {
  return [which](Context& c) {
    const Reduced r = reduced(c, c.tensor("self").elem());
    return Values{finished(c, extremum(c.b, r.x, r.dims, which))};
  };
}

Values aminmax(Context& c) {
  const Reduced r = reduced(c, c.tensor("self").elem());
  return {finished(c, c.b.amin(r.x, r.dims)), finished(c, c.b.amax(r.x, r.dims))};
}

// Values and indices along one dim.
Emitter extremum_with_index(Extremum which) {
  return [which](Context& c) {
    Value x = c.tensor("self");
    if (x.rank() == 0) x = c.b.reshape(x, {1});
    const int64_t dim = hlo::wrap_dim(c.integer("dim"), x.rank());
    const Value best = extremum(c.b, x, {dim}, which);
    const Value index = first_index(c.b, x, c.b.unreduce(best, x.dims(), {dim}), dim);
    return Values{finished(c, best), finished(c, index)};
  };
}

Emitter arg_extremum(Extremum which) {
  return [which](Context& c) {
    Value x = c.tensor("self");
    int64_t dim = 0;
    if (!c.given("dim") || x.rank() == 0) {
      x = c.b.reshape(x, {x.type.numel()});
    } else {
      dim = hlo::wrap_dim(c.integer("dim"), x.rank());
    }
    const Value best = c.b.unreduce(extremum(c.b, x, {dim}, which), x.dims(), {dim});
    return Values{finished(c, first_index(c.b, x, best, dim))};
  };
}

// ---- moments: two passes ----
struct Moments {
  Expr variance, mean;
};

Moments moments(Context& c) {
  if (const Elem elem = c.tensor("self").elem(); !hlo::is_float(elem) && !hlo::is_complex(elem)) {
    throw hlo::Error("[" + std::string(c.overload()) +
                     "] std and var only support floating point and complex dtypes, not " +
                     std::string(hlo::name(elem)) + "; convert the tensor first");
  }
  const Reduced r = reduced(c, hlo::compute_elem(c.tensor("self").elem()));
  const double n = count(r);
  const Expr mean = sum_like(r.x, r.dims) / n;
  const Expr deviation = r.x - mean;
  const bool is_complex = hlo::is_complex(r.x.v.elem());
  const Expr square = is_complex ? abs(deviation) * abs(deviation) : deviation * deviation;
  const Expr total = sum(square, r.dims);
  const Expr correction = c.given("correction") ? expr(c, c.scalar("correction", total.v.elem()))
                                                : expr(c, c.b.constant(1, {total.v.elem(), {}}));
  const Expr divisor = maximum(n - correction, 0);
  return {total / divisor, sum(r.x, r.dims) / n};
}

Values var(Context& c) { return {finished(c, moments(c).variance)}; }
Values std_of(Context& c) { return {finished(c, sqrt(moments(c).variance))}; }
Values var_mean(Context& c) {
  const Moments m = moments(c);
  return {reshape(m.variance, c.result(0).dims), reshape(m.mean, c.result(1).dims)};
}
Values std_mean(Context& c) {
  const Moments m = moments(c);
  return {reshape(sqrt(m.variance), c.result(0).dims), reshape(m.mean, c.result(1).dims)};
}

// ---- norms ----
Expr norm_of(const Expr& magnitude, const Dims& dims, double order) {
  Builder& b = *magnitude.b;
  if (order == kInfinity) return {&b, b.amax(magnitude, dims)};
  if (order == -kInfinity) return {&b, b.amin(magnitude, dims)};
  if (order == 0) return sum(convert(!equal(magnitude, 0), magnitude.v.elem()), dims);
  if (order == 1) return sum(magnitude, dims);
  if (order == 2) return sqrt(sum(magnitude * magnitude, dims));
  const Expr powers = apply("stablehlo.power", magnitude, number(magnitude, order));
  const Expr total = sum(powers, dims);
  return apply("stablehlo.power", total, number(total, 1 / order));
}

Emitter norm(std::string_view order) {
  return [order](Context& c) {
    const Elem elem = hlo::compute_elem(c.tensor("self").elem());
    const Reduced r = reduced(c, elem);
    return Values{finished(c, norm_of(abs(r.x), r.dims, c.given(order) ? c.constant(order) : 2))};
  };
}

// ---- scans: log2(n) shifted combinations ----
Values scan(Context& c, std::string_view combine, double identity) {
  const Value self = convert_like_aten(c.b, c.tensor("self"), result_opmath(c));
  Value x = self.rank() == 0 ? c.b.reshape(self, {1}) : self;
  const int64_t dim = hlo::wrap_dim(c.integer("dim"), x.rank());
  const int64_t n = x.dims()[dim];
  for (int64_t shift = 1; shift < n; shift *= 2) {
    Dims low(x.rank(), 0), high(x.rank(), 0);
    low[dim] = shift;
    high[dim] = -shift;
    const Value before = c.b.pad(x, c.b.constant(identity, {x.elem(), {}}), low, high, Dims(x.rank(), 0));
    x = c.b.binary(combine, x, before);
  }
  return {finished(c, x)};
}
Values cumsum(Context& c) { return scan(c, "stablehlo.add", 0); }
Values cumprod(Context& c) { return scan(c, "stablehlo.multiply", 1); }

}  // namespace

std::vector<Row> reduction_rows() {
  return {
      {.overloads = {"sum.IntList_out"}, .emit = sum_of},
      {.overloads = {"mean.out"}, .emit = mean},
      {.overloads = {"prod", "prod.int_out"}, .emit = prod},
      {.overloads = {"any.out", "any.all_out", "any.dims_out"}, .emit = any_of},
      {.overloads = {"all.out", "all.all_out", "all.dims_out"}, .emit = all_of},
      {.overloads = {"count_nonzero.dim_IntList"}, .emit = count_nonzero},
      {.overloads = {"amax.out", "max"}, .emit = extremum_of(Extremum::Max)},
      {.overloads = {"amin.out", "min"}, .emit = extremum_of(Extremum::Min)},
      {.overloads = {"aminmax.out"}, .emit = aminmax},
      {.overloads = {"max.dim_max"}, .emit = extremum_with_index(Extremum::Max)},
      {.overloads = {"min.dim_min"}, .emit = extremum_with_index(Extremum::Min)},
      {.overloads = {"argmax.out"}, .emit = arg_extremum(Extremum::Max)},
      {.overloads = {"argmin.out"}, .emit = arg_extremum(Extremum::Min)},
      {.overloads = {"var.correction", "var.correction_out"}, .emit = var},
      {.overloads = {"std.correction", "std.correction_out"}, .emit = std_of},
      {.overloads = {"var_mean.correction"}, .emit = var_mean},
      {.overloads = {"std_mean.correction"}, .emit = std_mean},
      {.overloads = {"linalg_vector_norm.out"}, .emit = norm("ord"), .constants = {"ord"}},
      {.overloads = {"norm.out", "norm.dtype_out"}, .emit = norm("p"), .constants = {"p"}},
      {.overloads = {"cumsum.out"}, .emit = cumsum},
      {.overloads = {"cumprod.out"}, .emit = cumprod},
  };
}

}  // namespace tpupilot::ops
