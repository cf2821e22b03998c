// Batch, layer and group normalization. Statistics are computed in the opmath type, the variance in two passes;
// Builder::sum adds up each image and channel first, which is both faster and more exact than one sum over all.
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

// Sums of [N, C, ...] over all but C: each image and channel first.
Expr channel_sums(const Expr& x) {
  const int64_t images = x.v.dims()[0], channels = x.v.dims()[1], rows = images * channels;
  if (x.v.type.numel() == rows) return sum(reshape(x, {images, channels}), {0});
  if (rows == 0) return sum(x, all_but(1, x.v.rank()));
  return sum(reshape(row_sums(reshape(x, {rows, x.v.type.numel() / rows})), {images, channels}), {0});
}

// Sums of the groups of [N, C, area], as a vector [N group].
Expr group_sums(const Expr& x, int64_t group) {
  const Dims& d = x.v.dims();
  if (x.v.type.numel() == 0) return sum(reshape(x, {d[0] * group, d[1] / group * d[2]}), {1});
  return row_sums(reshape(row_sums(reshape(x, {d[0] * d[1], d[2]})), {d[0] * group, d[1] / group}));
}

// What is used more than once, and costs more to compute again than to read.
Expr kept(const Expr& x) { return {x.b, x.b->barrier(x)}; }

// w x + b with vectors along `dim`, where they are given.
Expr affine(Context& c, Expr x, int64_t dim) {
  if (c.given("weight")) x = x * along(tensor(c, "weight", x.v.elem()), dim, x.v.dims());
  if (c.given("bias")) x = x + along(tensor(c, "bias", x.v.elem()), dim, x.v.dims());
  return x;
}

// ---------------------------------------------------------------- batch norm; input [N, C, ...]

Expr inverse_deviation(Context& c, const Expr& variance) {
  return 1 / sqrt(variance + expr(c, c.scalar("eps", variance.v.elem())));
}

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
  const Dims& full = x.v.dims();
  const double count = static_cast<double>(x.v.type.numel()) / static_cast<double>(full.at(1));
  Expr mean, variance, unbiased;
  if (training) {
    mean = channel_sums(x) / count;
    const Expr centred = x - along(mean, 1, full), squares = channel_sums(centred * centred);
    variance = squares / count;
    unbiased = squares / (count - 1);
  } else {
    if (!c.given("running_mean") || !c.given("running_var")) {
      throw hlo::Error("[" + std::string(c.overload()) +
                       "] running_mean and running_var must be given in evaluation mode");
    }
    mean = tensor(c, "running_mean", x.v.elem());
    variance = tensor(c, "running_var", x.v.elem());
  }
  const Expr invstd = inverse_deviation(c, variance);
  const Expr normal = (x - along(mean, 1, full)) * along(invstd, 1, full);
  Values results{affine(c, normal, 1)};
  // In evaluation ATen's saved statistics may have no elements.
  for (const Expr& saved : {mean, invstd}) {
    const Type& type = c.result(results.size());
    results.push_back(type.numel() == saved.v.type.numel() ? saved.v : c.b.zeros(type));
  }
  if (c.overload().starts_with("_batch_norm_with_update"))
    results.push_back(c.b.zeros(c.result(3)));  // reserve: unused
  if (c.has_argument("running_mean")) add_running_statistics(c, results, mean, unbiased, training);
  return results;
}

// What ATen on the CPU saves: nothing in evaluation; else in the parameters' type, which may be wider than the input's.
std::vector<Type> saved_types(Context& c) {
  const Elem input = c.tensor("input").elem();
  Elem saved = input;
  for (const std::string_view name : {"weight", "bias", "running_mean", "running_var"}) {
    if (c.has_argument(name) && c.given(name) && c.tensor(name).elem() != input) saved = c.tensor(name).elem();
  }
  const bool training = !c.has_argument("training") || c.boolean("training");
  const Type type{saved, training ? Dims{c.tensor("input").dims().at(1)} : Dims{0}};
  std::vector<Type> types{{}, type, type};
  if (c.overload().starts_with("_batch_norm_with_update")) types.emplace_back();
  return types;
}

