// Indexing by tensors: index, index_put, and the families of index_select, gather and scatter, masks, take and put.
#include <algorithm>
#include <optional>

#include "ops/expr.h"
#include "ops/indexing.h"

namespace tpupilot::ops {
namespace {

// ---------------------------------------------------------------- index and index_put

// Index tensors that stand for some dims of self, as XLA's gather and scatter describe them. The shape of the indexed
// tensor: the indices' common shape takes the place of the indexed dims, or the front if those are not neighbours.
struct Places {
  Value indices;        // [common shape..., number of indexed dims]
  Dims indexed;         // dims of self
  Dims kept_in_result;  // where the other dims of self stand in the result
  Dims result;
};

Dims common_shape(const std::vector<Value>& values) {
  Dims common;
  for (const Value& v : values) {
    if (v.dims().size() > common.size()) common.insert(common.begin(), v.dims().size() - common.size(), 1);
    const size_t shift = common.size() - v.dims().size();
    for (size_t i = 0; i < v.dims().size(); ++i) {
      if (common[shift + i] == 1) common[shift + i] = v.dims()[i];
    }
  }
  return common;
}

std::optional<Places> places_of(Context& c, const Dims& self) {
  std::vector<Value> given;
  Places p;
  const auto indices = c.tensors("indices");
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d]) continue;
    if (indices[d]->elem() == Elem::Pred)
      throw hlo::Error("[" + std::string(c.overload()) + "] boolean masks must be expanded before");
    if (d >= self.size())
      throw hlo::Error("[" + std::string(c.overload()) + "] too many indices for a tensor of dimension " +
                       std::to_string(self.size()));
    const auto dim = static_cast<int64_t>(d);
    require_within(c, *indices[d], -self[d], self[d], out_of_bounds(Refusal::Kind::Index, dim, self[d]));
    given.push_back(wrapped_index(c.b, *indices[d], self[d]));
    p.indexed.push_back(dim);
  }
  if (given.empty()) return std::nullopt;
  const Dims common = common_shape(given);
  Dims column = common;
  column.push_back(1);
  Values columns;
  for (const Value& v : given) columns.push_back(c.b.reshape(c.b.broadcast(v, common), column));
  p.indices = c.b.concatenate(columns, static_cast<int64_t>(common.size()));

  const bool neighbours = p.indexed.back() - p.indexed.front() + 1 == static_cast<int64_t>(p.indexed.size());
  const int64_t front = neighbours ? p.indexed.front() : 0;
  for (size_t d = 0; d < self.size(); ++d) {
    if (static_cast<int64_t>(p.result.size()) == front && p.kept_in_result.size() == p.result.size()) {
      p.result.insert(p.result.end(), common.begin(), common.end());
    }
    if (std::find(p.indexed.begin(), p.indexed.end(), static_cast<int64_t>(d)) != p.indexed.end()) continue;
    p.kept_in_result.push_back(static_cast<int64_t>(p.result.size()));
    p.result.push_back(self[d]);
  }
  return p;
}

Values index(Context& c) {
  const Value self = c.tensor("self");
  const auto p = places_of(c, self.dims());
  if (!p) return {self};
  if (hlo::product(p->result) == 0) return {c.b.zeros(self.type.with(p->result))};
  Dims slice = self.dims();
  for (int64_t d : p->indexed) slice[static_cast<size_t>(d)] = 1;
  const hlo::Gather g{p->kept_in_result, p->indexed, {}, {}, p->indexed, p->indices.rank() - 1, slice};
  return {c.b.gather(self, p->indices, g, p->result)};
}

