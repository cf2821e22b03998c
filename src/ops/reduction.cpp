// Reductions. Sums of f16 and bf16 are taken in f32; NaN wins in extrema; the first of equal elements is their index.
#include <cmath>
#include <limits>

#include "ops/complex.h"
#include "ops/promote.h"
#include "ops/scan.h"

namespace tpupilot::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Of overloads that only write into their arguments.

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

// The exclusive or of all elements as 64 bits: floats as f64, integers as they are.
Values hash_tensor(Context& c) {
  const int64_t mode = c.integer("mode");
  if (mode != 0) throw hlo::Error("[hash_tensor] Unknown hash_tensor mode: " + std::to_string(mode));
  const bool floating = hlo::is_float(c.tensor("self").elem());
  const Reduced r = reduced(c, floating ? Elem::F64 : Elem::U64);
  const Type bits = r.x.v.type.with(Elem::U64);
  const Value x = floating ? c.b.bitcast(r.x, bits) : r.x.v;
  return {finished(c, c.b.reduce("stablehlo.xor", x, c.b.constant_int(0, {Elem::U64, {}}), r.dims))};
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
    if (r.x.v.type.numel() == 0 && !c.has_argument("dim")) {
      throw hlo::Error("[" + std::string(c.overload()) +
                       "] Expected reduction dim to be specified for input.numel() == 0. " +
                       "Specify the reduction dim with the 'dim' argument.");
    }
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
    const bool is_complex = hlo::is_complex(c.tensor("self").elem());
    const Elem elem = is_complex ? hlo::complex_of(result_opmath(c)) : result_opmath(c);
    const Reduced r = reduced(c, elem);
    return Values{finished(c, norm_of(abs(r.x), r.dims, c.given(order) ? c.constant(order) : 2))};
  };
}

// ---- scans ----
struct Line {
  Value x;
  int64_t dim;
};
Line line(Context& c, Elem elem) {
  const Value self = convert_like_aten(c.b, c.tensor("self"), elem);
  const Value x = self.rank() == 0 ? c.b.reshape(self, {1}) : self;
  return {x, hlo::wrap_dim(c.integer("dim"), x.rank())};
}

Emitter running(std::string_view combine, double identity) {
  return [combine, identity](Context& c) {
    const Line l = line(c, result_opmath(c));
    return Values{finished(c, scan(c.b, combine, l.x, c.b.constant(identity, {l.x.elem(), {}}), l.dim))};
  };
}

// The last index of equal extrema, and that of the last NaN once there is one (at::native::cummax_helper_cpu).
Emitter running_extremum(Extremum which) {
  return [which](Context& c) {
    Builder& b = c.b;
    const Line l = line(c, c.tensor("self").elem());
    const Type scalar{l.x.elem(), {}};
    const bool largest = which == Extremum::Max;
    const std::string_view combine = largest ? "stablehlo.maximum" : "stablehlo.minimum";
    const Value best = scan(b, combine, l.x, largest ? b.lowest(scalar) : b.highest(scalar), l.dim);
    const Value found = b.logical_or(b.compare(hlo::Direction::EQ, l.x, best), b.is_nan(l.x));
    const Type index{Elem::S64, l.x.dims()};
    const Value candidates = b.select(found, b.iota(index, l.dim), b.constant_int(-1, index));
    const Value last = scan(b, "stablehlo.maximum", candidates, b.constant_int(-1, {Elem::S64, {}}), l.dim);
    return Values{reshape(expr(c, best), c.result(0).dims), reshape(expr(c, last), c.result(1).dims)};
  };
}