Values batch_norm_backward(Context& c) {
  const bool with_update = c.has_argument("update");
  const bool training = c.boolean(with_update ? "update" : "train");
  const Expr x = tensor(c, "input", opmath_of(c, "input"));
  const Elem elem = x.v.elem();
  const Expr g = tensor(c, "grad_out", elem);
  const Dims& full = x.v.dims();
  const double count = static_cast<double>(x.v.type.numel()) / static_cast<double>(full.at(1));
  const Expr mean = tensor(c, training ? "save_mean" : "running_mean", elem);
  // save_var holds the inverse deviation too.
  const Expr invstd = training ? tensor(c, with_update ? "save_var" : "save_invstd", elem)
                               : inverse_deviation(c, tensor(c, "running_var", elem));
  const Expr centred = x - along(mean, 1, full);
  const Expr g_sum = channel_sums(g), g_centred = channel_sums(g * centred);
  const Expr scale = c.given("weight") ? invstd * tensor(c, "weight", elem) : invstd;

  const std::vector<bool> wanted = c.booleans("output_mask");
  Values results(3);
  if (wanted[0]) {
    Expr centred_g = g;
    if (training)
      centred_g = g - along(g_sum / count, 1, full) - centred * along(invstd * invstd * g_centred / count, 1, full);
    results[0] = centred_g * along(scale, 1, full);
  }
  if (wanted[1]) results[1] = g_centred * invstd;
  if (wanted[2]) results[2] = g_sum;
  return results;
}

// ---------------------------------------------------------------- layer norm; [rows, length], each row alone

Dims layer_rows(Context& c, const Type& x) {
  const int64_t length = hlo::product(c.integers("normalized_shape"));
  int64_t rows = 1;
  for (size_t i = 0; i + c.integers("normalized_shape").size() < x.dims.size(); ++i) rows *= x.dims[i];
  return {rows, length};
}

// A parameter of the normalized shape, for every row.
Expr for_rows(Context& c, std::string_view name, Elem elem, const Dims& dims) {
  return along(reshape(tensor(c, name, elem), {dims[1]}), 1, dims);
}

Values layer_norm(Context& c) {
  const Elem elem = opmath_of(c, "input");
  const Expr input = tensor(c, "input", elem);
  const Dims dims = layer_rows(c, input.v.type);
  const auto count = static_cast<double>(dims[1]);
  const Expr x = reshape(input, dims), mean = row_sums(x) / count;
  const Expr centred = kept(x - along(mean, 0, dims));
  const Expr rstd = inverse_deviation(c, row_sums(centred * centred) / count);
  Expr y = centred * along(rstd, 0, dims);
  if (c.given("weight")) y = y * for_rows(c, "weight", elem, dims);
  if (c.given("bias")) y = y + for_rows(c, "bias", elem, dims);
  return {reshape(y, input.v.dims()), reshape(mean, c.result(1).dims), reshape(rstd, c.result(2).dims)};
}

// With g the gradient times the weight, and sums over what was normalised together:
// rstd (g - mean(g) - normal mean(g normal)).
Values layer_norm_backward(Context& c) {
  const Elem elem = opmath_of(c, "input");
  const Dims full = c.tensor("input").dims(), dims = layer_rows(c, c.tensor("input").type),
             weights = c.integers("normalized_shape");
  const auto count = static_cast<double>(dims[1]);
  const Expr x = reshape(tensor(c, "input", elem), dims), g = reshape(tensor(c, "grad_out", elem), dims);
  const Expr mean = reshape(tensor(c, "mean", elem), {dims[0]}), rstd = reshape(tensor(c, "rstd", elem), {dims[0]});
  const Expr normal = kept((x - along(mean, 0, dims)) * along(rstd, 0, dims));
  const std::vector<bool> wanted = c.booleans("output_mask");
  Values results(3);
  if (wanted[0]) {
    const Expr weighted = c.given("weight") ? kept(g * for_rows(c, "weight", elem, dims)) : g;
    const Expr g_mean = along(row_sums(weighted) / count, 0, dims),
               g_normal = along(row_sums(weighted * normal) / count, 0, dims);
    results[0] = reshape(along(rstd, 0, dims) * (weighted - g_mean - normal * g_normal), full);
  }
  if (wanted[1] && c.given("weight")) results[1] = reshape(sum(kept(g * normal), {0}), weights);
  if (wanted[2]) results[2] = reshape(sum(g, {0}), weights);
  return results;
}