Values index_put(Context& c) {
  Builder& b = c.b;
  const Value self = c.tensor("self");
  const bool accumulate = c.boolean("accumulate");
  const auto p = places_of(c, self.dims());
  const Value values = c.tensor_as("values", self.elem(), p ? p->result : self.dims());
  if (!p) return {accumulate ? b.binary(sum_combiner(self.elem()), self, values) : values};
  if (self.type.numel() == 0 || values.type.numel() == 0) return {self};
  const hlo::Scatter s{p->kept_in_result, p->indexed, {}, {}, p->indexed, p->indices.rank() - 1};
  if (!accumulate) return {b.scatter(self, p->indices, values, s)};
  const Elem elem = hlo::compute_elem(self.elem());
  return {b.scatter(b.convert(self, elem), p->indices, b.convert(values, elem), s, sum_combiner(elem))};
}

// ---------------------------------------------------------------- a vector of places along one dim

struct Slices {
  Value self, index;  // self of rank 1 or more; index a vector
  int64_t dim;

  int64_t size() const { return self.dims()[static_cast<size_t>(dim)]; }
};

Slices slices_of(Context& c) {
  Value self = c.tensor("self");
  if (self.rank() == 0) self = c.b.reshape(self, {1});
  const int64_t dim = hlo::wrap_dim(c.integer("dim"), self.rank());
  const Value index = c.tensor("index");
  return {self, c.b.reshape(c.b.convert(index, Elem::S64), {index.type.numel()}), dim};
}

// `tensor` as one slice for each place.
Value updates_for(Context& c, const Slices& s, std::string_view tensor) {
  Dims dims = s.self.dims();
  dims[static_cast<size_t>(s.dim)] = s.index.dims()[0];
  const Value updates = c.b.convert(c.tensor(tensor), s.self.elem());
  return updates.type.numel() == hlo::product(dims) ? c.b.reshape(updates, dims) : c.b.broadcast(updates, dims);
}

Values shaped(Context& c, const Value& v) { return {c.b.reshape(v, c.result().dims)}; }

const Refusal kOutOfSelf = {Refusal::Kind::Index, "index out of range in self"};

Values index_select(Context& c) {
  const Slices s = slices_of(c);
  const std::string size = std::to_string(s.size());
  require_within(
      c, s.index, 0, s.size(),
      s.dim == 0 ? kOutOfSelf
                 : Refusal{Refusal::Kind::Runtime, "INDICES element is out of DATA bounds, id={} axis_dim=" + size});
  return shaped(c, take_slices(c.b, s.self, s.index, s.dim));
}

Values index_add(Context& c) {
  const Slices s = slices_of(c);
  require_within(c, s.index, 0, s.size(),
                 s.self.rank() == 1 ? kOutOfSelf : out_of_bounds(Refusal::Kind::Runtime, s.dim, s.size()));
  Value updates = updates_for(c, s, "source");
  if (!c.is_identity("alpha")) {
    const Elem elem = hlo::compute_elem(updates.elem());
    updates = c.b.mul(c.b.convert(updates, elem), c.scalar_as("alpha", updates.type.with(elem)));
    // The sum is made in the wide type; put_slices narrows it once.
    const Value wide = put_slices(c.b, c.b.convert(s.self, elem), s.index, updates, s.dim, "stablehlo.add");
    return shaped(c, wide);
  }
  return shaped(c, put_slices(c.b, s.self, s.index, updates, s.dim, sum_combiner(s.self.elem())));
}

Values index_copy(Context& c) {
  const Slices s = slices_of(c);
  Refusal refusal = out_of_bounds(Refusal::Kind::Index, s.dim, s.size());
  refusal.text = "index_copy_(): " + refusal.text;
  require_within(c, s.index, 0, s.size(), refusal);
  return shaped(c, put_slices(c.b, s.self, s.index, updates_for(c, s, "source"), s.dim));
}

Values index_fill(Context& c) {
  Slices s = slices_of(c);
  require_within(c, s.index, -s.size(), s.size(), out_of_bounds(Refusal::Kind::Index, s.dim, s.size()));
  s.index = wrapped_index(c.b, s.index, s.size());
  Dims dims = s.self.dims();
  dims[static_cast<size_t>(s.dim)] = s.index.dims()[0];
  const Type type = s.self.type.with(dims);
  const Value fill =
      c.overload().ends_with("Tensor") ? c.tensor_as("value", type.elem, dims) : c.scalar_as("value", type);
  return shaped(c, put_slices(c.b, s.self, s.index, fill, s.dim));
}

