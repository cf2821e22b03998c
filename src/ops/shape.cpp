// Elements put elsewhere, unchanged.
#include "ops/indexing.h"
#include "ops/promote.h"

namespace tpupilot::ops {
namespace {

// Old-style empty vectors, of shape (0), may stand among tensors of any rank.
bool is_legacy_empty(const Value& v) { return v.rank() == 1 && v.dims()[0] == 0; }

Values cat(Context& c) {
  const Type& out = c.result();
  const int64_t dim = hlo::wrap_dim(c.integer("dim"), out.rank());
  Values parts;
  for (const std::optional<Value>& part : c.tensors("tensors")) {
    if (is_legacy_empty(*part) && out.rank() != 1) continue;
    parts.push_back(convert_like_aten(c.b, *part, out.elem));
  }
  if (parts.empty()) return {c.b.zeros(out)};
  return {parts.size() == 1 ? parts[0] : c.b.concatenate(parts, dim)};
}

Values flip(Context& c) {
  const Value x = c.tensor("self");
  Dims dims = c.integers("dims");
  for (int64_t& d : dims) d = hlo::wrap_dim(d, x.rank());
  return {x.rank() == 0 || dims.empty() ? x : c.b.reverse(x, dims)};
}

// x[-shift:] before x[:-shift] along a dim; `shift` is a 0-d S64. Of x twice in a row, a part that begins there.
Value rolled(Builder& b, const Value& x, int64_t dim, const Value& shift) {
  const int64_t n = x.dims()[dim];
  if (x.type.numel() == 0 || n == 1) return x;
  const Value size = b.constant_int(n, shift.type);
  const Value rest = b.binary("stablehlo.remainder", b.neg(shift), size);  // in (-n, n)
  Values starts(x.dims().size(), b.zeros(shift.type));
  starts[static_cast<size_t>(dim)] =
      b.select(b.compare(hlo::Direction::LT, rest, b.zeros(rest.type)), b.add(rest, size), rest);
  return b.dynamic_slice(b.concatenate({x, x}, dim), starts, x.dims());
}

Values roll(Context& c) {
  Value x = c.tensor("self");
  const Values shifts = c.integer_inputs("shifts");
  const Dims dims = c.integers("dims");
  const Dims shape = x.dims();
  if (dims.empty()) return {c.b.reshape(rolled(c.b, c.b.reshape(x, {x.type.numel()}), 0, shifts.at(0)), shape)};
  for (size_t i = 0; i < dims.size(); ++i) x = rolled(c.b, x, hlo::wrap_dim(dims[i], x.rank()), shifts.at(i));
  return {x};
}

// Channels [groups, n] become [n, groups].
Values channel_shuffle(Context& c) {
  const Value x = c.tensor("self");
  const int64_t groups = c.integer("groups");
  if (x.rank() < 3 || groups < 1 || x.dims()[1] % groups != 0) {
    throw hlo::Error("[channel_shuffle] " + x.type.str() + " has no " + std::to_string(groups) +
                     " equal groups of channels in dim 1");
  }
  const int64_t inner = hlo::product(Dims(x.dims().begin() + 2, x.dims().end()));
  const Value split = c.b.reshape(x, {x.dims()[0], groups, x.dims()[1] / groups, inner});
  return {c.b.reshape(c.b.transpose(split, {0, 2, 1, 3}), x.dims())};
}

// Sums the windows of Tensor.unfold back to where they came from. grad_in: [.., windows at `dim`, .., size].
Values unfold_backward(Context& c) {
  const Value g = convert_like_aten(c.b, c.tensor("grad_in"), hlo::compute_elem(c.tensor("grad_in").elem()));
  const Dims& out = c.result().dims;
  const int64_t size = c.integer("size"), step = c.integer("step");
  if (out.empty()) return {c.b.reshape(g, {})};
  const int64_t dim = hlo::wrap_dim(c.integer("dim"), static_cast<int64_t>(out.size()));
  if (g.type.numel() == 0) return {c.b.zeros(c.result())};
  // [.., windows, size, ..]: then one run of places at `dim`.
  Dims order;
  for (int64_t d = 0; d < g.rank() - 1; ++d) {
    order.push_back(d);
    if (d == dim) order.push_back(g.rank() - 1);
  }
  const int64_t windows = g.dims()[dim];
  Dims run = out;
  run[dim] = windows * size;
  const Value updates = c.b.reshape(c.b.transpose(g, order), run);
  const Type grid{Elem::S64, {windows, size}};
  const Value begin = c.b.mul(c.b.iota(grid, 0), c.b.constant_int(step, grid));
  const Value places = c.b.reshape(c.b.add(begin, c.b.iota(grid, 1)), {windows * size});
  return {put_slices(c.b, c.b.zeros({g.elem(), out}), places, updates, dim, "stablehlo.add")};
}

}  // namespace

std::vector<Row> shape_rows() {
  return {
      {.overloads = {"cat.out"}, .emit = cat},
      {.overloads = {"flip"}, .emit = flip},
      {.overloads = {"roll"}, .emit = roll, .inputs = {"shifts"}},
      {.overloads = {"channel_shuffle"}, .emit = channel_shuffle},
      {.overloads = {"unfold_backward"}, .emit = unfold_backward},
  };
}

}  // namespace tpupilot::ops