// ---------------------------------------------------------------- group norm; [N, C, area], each group of channels
// alone

struct Groups {
  Dims dims;  // [N, C, area]
  int64_t group;
  double count;  // elements of a group
};
Groups groups_of(const Context& c) {
  const int64_t n = c.integer("N"), channels = c.integer("C"), area = c.integer("HxW"), group = c.integer("group");
  const int64_t count = channels / group * area;
  return {{n, channels, area}, group, static_cast<double>(count)};
}

// [N group] -> [N, C, area]
Expr for_groups(const Expr& x, const Groups& g) {
  const Dims split{g.dims[0], g.group, g.dims[1] / g.group, g.dims[2]};
  return reshape({x.b, x.b->broadcast_in_dim(x.b->reshape(x, {g.dims[0], g.group}), split, {0, 1})}, g.dims);
}

Values group_norm(Context& c) {
  const Expr input = tensor(c, "input", opmath_of(c, "input"));
  const Groups groups = groups_of(c);
  const Expr x = reshape(input, groups.dims), mean = group_sums(x, groups.group) / groups.count;
  const Expr centred = kept(x - for_groups(mean, groups));
  const Expr rstd = inverse_deviation(c, group_sums(centred * centred, groups.group) / groups.count);
  const Expr y = affine(c, centred * for_groups(rstd, groups), 1);
  return {reshape(y, input.v.dims()), reshape(mean, c.result(1).dims), reshape(rstd, c.result(2).dims)};
}

Values group_norm_backward(Context& c) {
  const Elem elem = opmath_of(c, "input");
  const Groups groups = groups_of(c);
  const Dims& dims = groups.dims;
  const int64_t rows = dims[0] * groups.group;
  const Expr x = reshape(tensor(c, "input", elem), dims), g = reshape(tensor(c, "grad_out", elem), dims);
  const Expr mean = reshape(tensor(c, "mean", elem), {rows}),
             rstd = for_groups(reshape(tensor(c, "rstd", elem), {rows}), groups);
  const Expr normal = kept((x - for_groups(mean, groups)) * rstd);
  const std::vector<bool> wanted = c.booleans("output_mask");
  Values results(3);
  if (wanted[0]) {
    const Expr weighted = c.given("weight") ? kept(g * along(tensor(c, "weight", elem), 1, dims)) : g;
    const Expr g_mean = for_groups(group_sums(weighted, groups.group) / groups.count, groups);
    const Expr g_normal = for_groups(group_sums(weighted * normal, groups.group) / groups.count, groups);
    results[0] = reshape(rstd * (weighted - g_mean - normal * g_normal), c.tensor("input").dims());
  }
  if (wanted[1]) results[1] = channel_sums(g * normal);
  if (wanted[2]) results[2] = channel_sums(g);
  return results;
}

}  // namespace

std::vector<Row> normalization_rows() {
  return {
      {.overloads = {"native_batch_norm", "native_batch_norm.out", "_native_batch_norm_legit",
                     "_native_batch_norm_legit.out", "_batch_norm_with_update", "_batch_norm_with_update.out"},
       .emit = batch_norm,
       .shape = saved_types,
       .mutates = {"running_mean", "running_var"}},
      {.overloads = {"_native_batch_norm_legit.no_stats", "_native_batch_norm_legit.no_stats_out"},
       .emit = batch_norm,
       .shape = saved_types},
      {.overloads = {"native_batch_norm_backward", "batch_norm_backward"}, .emit = batch_norm_backward},
      {.overloads = {"native_layer_norm"}, .emit = layer_norm},
      {.overloads = {"native_layer_norm_backward"}, .emit = layer_norm_backward},
      {.overloads = {"native_group_norm"}, .emit = group_norm},
      {.overloads = {"native_group_norm_backward"}, .emit = group_norm_backward},
  };
}

}  // namespace tpupilot::ops