// ---------------------------------------------------------------- gather and scatter

void require_along(Context& c, const Value& self, const Value& index, int64_t dim) {
  const int64_t size = self.rank() == 0 ? 1 : self.dims()[static_cast<size_t>(dim)];
  require_within(c, index, 0, size, out_of_bounds(Refusal::Kind::Runtime, dim, size));
}

Values gather(Context& c) {
  const Value self = c.tensor("self"), index = c.tensor("index");
  const int64_t dim = hlo::wrap_dim(c.integer("dim"), self.rank());
  require_along(c, self, index, dim);
  return shaped(c, gather_along(c.b, self, index, dim));
}

// src (cut to the index's shape) or the scalar value, in self's type.
Value scattered_values(Context& c, const Value& self, const Value& index) {
  if (c.has_argument("value")) return c.scalar_as("value", index.type.with(self.elem()));
  const Value src = c.b.convert(c.tensor("src"), self.elem());
  if (src.type.numel() == index.type.numel()) return c.b.reshape(src, index.dims());
  return c.b.slice(src, Dims(src.dims().size(), 0), index.dims(), Dims(src.dims().size(), 1));
}

std::string_view combiner_of(Context& c, Elem elem) {
  const std::string reduce = c.string("reduce");
  if (reduce == "add" || reduce == "sum" || reduce == "mean") return sum_combiner(elem);
  if (reduce == "multiply" || reduce == "prod") return elem == Elem::Pred ? "stablehlo.and" : "stablehlo.multiply";
  if (reduce == "amax") return "stablehlo.maximum";
  if (reduce == "amin") return "stablehlo.minimum";
  throw hlo::Error("[" + std::string(c.overload()) +
                   "] reduce argument must be sum, prod, mean, amax, amin, add or multiply, not '" + reduce + "'");
}

Values scatter(Context& c) {
  const Value self = c.tensor("self"), index = c.tensor("index");
  const int64_t dim = hlo::wrap_dim(c.integer("dim"), self.rank());
  require_along(c, self, index, dim);
  std::string_view combiner;
  if (c.has_argument("reduce")) combiner = combiner_of(c, self.elem());
  if (c.overload().starts_with("scatter_add")) combiner = sum_combiner(self.elem());
  return {scatter_along(c.b, self, index, scattered_values(c, self, index), dim, combiner)};
}

Value neutral(Context& c, const Type& type) {
  const std::string reduce = c.string("reduce");
  if (reduce == "amax") return c.b.lowest(type);
  if (reduce == "amin") return c.b.highest(type);
  return c.b.constant_int(reduce == "prod" ? 1 : 0, type);
}

// The quotient of a mean; integers round down.
Value divided(Builder& b, const Value& total, const Value& count) {
  Value quotient = b.div(total, count);
  if (!hlo::is_signed_integer(total.elem())) return quotient;
  const Value rest = b.binary("stablehlo.remainder", total, count);
  const Value below = b.compare(hlo::Direction::LT, rest, b.zeros(rest.type));
  return b.sub(quotient, b.convert(below, quotient.elem()));
}

Values scatter_reduce(Context& c) {
  Builder& b = c.b;
  const Value self = c.tensor("self"), index = c.tensor("index");
  const int64_t dim = hlo::wrap_dim(c.integer("dim"), self.rank());
  require_along(c, self, index, dim);
  const Elem elem = hlo::compute_elem(self.elem());
  const bool include_self = c.boolean("include_self"), mean = c.string("reduce") == "mean";
  Value base = b.convert(self, elem);
  const Value updates = b.convert(scattered_values(c, self, index), elem);
  if (!include_self) base = scatter_along(b, base, index, neutral(c, updates.type), dim);
  const Value reduced = scatter_along(b, base, index, updates, dim, combiner_of(c, elem));
  if (!mean) return {reduced};
  const Value start = b.constant_int(include_self ? 1 : 0, reduced.type);
  const Value count = scatter_along(b, start, index, b.constant_int(1, updates.type), dim, "stablehlo.add");
  return {divided(b, reduced, b.max(count, b.constant_int(1, count.type)))};
}

