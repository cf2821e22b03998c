// Tensors made from numbers and positions.
#include <algorithm>

#include "ops/complex.h"
#include "ops/indexing.h"
#include "ops/promote.h"
#include "ops/sorting.h"

namespace tpupilot::ops {
namespace {

using hlo::Direction;

Value position(Context& c, Elem elem, const Dims& dims, int64_t dim) { return c.b.iota({elem, dims}, dim); }

Values zero(Context& c) { return {c.b.zeros(c.result())}; }

Values fill(Context& c) {
  const Elem elem = c.result().elem;
  return {c.is_scalar("value") ? c.scalar("value", elem) : convert_like_aten(c.b, c.tensor("value"), elem)};
}

// start + i * step, in f64 or i64 as at::native::arange_out has it, rounded once.
Values arange(Context& c) {
  const Type& out = c.result();
  const Elem elem = hlo::is_float(out.elem) ? Elem::F64 : Elem::S64;
  const Expr start = expr(c, c.scalar("start", elem)), step = expr(c, c.scalar("step", elem));
  return {start + expr(c, position(c, elem, out.dims, 0)) * step};
}

// at::native::linspace: the second half counts from the end, so that both ends are exact.
Values linspace(Context& c) {
  const Type& out = c.result();
  const int64_t steps = c.integer("steps");
  const Elem elem = hlo::is_complex(out.elem) ? Elem::C128 : Elem::F64;
  const Expr start = broadcast(expr(c, c.scalar("start", elem)), out.dims),
             end = broadcast(expr(c, c.scalar("end", elem)), out.dims);
  if (steps <= 1) return {start};
  const Value i = position(c, Elem::S64, out.dims, 0);
  const Expr from_start = expr(c, convert_like_aten(c.b, i, elem));
  const Expr step = (end - start) / static_cast<double>(steps - 1);
  const Expr from_end = static_cast<double>(steps - 1) - from_start;
  const Expr low = expr(c, c.b.compare(Direction::LT, i, c.b.constant_int(steps / 2, i.type)));
  return {where(low, start + step * from_start, end - step * from_end)};
}

Values eye(Context& c) {
  const Dims& dims = c.result().dims;
  return {c.b.compare(Direction::EQ, position(c, Elem::S64, dims, 0), position(c, Elem::S64, dims, 1))};
}

// Keeps the elements whose column less row is on the given side of `diagonal`.
Emitter triangle(Direction keep) {
  return [keep](Context& c) {
    const Value x = c.tensor("self");
    const int64_t rank = x.rank();
    const Value offset =
        c.b.sub(position(c, Elem::S64, x.dims(), rank - 1), position(c, Elem::S64, x.dims(), rank - 2));
    const Value kept = c.b.compare(keep, offset, c.b.constant_int(c.integer("diagonal"), offset.type));
    return Values{c.b.select(kept, x, c.b.zeros(x.type))};
  };
}

// base ^ (start + i * step), as at::native::logspace_out.
Values logspace(Context& c) {
  const Type& out = c.result();
  const Type wide = out.with(hlo::is_complex(out.elem) ? Elem::C128 : Elem::F64);
  const auto power = [](const Expr& x, const Expr& y) {
    return hlo::is_complex(x.v.elem()) ? complex_power(x, y) : apply("stablehlo.power", x, y);
  };
  const Expr start = expr(c, c.scalar_as("start", wide)), end = expr(c, c.scalar_as("end", wide));
  const Expr base = expr(c, c.scalar_as("base", wide));
  const int64_t steps = c.integer("steps");
  if (steps <= 1) return {power(base, start)};
  const Expr step = (end - start) / static_cast<double>(steps - 1);
  return {power(base, start + step * convert(expr(c, position(c, Elem::S64, out.dims, 0)), wide.elem))};
}

// The coordinates of a triangle's elements in row-major order: its rows begin at known places, and each element's row
// is found among these.
Emitter triangle_indices(bool lower) {
  return [lower](Context& c) {
    Builder& b = c.b;
    const int64_t rows = c.integer("row"), columns = c.integer("col"), offset = c.integer("offset");
    const int64_t total = c.result().dims.at(1);
    if (total == 0) return Values{b.zeros(c.result())};
    Dims begins, firsts;  // of each row: the place of its first element, and that element's column
    for (int64_t r = 0, place = 0; r < rows; ++r) {
      const int64_t first = std::clamp<int64_t>(lower ? 0 : r + offset, 0, columns);
      const int64_t limit = std::clamp<int64_t>(lower ? r + offset + 1 : columns, 0, columns);
      begins.push_back(place);
      firsts.push_back(first);
      place += std::max<int64_t>(limit - first, 0);
    }
    const Value place = b.iota({Elem::S64, {total}}, 0), begin = b.constant_ints(begins, Elem::S64);
    const Value row = b.sub(search_sorted(b, begin, place, true), b.constant_int(1, place.type));
    const Value within = b.sub(place, gather_along(b, begin, row, 0));
    const Value column = b.add(within, gather_along(b, b.constant_ints(firsts, Elem::S64), row, 0));
    return Values{b.concatenate({b.unsqueeze(row, 0), b.unsqueeze(column, 0)}, 0)};
  };
}

Values complex_parts(Context& c) {
  const Elem part = hlo::real_of(c.result().elem);
  const Dims& dims = c.result().dims;
  return {complex(operand(c, "real", part, dims), operand(c, "imag", part, dims))};
}

}  // namespace

std::vector<Row> fill_rows() {
  return {
      {.overloads = {"zero_"}, .emit = zero},
      {.overloads = {"fill_.Scalar", "fill_.Tensor"}, .emit = fill},
      {.overloads = {"arange.start_out"},
       .emit = arange,
       .shape = [](Context& c) { return std::vector{c.tensor("out").type}; }},  // sized before the call
      {.overloads = {"linspace.out"}, .emit = linspace},
      {.overloads = {"eye.out", "eye.m_out"}, .emit = eye},
      {.overloads = {"tril.out"}, .emit = triangle(Direction::LE)},
      {.overloads = {"triu.out"}, .emit = triangle(Direction::GE)},
      {.overloads = {"logspace.out"}, .emit = logspace},
      {.overloads = {"tril_indices"}, .emit = triangle_indices(true)},
      {.overloads = {"triu_indices"}, .emit = triangle_indices(false)},
      {.overloads = {"complex.out"}, .emit = complex_parts},
  };
}

}  // namespace tpupilot::ops
