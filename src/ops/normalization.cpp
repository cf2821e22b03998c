// Batch, layer and group normalization. Statistics are computed in the opmath type, the variance in two passes; Builder::sum
// adds up each image and channel first, which is both faster and more exact than one sum over all.
#include "ops/expr.h"

namespace tpupilot::ops {
namespace {

Elem opmath_of(Context& c, std::string_view tensor) { return hlo::compute_elem(c.tensor(tensor).elem()); }

Expr tensor(Context& c, std::string_view name, Elem elem) { return convert(expr(c, c.tensor(name)), elem); }

Dims all_but(int64_t kept, int64_t rank) {
  Dims dims;
  for (int64_t d = 0; d < rank; ++d) {
    if (d != kept) dims.push_back(d);
  }
  return dims;
}

struct Moments {
  Expr mean, squares;  // squares: the sum of (x - mean)^2
};

Moments moments(const Expr& x, const Dims& dims, double count) {
  const Expr mean = sum(x, dims) / count;
  const Expr centred = x - Expr{x.b, x.b->unreduce(mean, x.v.dims(), dims)};
  return {mean, sum(centred * centred, dims)};
}

// w x + b with vectors along `dim`, where they are given.
Expr affine(Context& c, Expr x, int64_t dim) {
  if (c.given("weight")) x = x * along(tensor(c, "weight", x.v.elem()), dim, x.v.dims());
  if (c.given("bias")) x = x + along(tensor(c, "bias", x.v.elem()), dim, x.v.dims());
  return x;
}

// ---------------------------------------------------------------- batch norm; input [N, C, ...]

Expr inverse_deviation(Context& c, const Expr& variance) { return 1 / sqrt(variance + expr(c, c.scalar("eps", variance.v.elem()))); }

// The running statistic after this batch; rows without running statistics have none to return.
Value moved(Context& c, std::string_view name, const Expr& batch) {
  const Expr momentum = expr(c, c.scalar("momentum", batch.v.elem()));
  return momentum * batch + (1 - momentum) * tensor(c, name, batch.v.elem());
}

void add_running_statistics(Context& c, Values& results, const Expr& mean, const Expr& unbiased, bool training) {
  for (const std::string_view name : {"running_mean", "running_var"}) {
    if (!c.given(name)) continue;
    // An empty value: the statistic stays as it is.
    results.push_back(training ? moved(c, name, name == "running_mean" ? mean : unbiased) : Value{});
  }
}

Values batch_norm(Context& c) {
  const bool training = !c.has_argument("training") || c.boolean("training");
  const Expr x = tensor(c, "input", opmath_of(c, "input"));
  const Dims dims = all_but(1, x.v.rank());
  const double count = static_cast<double>(x.v.type.numel()) / static_cast<double>(x.v.dims().at(1));
  Expr mean, variance, unbiased;
  if (training) {
    const Moments m = moments(x, dims, count);
    mean = m.mean;
    variance = m.squares / count;
    unbiased = m.squares / (count - 1);
  } else {
    if (!c.given("running_mean") || !c.given("running_var")) {
      throw hlo::Error("[" + std::string(c.overload()) + "] running_mean and running_var must be given in evaluation mode");
    }
    mean = tensor(c, "running_mean", x.v.elem());
    variance = tensor(c, "running_var", x.v.elem());
  }
  const Expr invstd = inverse_deviation(c, variance);
  const Expr normal = (x - along(mean, 1, x.v.dims())) * along(invstd, 1, x.v.dims());
  Values results{affine(c, normal, 1)};
  // In evaluation ATen's saved statistics may have no elements.
  for (const Expr& saved : {mean, invstd}) {
    const Type& type = c.result(results.size());
    results.push_back(type.numel() == saved.v.type.numel() ? saved.v : c.b.zeros(type));
  }
  if (c.overload().starts_with("_batch_norm_with_update")) results.push_back(c.b.zeros(c.result(3)));  // reserve: unused
  if (c.has_argument("running_mean")) add_running_statistics(c, results, mean, unbiased, training);
  return results;
}

Values batch_norm_backward(Context& c) {
  const bool with_update = c.has_argument("update");
  const bool training = c.boolean(with_update ? "update" : "train");
  const Expr x = tensor(c, "input", opmath_of(c, "input"));
  const Elem elem = x.v.elem();
  const Expr g = tensor(c, "grad_out", elem);
  const Dims dims = all_but(1, x.v.rank()), &full = x.v.dims();
  const double count = static_cast<double>(x.v.type.numel()) / static_cast<double>(full.at(1));
  const Expr mean = tensor(c, training ? "save_mean" : "running_mean", elem);
  // save_var holds the inverse deviation too.
  const Expr invstd = training ? tensor(c, with_update ? "save_var" : "save_invstd", elem)
                               : inverse_deviation(c, tensor(c, "running_var", elem));
  const Expr centred = x - along(mean, 1, full);
  const Expr g_sum = sum(g, dims), g_centred = sum(g * centred, dims);
  const Expr scale = c.given("weight") ? invstd * tensor(c, "weight", elem) : invstd;

  const std::vector<bool> wanted = c.booleans("output_mask");
  Values results(3);
  if (wanted[0]) {
    Expr centred_g = g;
    if (training) centred_g = g - along(g_sum / count, 1, full) - centred * along(invstd * invstd * g_centred / count, 1, full);
    results[0] = centred_g * along(scale, 1, full);
  }
  if (wanted[1]) results[1] = g_centred * invstd;
  if (wanted[2]) results[2] = g_sum;
  return results;
}

// ---------------------------------------------------------------- layer and group norm: rows that are normalised alone

// The values as [rows, length]; group norm's weight belongs to channels, so it goes through its own shape.
struct Standard {
  Expr normal, mean, rstd;  // [rows, length], [rows], [rows]
};

Standard standardized(Context& c, const Expr& rows) {
  const Dims& dims = rows.v.dims();
  const auto count = static_cast<double>(dims[1]);
  const Moments m = moments(rows, {1}, count);
  const Expr rstd = inverse_deviation(c, m.squares / count);
  return {(rows - along(m.mean, 0, dims)) * along(rstd, 0, dims), m.mean, rstd};
}

// The gradient of standardized rows: rstd (g - mean(g) - normal mean(g normal)).
Expr standardized_gradient(const Expr& g, const Expr& normal, const Expr& rstd) {
  const auto count = static_cast<double>(g.v.dims()[1]);
  return along(rstd, 0, g.v.dims()) * (g - sum_like(g, {1}) / count - normal * (sum_like(g * normal, {1}) / count));
}

Dims layer_rows(Context& c, const Type& x) {
  const int64_t length = hlo::product(c.integers("normalized_shape"));
  int64_t rows = 1;
  for (size_t i = 0; i + c.integers("normalized_shape").size() < x.dims.size(); ++i) rows *= x.dims[i];
  return {rows, length};
}

Values layer_norm(Context& c) {
  const Expr x = tensor(c, "input", opmath_of(c, "input"));
  const Dims dims = layer_rows(c, x.v.type);
  const Standard s = standardized(c, reshape(x, dims));
  Expr y = s.normal;
  if (c.given("weight")) y = y * along(reshape(tensor(c, "weight", y.v.elem()), {dims[1]}), 1, dims);
  if (c.given("bias")) y = y + along(reshape(tensor(c, "bias", y.v.elem()), {dims[1]}), 1, dims);
  return {reshape(y, x.v.dims()), reshape(s.mean, c.result(1).dims), reshape(s.rstd, c.result(2).dims)};
}

Values layer_norm_backward(Context& c) {
  const Elem elem = opmath_of(c, "input");
  const Dims full = c.tensor("input").dims(), dims = layer_rows(c, c.tensor("input").type), weights = c.integers("normalized_shape");
  const Expr x = reshape(tensor(c, "input", elem), dims), g = reshape(tensor(c, "grad_out", elem), dims);
  const Expr mean = reshape(tensor(c, "mean", elem), {dims[0]}), rstd = reshape(tensor(c, "rstd", elem), {dims[0]});
  const Expr normal = (x - along(mean, 0, dims)) * along(rstd, 0, dims);
  const std::vector<bool> wanted = c.booleans("output_mask");
  Values results(3);
  if (wanted[0]) {
    const Expr weighted = c.given("weight") ? g * along(reshape(tensor(c, "weight", elem), {dims[1]}), 1, dims) : g;
    results[0] = reshape(standardized_gradient(weighted, normal, rstd), full);
  }
  if (wanted[1] && c.given("weight")) results[1] = reshape(sum(g * normal, {0}), weights);
  if (wanted[2]) results[2] = reshape(sum(g, {0}), weights);
  return results;
}

// [N, C, HxW] and the rows [N group, C / group HxW] of the same elements.
struct Groups {
  Dims channels, rows;
};
Groups groups_of(const Context& c) {
  const int64_t n = c.integer("N"), channels = c.integer("C"), area = c.integer("HxW"), group = c.integer("group");
  return {{n, channels, area}, {n * group, channels / group * area}};
}

Values group_norm(Context& c) {
  const Expr x = tensor(c, "input", opmath_of(c, "input"));
  const Groups shape = groups_of(c);
  const Standard s = standardized(c, reshape(x, shape.rows));
  const Expr y = affine(c, reshape(s.normal, shape.channels), 1);
  return {reshape(y, x.v.dims()), reshape(s.mean, c.result(1).dims), reshape(s.rstd, c.result(2).dims)};
}

Values group_norm_backward(Context& c) {
  const Elem elem = opmath_of(c, "input");
  const Groups shape = groups_of(c);
  const Expr x = reshape(tensor(c, "input", elem), shape.rows), g = reshape(tensor(c, "grad_out", elem), shape.channels);
  const Expr mean = reshape(tensor(c, "mean", elem), {shape.rows[0]}), rstd = reshape(tensor(c, "rstd", elem), {shape.rows[0]});
  const Expr normal = (x - along(mean, 0, shape.rows)) * along(rstd, 0, shape.rows);
  const std::vector<bool> wanted = c.booleans("output_mask");
  Values results(3);
  if (wanted[0]) {
    const Expr weighted = c.given("weight") ? g * along(tensor(c, "weight", elem), 1, shape.channels) : g;
    results[0] = reshape(standardized_gradient(reshape(weighted, shape.rows), normal, rstd), c.tensor("input").dims());
  }
  if (wanted[1]) results[1] = sum(g * reshape(normal, shape.channels), {0, 2});
  if (wanted[2]) results[2] = sum(g, {0, 2});
  return results;
}

}  // namespace

std::vector<Row> normalization_rows() {
  return {
      {.overloads = {"native_batch_norm", "native_batch_norm.out", "_native_batch_norm_legit", "_native_batch_norm_legit.out",
                     "_batch_norm_with_update", "_batch_norm_with_update.out"},
       .emit = batch_norm,
       .mutates = {"running_mean", "running_var"}},
      {.overloads = {"_native_batch_norm_legit.no_stats", "_native_batch_norm_legit.no_stats_out"}, .emit = batch_norm},
      {.overloads = {"native_batch_norm_backward", "batch_norm_backward"}, .emit = batch_norm_backward},
      {.overloads = {"native_layer_norm"}, .emit = layer_norm},
      {.overloads = {"native_layer_norm_backward"}, .emit = layer_norm_backward},
      {.overloads = {"native_group_norm"}, .emit = group_norm},
      {.overloads = {"native_group_norm_backward"}, .emit = group_norm_backward},
  };
}

}  // namespace tpupilot::ops