// scatter_reduce with one place for a whole slice; as there, a mean of integers rounds down.
Values index_reduce(Context& c) {
  Builder& b = c.b;
  const Slices s = slices_of(c);
  require_within(c, s.index, 0, s.size(), kOutOfSelf);
  const Elem elem = hlo::compute_elem(s.self.elem());
  const bool include_self = c.boolean("include_self"), mean = c.string("reduce") == "mean";
  const Value updates = b.convert(updates_for(c, s, "source"), elem);
  Value base = b.convert(s.self, elem);
  if (!include_self) base = put_slices(b, base, s.index, neutral(c, updates.type), s.dim);
  const Value reduced = put_slices(b, base, s.index, updates, s.dim, combiner_of(c, elem));
  if (!mean) return shaped(c, reduced);
  const Value start = b.constant_int(include_self ? 1 : 0, reduced.type);
  const Value count = put_slices(b, start, s.index, b.constant_int(1, updates.type), s.dim, "stablehlo.add");
  return shaped(c, divided(b, reduced, b.max(count, b.constant_int(1, count.type))));
}

// ---------------------------------------------------------------- masks

Values masked_fill(Context& c) {
  const Value self = c.tensor("self");
  const Value fill = c.overload().ends_with("Tensor") ? c.tensor_as("value", self.elem(), self.dims())
                                                      : c.scalar_as("value", self.type);
  return {c.b.select(c.tensor_as("mask", Elem::Pred, self.dims()), fill, self)};
}

// 1, 2, ... at the true elements of a vector: running sums by doubling the distance.
Value running_count(Builder& b, const Value& mask) {
  Value count = b.convert(mask, Elem::S64);
  const int64_t n = count.dims()[0];
  for (int64_t shift = 1; shift < n; shift *= 2) {
    count = b.barrier(
        b.add(count, b.pad(b.slice_dim(count, 0, 0, n - shift), b.zeros({Elem::S64, {}}), {shift}, {0}, {0})));
  }
  return count;
}

// The k-th true element takes the k-th element of source.
Values masked_scatter(Context& c) {
  Builder& b = c.b;
  const Value self = c.tensor("self"), source = c.tensor("source");
  const int64_t n = self.type.numel();
  if (n == 0 || source.type.numel() == 0) return {self};
  const Value mask = b.reshape(c.tensor_as("mask", Elem::Pred, self.dims()), {n});
  const Value count = running_count(b, mask);
  const Value enough = b.compare(hlo::Direction::LE, count, b.constant_int(source.type.numel(), count.type));
  c.require(enough, {}, {Refusal::Kind::Runtime, "Number of elements of source < number of ones in mask"});
  const Value ordinal = b.sub(count, b.constant_int(1, {Elem::S64, {n}}));
  const Value flat = b.reshape(b.convert(source, self.elem()), {source.type.numel()});
  const Value taken = b.select(mask, take_slices(b, flat, ordinal, 0), b.reshape(self, {n}));
  return {b.reshape(taken, self.dims())};
}

// ---------------------------------------------------------------- self as one long vector

// Both read negative places from the end.
void require_element(Context& c, const Value& index, int64_t n) {
  require_within(c, index, -n, n,
                 {Refusal::Kind::Index,
                  "out of range: tried to access index {} on a tensor of " + std::to_string(n) + " elements."});
}