// log(exp(x) + exp(y)); equal infinities stay.
Value add_logarithms(Builder& b, const Value& later, const Value& earlier) {
  const Expr x{&b, later}, y{&b, earlier};
  if (hlo::is_complex(x.v.elem())) return complex_logaddexp(x, y);
  const Expr same = equal(x, y) & equal(abs(x), kInfinity);
  return where(same, x, maximum(x, y) + log1p(exp(-abs(x - y))));
}
// One after the other: how many turns are in the imaginary part of the sum depends on the order.
Value running_logarithm_of_complex(Builder& b, const Value& x, const Value& identity, int64_t dim) {
  const Type index{Elem::S64, {}};
  Dims row = x.dims();
  row[dim] = 1;
  const Values out = b.while_loop(
      {b.constant_int(0, index), b.broadcast(identity, row), x},
      [&](const Values& s) { return b.compare(hlo::Direction::LT, s[0], b.constant_int(x.dims()[dim], index)); },
      [&](const Values& s) {
        Values starts(x.rank(), b.constant_int(0, index));
        starts[dim] = s[0];
        const Value total = add_logarithms(b, b.dynamic_slice(s[2], starts, row), s[1]);
        return Values{b.add(s[0], b.constant_int(1, index)), total, b.dynamic_update_slice(s[2], total, starts)};
      });
  return out[2];
}
Values logcumsumexp(Context& c) {
  const Line l = line(c, hlo::compute_elem(c.tensor("self").elem()));
  if (!hlo::is_float(l.x.elem()) && !hlo::is_complex(l.x.elem()))
    throw hlo::Error("[logcumsumexp] not implemented for " + l.x.type.str());
  const auto combine = [&c](const Value& later, const Value& earlier) { return add_logarithms(c.b, later, earlier); };
  const Value none = c.b.constant(-kInfinity, {l.x.elem(), {}});
  if (hlo::is_complex(l.x.elem())) return {finished(c, running_logarithm_of_complex(c.b, l.x, none, l.dim))};
  return {finished(c, scan_by_steps(c.b, combine, l.x, none, l.dim))};
}

// ---- others ----
Values nansum(Context& c) {
  if (hlo::is_complex(c.tensor("self").elem())) {
    throw hlo::Error("[nansum] does not support complex inputs, as ATen's on CPU does not; sum the parts");
  }
  const Reduced r = reduced(c, result_opmath(c));
  const Expr known = where(expr(c, c.b.is_nan(r.x)), 0, r.x);
  return {finished(c, sum(known, r.dims))};
}

Values trace(Context& c) {
  const Expr x = expr(c, convert_like_aten(c.b, c.tensor("self"), result_opmath(c)));
  const Type index{Elem::S64, x.v.dims()};
  const Expr diagonal = equal(expr(c, c.b.iota(index, 0)), expr(c, c.b.iota(index, 1)));
  return {sum(where(diagonal, x, 0), {0, 1})};
}

// Slices along `dim` whose norm is above maxnorm are scaled down to it (at::native::renorm_kernel).
Values renorm(Context& c) {
  const Expr x = wide(c, "self");
  const int64_t dim = hlo::wrap_dim(c.integer("dim"), x.v.rank());
  Dims others;
  for (int64_t d = 0; d < x.v.rank(); ++d) {
    if (d != dim) others.push_back(d);
  }
  const Expr norm = norm_of(abs(x), others, c.constant("p"));
  const Expr limit = expr(c, c.scalar("maxnorm", norm.v.elem()));
  const Expr scale = where(norm > limit, limit / (norm + 1e-7), number(norm, 1));
  return {x * along(expr(c, convert_like_aten(c.b, scale, x.v.elem())), dim, x.v.dims())};
}

}  // namespace

std::vector<Row> reduction_rows() {
  return {
      {.overloads = {"sum.IntList_out"}, .emit = sum_of},
      {.overloads = {"mean.out"}, .emit = mean},
      {.overloads = {"prod", "prod.int_out"}, .emit = prod},
      {.overloads = {"any.out", "any.all_out", "any.dims_out"}, .emit = any_of},
      {.overloads = {"all.out", "all.all_out", "all.dims_out"}, .emit = all_of},
      {.overloads = {"count_nonzero.dim_IntList"}, .emit = count_nonzero},
      {.overloads = {"hash_tensor.out"}, .emit = hash_tensor},
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
      {.overloads = {"cumsum.out"}, .emit = running("stablehlo.add", 0)},
      {.overloads = {"cumprod.out"}, .emit = running("stablehlo.multiply", 1)},
      {.overloads = {"_cummax_helper"}, .emit = running_extremum(Extremum::Max)},
      {.overloads = {"_cummin_helper"}, .emit = running_extremum(Extremum::Min)},
      {.overloads = {"_logcumsumexp"},
       .emit = logcumsumexp,
       .shape = [](Context& c) { return std::vector{c.tensor("self").type}; }},
      {.overloads = {"nansum", "nansum.out"}, .emit = nansum},
      {.overloads = {"trace"}, .emit = trace},
      {.overloads = {"renorm.out"}, .emit = renorm, .constants = {"p"}},
  };
}

}  // namespace tpupilot::ops
