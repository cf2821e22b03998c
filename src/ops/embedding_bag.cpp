// _embedding_bag: rows of a table combined by bag (mode 0 sum, 1 mean, 2 max), and its gradients. The results beside
// the first are what the gradients need: each index's bag, the bags' sizes without padding, and where maxima came from.
#include <tuple>

#include "ops/expr.h"
#include "ops/indexing.h"
#include "ops/scan.h"

namespace tpupilot::ops {
namespace {

enum Mode : int64_t { kSum = 0, kMean = 1, kMax = 2 };

struct Bags {
  Value index;  // S64 [n]
  Value bag;    // S64 [n]
  Expr counts;  // Pred [n]: not padding
  int64_t n, bags;
};

Expr is_no_padding(Context& c, const Value& index) {
  // A negative padding_idx that is left at -1 means none; core has wrapped all others.
  return !equal(expr(c, index), static_cast<double>(c.integer("padding_idx")));
}

Value vector_of(Context& c, std::string_view name) {
  const Value v = c.tensor(name);
  return c.b.reshape(c.b.convert(v, Elem::S64), {v.type.numel()});
}

// Index i lies in the last bag that starts at or before it: running counts of the starts.
Bags bags_of(Context& c) {
  Builder& b = c.b;
  Bags all{vector_of(c, "indices"), {}, {}, 0, 0};
  const Value offsets = vector_of(c, "offsets");
  all.n = all.index.dims()[0];
  all.bags = offsets.dims()[0] - (c.boolean("include_last_offset") ? 1 : 0);
  const Value starts = b.slice_dim(offsets, 0, 0, all.bags);
  Value count = b.zeros({Elem::S64, {all.n}});
  if (all.n > 0 && all.bags > 0) {
    const Value ones = b.constant_int(1, {Elem::S64, {all.bags}});
    count = put_slices(b, count, starts, ones, 0, "stablehlo.add");
    count = scan(b, "stablehlo.add", count, b.zeros({Elem::S64, {}}), 0);
  }
  all.bag = b.sub(count, b.constant_int(1, count.type));
  all.counts = is_no_padding(c, all.index);
  return all;
}

Value counted(Context& c, const Bags& bags) {
  const Value zeros = c.b.zeros({Elem::S64, {bags.bags}});
  return put_slices(c.b, zeros, bags.bag, c.b.convert(bags.counts, Elem::S64), 0, "stablehlo.add");
}

// A bag without elements is 0; the first of equal maxima wins. Second result: the table's row, -1 for none.
std::pair<Value, Value> maxima(Context& c, const Bags& bags, const Expr& rows) {
  Builder& b = c.b;
  const Type out{rows.v.elem(), {bags.bags, rows.v.dims()[1]}};
  const Expr kept = where(along(bags.counts, 0, rows.v.dims()), rows, expr(c, b.lowest(rows.v.type)));
  const Value best = put_slices(b, b.lowest(out), bags.bag, kept, 0, "stablehlo.maximum");
  const Expr own = expr(c, take_slices(b, best, bags.bag, 0));
  const Expr is_best = (equal(kept, own) | !equal(kept, kept)) & along(bags.counts, 0, rows.v.dims());
  const Expr order = expr(c, b.iota({Elem::S64, rows.v.dims()}, 0));
  const auto none = static_cast<double>(bags.n);
  const Value first = put_slices(b, b.constant_int(bags.n, out.with(Elem::S64)), bags.bag, where(is_best, order, none),
                                 0, "stablehlo.minimum");
  const Expr is_none = equal(expr(c, first), none);
  const Value flat = b.reshape(where(is_none, 0, expr(c, first)), {out.numel()});
  const Value table_row = b.reshape(take_slices(b, bags.index, flat, 0), out.dims);
  const Expr minus_one = expr(c, b.constant_int(-1, table_row.type));
  return {where(is_none, 0, expr(c, best)), where(is_none, minus_one, expr(c, table_row))};
}

// `v` if the Meta kernel gives it this many elements, else what it left undefined.
Value sized(Context& c, size_t i, const Value& v) {
  return v.type.numel() == c.result(i).numel() ? c.b.reshape(v, c.result(i).dims) : c.b.zeros(c.result(i));
}

Values embedding_bag(Context& c) {
  Builder& b = c.b;
  const Bags bags = bags_of(c);
  const Elem elem = result_opmath(c);
  const int64_t rows_of_table = c.tensor("weight").dims()[0];
  const int64_t width = c.tensor("weight").dims()[1], mode = c.integer("mode");
  const std::string range = "[0, " + std::to_string(rows_of_table) + ")";
  require_within(c, bags.index, 0, rows_of_table,
                 {Refusal::Kind::Runtime,
                  mode == kMax ? "embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be {}"
                               : "Index {at} of input takes value {} which is not in the valid range " + range});
  const Value size = counted(c, bags);
  Value out = b.zeros({elem, {bags.bags, width}}), from = b.constant_int(-1, {Elem::S64, {bags.bags, width}});
  if (bags.n > 0 && c.result(0).numel() > 0) {
    Expr rows = expr(c, b.convert(take_slices(b, c.tensor("weight"), bags.index, 0), elem));
    if (c.given("per_sample_weights"))
      rows = rows * along(expr(c, b.convert(c.tensor("per_sample_weights"), elem)), 0, rows.v.dims());
    if (mode == kMax) {
      std::tie(out, from) = maxima(c, bags, rows);
    } else {
      out = put_slices(b, out, bags.bag, where(along(bags.counts, 0, rows.v.dims()), rows, 0), 0, "stablehlo.add");
    }
    if (mode == kMean) {
      const Expr divisor = maximum(convert(expr(c, size), elem), 1);
      out = expr(c, out) / along(divisor, 0, out.dims());
    }
  }
  Values results{out, sized(c, 1, bags.bag), sized(c, 2, size), {}};
  // The last offset closes the list and starts no bag; ATen leaves a place for it in the sizes.
  if (c.result(2).numel() == bags.bags + 1) results[2] = b.pad(size, b.zeros({Elem::S64, {}}), {0}, {1}, {0});
  results[3] = sized(c, 3, mode == kMax ? from : size);
  return results;
}

// Each index's share of its bag's gradient, added to the table's row; written out of range, that is nowhere, for
// padding.
Values backward(Context& c) {
  Builder& b = c.b;
  if (c.has_argument("sparse") && c.boolean("sparse"))
    throw hlo::Error("[_embedding_bag_backward] sparse gradients have no kernel on this device; use sparse=False");
  const int64_t mode = c.integer("mode"), rows = c.integer("num_weights");
  const Expr grad = expr(c, b.convert(c.tensor("grad"), hlo::compute_elem(c.tensor("grad").elem())));
  const Elem elem = grad.v.elem();
  const int64_t width = grad.v.dims()[1];
  const Value zeros = b.zeros({elem, {rows, width}}), index = vector_of(c, "indices");
  const int64_t n = index.dims()[0];
  if (n == 0 || grad.v.type.numel() == 0) return {zeros};
  const auto dropped = [&](const Expr& at) { return where(at < 0, static_cast<double>(rows), at); };
  if (mode == kMax) {
    const Expr from = expr(c, b.reshape(b.convert(c.tensor("maximum_indices"), Elem::S64), grad.v.dims()));
    return {scatter_along(b, zeros, dropped(from), grad, 0, "stablehlo.add")};
  }
  const Value bag = vector_of(c, "offset2bag");
  Expr share = expr(c, take_slices(b, grad, bag, 0));
  Expr factor = expr(c, b.constant(1, {elem, {n}}));
  if (c.given("per_sample_weights")) factor = convert(expr(c, c.tensor("per_sample_weights")), elem);
  if (mode == kMean)
    factor = factor / maximum(convert(expr(c, take_slices(b, vector_of(c, "bag_size"), bag, 0)), elem), 1);
  if (c.boolean("scale_grad_by_freq")) {
    const Value ones = b.constant_int(1, {Elem::S64, {n}});
    const Value uses = put_slices(b, b.zeros({Elem::S64, {rows}}), index, ones, 0, "stablehlo.add");
    factor = factor / convert(expr(c, take_slices(b, uses, index, 0)), elem);
  }
  share = share * along(factor, 0, share.v.dims());
  const Expr place = where(is_no_padding(c, index), expr(c, index), static_cast<double>(rows));
  return {put_slices(b, zeros, place, share, 0, "stablehlo.add")};
}

Values weights_backward(Context& c) {
  Builder& b = c.b;
  if (c.integer("mode") != kSum)
    throw hlo::Error("embedding_bag_backward: per_sample_weights only supported for mode='sum'");
  if (c.result().numel() == 0) return {b.zeros(c.result())};
  const Elem elem = hlo::compute_elem(c.tensor("grad").elem());
  const Value index = vector_of(c, "indices");
  const Expr grad = convert(expr(c, take_slices(b, c.tensor("grad"), vector_of(c, "offset2bag"), 0)), elem),
             rows = convert(expr(c, take_slices(b, c.tensor("weight"), index, 0)), elem);
  return {where(is_no_padding(c, index), sum(grad * rows, {1}), 0)};
}

}  // namespace

std::vector<Row> embedding_bag_rows() {
  return {
      {.overloads = {"_embedding_bag", "_embedding_bag_forward_only"}, .emit = embedding_bag, .remark = kOutOfRange},
      {.overloads = {"_embedding_bag_backward", "_embedding_bag_dense_backward"}, .emit = backward},
      {.overloads = {"_embedding_bag_per_sample_weights_backward"}, .emit = weights_backward},
  };
}

}  // namespace tpupilot::ops