Values take(Context& c) {
  const Value self = c.tensor("self"), index = c.tensor("index");
  const int64_t n = self.type.numel();
  require_element(c, index, n);
  const Value places = wrapped_index(c.b, c.b.reshape(index, {index.type.numel()}), n);
  return shaped(c, take_slices(c.b, c.b.reshape(self, {n}), places, 0));
}

Values put(Context& c) {
  const Value self = c.tensor("self"), index = c.tensor("index");
  const int64_t n = self.type.numel(), m = index.type.numel();
  require_element(c, index, n);
  const Value places = wrapped_index(c.b, c.b.reshape(index, {m}), n);
  const Value source = c.b.reshape(c.b.convert(c.tensor("source"), self.elem()), {m});
  const std::string_view combiner = c.boolean("accumulate") ? sum_combiner(self.elem()) : std::string_view{};
  return {c.b.reshape(put_slices(c.b, c.b.reshape(self, {n}), places, source, 0, combiner), self.dims())};
}

// ---------------------------------------------------------------- embedding

Values embedding_dense_backward(Context& c) {
  Builder& b = c.b;
  const Value indices = c.tensor("indices");
  const int64_t rows = c.integer("num_weights"), padding = c.integer("padding_idx"), n = indices.type.numel();
  Value grad = c.tensor("grad_output");
  const int64_t width = c.result().dims[1];
  grad = b.reshape(b.convert(grad, hlo::compute_elem(grad.elem())), {n, width});
  Value index = b.reshape(b.convert(indices, Elem::S64), {n});
  if (c.boolean("scale_grad_by_freq") && n > 0) {
    const Value ones = b.constant_int(1, {Elem::S64, {n}});
    const Value counts = put_slices(b, b.zeros({Elem::S64, {rows}}), index, ones, 0, "stablehlo.add");
    const Value frequency = b.convert(take_slices(b, counts, index, 0), grad.elem());
    grad = b.div(grad, b.broadcast_in_dim(frequency, grad.dims(), {0}));
  }
  if (padding >= 0) {  // written out of range, that is nowhere
    const Value is_padding = b.compare(hlo::Direction::EQ, index, b.constant_int(padding, index.type));
    index = b.select(is_padding, b.constant_int(rows, index.type), index);
  }
  return {put_slices(b, b.zeros({grad.elem(), {rows, width}}), index, grad, 0, "stablehlo.add")};
}

Row at_indices(std::vector<std::string_view> overloads, Emitter emit) {
  return {.overloads = std::move(overloads), .emit = std::move(emit), .remark = kOutOfRange};
}

}  // namespace

std::vector<Row> index_rows() {
  Row add = at_indices({"index_add.out"}, index_add);
  add.identities = {{"alpha", 1}};
  return {
      at_indices({"index.Tensor_out"}, index),
      at_indices({"_index_put_impl_"}, index_put),
      at_indices({"index_select", "index_select.out"}, index_select),
      add,
      at_indices({"index_copy.out"}, index_copy),
      at_indices({"index_fill_.int_Scalar", "index_fill_.int_Tensor"}, index_fill),
      at_indices({"gather.out"}, gather),
      at_indices(
          {"scatter.src_out", "scatter.value_out", "scatter.reduce_out", "scatter.value_reduce_out", "scatter_add.out"},
          scatter),
      at_indices({"scatter_reduce.two_out"}, scatter_reduce),
      at_indices({"index_reduce.out"}, index_reduce),
      {.overloads = {"masked_fill_.Scalar", "masked_fill_.Tensor"}, .emit = masked_fill},
      {.overloads = {"masked_scatter_"},
       .emit = masked_scatter,
       .remark = "too few elements in source raise when the host next waits for the device"},
      at_indices({"take", "take.out"}, take),
      at_indices({"put_"}, put),
      {.overloads = {"embedding_dense_backward"},
       .emit = embedding_dense_backward,
       .remark = "an index out of range is ignored; the forward op refused it"},
  };
}

}  // namespace tpupilot::ops
