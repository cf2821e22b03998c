// Results whose size depends on data, as programs can have them: as long as they can become, with what counts at the
// front, and how much that is. `src/aten/sized_ops.cpp` calls these, reads the count, and cuts. Also the programs whose
// size the caller reads from the data before (bincount, repeat_interleave).
#include <limits>

#include "ops/indexing.h"
#include "ops/promote.h"
#include "ops/scan.h"
#include "ops/sorting.h"

namespace tpupilot::ops {
namespace {

using hlo::Direction;

Type counter() { return {Elem::S64, {}}; }

// 1, 2, ... at the true elements of a vector: S64.
Value running_count(Builder& b, const Value& mask) {
  const bool narrow = mask.type.numel() < std::numeric_limits<int32_t>::max();
  const Elem elem = narrow ? Elem::S32 : Elem::S64;
  return b.convert(scan(b, "stablehlo.add", b.convert(mask, elem), b.zeros({elem, {}}), 0), Elem::S64);
}

Value last_of(Builder& b, const Value& vector) {
  const int64_t n = vector.dims()[0];
  return b.reshape(b.slice_dim(vector, 0, n - 1, n), {});
}

// Where each true element goes: its ordinal; `nowhere` for the others, which a scatter drops.
Value places_of_true(Builder& b, const Value& mask, const Value& count, int64_t nowhere) {
  const Value ordinal = b.sub(count, b.constant_int(1, count.type));
  return b.select(mask, ordinal, b.constant_int(nowhere, count.type));
}

Value flat_truth(Context& c) {
  const Value x = c.tensor("self");
  return convert_like_aten(c.b, c.b.reshape(x, {x.type.numel()}), Elem::Pred);
}

// ---- nonzero ----
// All coordinates along one dim stand together, and the next dim's follow at once: of strides (1, count), as ATen's.
Values nonzero(Context& c) {
  Builder& b = c.b;
  const Dims dims = c.tensor("self").dims();
  const Value mask = flat_truth(c);
  const int64_t n = mask.type.numel(), rank = static_cast<int64_t>(dims.size());
  const Value running = running_count(b, mask), count = last_of(b, running);
  if (rank == 0) return {b.zeros(c.result(0)), count};
  Values places, coordinates;
  for (int64_t d = 0; d < rank; ++d) {
    const Value begin = b.mul(count, b.constant_int(d, count.type));
    const Value moved = b.add(running, b.broadcast(begin, running.dims()));
    places.push_back(places_of_true(b, mask, moved, n * rank));
    coordinates.push_back(b.reshape(b.iota({Elem::S64, dims}, d), {n}));
  }
  const Value all = put_slices(b, b.zeros(c.result(0)), b.concatenate(places, 0), b.concatenate(coordinates, 0), 0);
  return {all, count};
}
std::vector<Type> nonzero_types(Context& c) {
  const Type& self = c.tensor("self").type;
  return {{Elem::S64, {self.numel() * self.rank()}}, counter()};
}

// [size, rank]; what is missing has the fill value.
Values nonzero_static(Context& c) {
  Builder& b = c.b;
  const Dims dims = c.tensor("self").dims();
  const Value mask = flat_truth(c);
  const int64_t n = mask.type.numel(), rank = static_cast<int64_t>(dims.size()), size = c.result().dims[0];
  const Value filled = b.constant_int(c.integer("fill_value"), c.result());
  if (n == 0 || rank == 0 || size == 0) return {filled};
  Values columns;
  for (int64_t d = 0; d < rank; ++d) columns.push_back(b.reshape(b.iota({Elem::S64, dims}, d), {n, 1}));
  const Value places = places_of_true(b, mask, running_count(b, mask), size);
  return {put_slices(b, filled, places, b.concatenate(columns, 1), 0)};
}

std::vector<Type> nonzero_static_type(Context& c) {
  return {{Elem::S64, {c.integer("size"), c.tensor("self").rank()}}};
}

// ---- masked_select ----
Dims common_dims(Context& c) {
  Dims dims = c.tensor("self").dims();
  const Dims other = c.tensor("mask").dims();
  if (other.size() > dims.size()) dims.insert(dims.begin(), other.size() - dims.size(), 1);
  for (size_t i = 0; i < other.size(); ++i) {
    int64_t& size = dims[dims.size() - other.size() + i];
    if (size == 1) size = other[i];
  }
  return dims;
}

Values masked_select(Context& c) {
  Builder& b = c.b;
  const Dims dims = common_dims(c);
  const int64_t n = hlo::product(dims);
  const Value x = b.reshape(b.broadcast(c.tensor("self"), dims), {n});
  const Value mask = b.reshape(b.broadcast(c.tensor("mask"), dims), {n});
  const Value running = running_count(b, mask);
  return {put_slices(b, b.zeros(x.type), places_of_true(b, mask, running, n), x, 0), last_of(b, running)};
}
std::vector<Type> masked_select_types(Context& c) {
  return {{c.tensor("self").elem(), {hlo::product(common_dims(c))}}, counter()};
}

// ---- unique ----
// self as rows: its slices along dim, or its elements.
Value rows_of(Context& c) {
  const Value x = c.tensor("self");
  if (!c.given("dim")) return c.b.reshape(x, {x.type.numel(), 1});
  const int64_t dim = hlo::wrap_dim(c.integer("dim"), x.rank());
  Dims order{dim};
  for (int64_t d = 0; d < x.rank(); ++d) {
    if (d != dim) order.push_back(d);
  }
  const int64_t n = x.dims()[dim];
  return c.b.reshape(c.b.transpose(x, order), {n, x.type.numel() / n});
}

// The order that sorts rows by their first element, then the second, ...: stable sorts, from the last column to the
// first.
Value lexicographic_order(Builder& b, const Value& rows) {
  const int64_t n = rows.dims()[0], columns = rows.dims()[1];
  if (columns == 1) return sorted(b, b.reshape(rows, {n}), 0, false).indices;
  const Value zero = b.zeros(counter()), one = b.constant_int(1, counter());
  const auto body = [&](const Values& state) {
    const Value column = b.reshape(b.dynamic_slice(rows, {b.zeros(counter()), state[0]}, {n, 1}), {n});
    const Value order = sorted(b, gather_along(b, column, state[1], 0), 0, false).indices;
    return Values{b.sub(state[0], b.constant_int(1, counter())), gather_along(b, state[1], order, 0)};
  };
  const Value last = b.sub(b.constant_int(columns, counter()), one);
  return b.while_loop(
      {last, b.iota({Elem::S64, {n}}, 0)},
      [&](const Values& state) { return b.compare(Direction::GE, state[0], b.zeros(zero.type)); }, body)[1];
}

// Equal neighbours become one. Values, the group of each element, the size of each group, the number of groups.
Values unique(Context& c) {
  Builder& b = c.b;
  Value rows = rows_of(c);
  const int64_t n = rows.dims()[0];
  Value order;
  if (c.boolean("sort")) {
    order = lexicographic_order(b, rows);
    rows = take_slices(b, rows, order, 0);
  }
  Value begins = b.constant_int(1, {Elem::Pred, {1}});
  if (n > 1) {
    const Value other = b.compare(Direction::NE, b.slice_dim(rows, 0, 1, n), b.slice_dim(rows, 0, 0, n - 1));
    begins = b.concatenate({begins, b.any(other, {1})}, 0);
  }
  const Value running = running_count(b, begins);
  const Value group = b.sub(running, b.constant_int(1, running.type));
  const Value values = put_slices(b, b.zeros(rows.type), places_of_true(b, begins, running, n), rows, 0);
  Value inverse, counts;
  if (c.boolean("inverse")) inverse = order ? put_slices(b, b.zeros(group.type), order, group, 0) : group;
  if (c.boolean("counts")) {
    counts = put_slices(b, b.zeros(group.type), group, b.constant_int(1, group.type), 0, "stablehlo.add");
  }
  return {b.reshape(values, c.result(0).dims), inverse, counts, last_of(b, running)};
}
std::vector<Type> unique_types(Context& c) {
  const Value rows = rows_of(c);
  const Type index{Elem::S64, {rows.dims()[0]}};
  return {{rows.elem(), {rows.type.numel()}}, index, index, counter()};
}

// ---- sizes that are read first ----
// The smallest element, the largest, and the sum: S64[3].
Values summary(Context& c) {
  Builder& b = c.b;
  const Value x = b.convert(c.tensor("self"), Elem::S64);
  const Value flat = b.reshape(x, {x.type.numel()});
  return {b.concatenate(
      {b.reshape(b.amin(flat, {0}), {1}), b.reshape(b.amax(flat, {0}), {1}), b.reshape(b.sum(flat, {0}), {1})}, 0)};
}

Values bincount(Context& c) {
  Builder& b = c.b;
  const Value places = b.convert(c.tensor("self"), Elem::S64);
  const Type& out = c.result();
  const Value amounts = c.given("weights") ? convert_like_aten(b, c.tensor("weights"), out.elem)
                                           : b.constant_int(1, places.type.with(out.elem));
  return {put_slices(b, b.zeros(out), places, amounts, 0, "stablehlo.add")};
}
std::vector<Type> bincount_types(Context& c) {
  const Elem elem = !c.given("weights") ? Elem::S64 : c.tensor("weights").elem() == Elem::F32 ? Elem::F32 : Elem::F64;
  return {{elem, {c.integer("size")}}};
}

// Which element of `repeats` each place belongs to.
Values repeat_interleave(Context& c) {
  Builder& b = c.b;
  const Value repeats = b.convert(c.tensor("repeats"), Elem::S64);
  const Value ends = scan(b, "stablehlo.add", repeats, b.zeros(counter()), 0);
  return {search_sorted(b, ends, b.iota({Elem::S64, {c.integer("size")}}, 0), true)};
}

}  // namespace

std::vector<InternalOp> counted_ops() {
  return {
      {"nonzero(Tensor self) -> (Tensor, Tensor)", {.emit = nonzero, .shape = nonzero_types}},
      {"masked_select(Tensor self, Tensor mask) -> (Tensor, Tensor)",
       {.emit = masked_select, .shape = masked_select_types}},
      {"unique(Tensor self, int? dim, bool sort, bool inverse, bool counts) -> (Tensor, Tensor, Tensor, Tensor)",
       {.emit = unique, .shape = unique_types}},
      {"summary(Tensor self) -> Tensor",
       {.emit = summary, .shape = [](Context&) { return std::vector<Type>{{Elem::S64, {3}}}; }}},
      {"bincount(Tensor self, Tensor? weights, int size) -> Tensor", {.emit = bincount, .shape = bincount_types}},
      {"repeat_interleave(Tensor repeats, int size) -> Tensor",
       {.emit = repeat_interleave,
        .shape = [](Context& c) { return std::vector<Type>{{c.tensor("repeats").elem(), {c.integer("size")}}}; }}},
  };
}

std::vector<Row> counted_rows() {
  return {
      {.overloads = {"nonzero_static", "nonzero_static.out"}, .emit = nonzero_static, .shape = nonzero_static_type}};
}

}  // namespace tpupilot::ops
