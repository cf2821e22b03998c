// Reductions. On the CPU plugin a plain stablehlo.reduce is slow over outer dimensions and for extrema, and inexact
// over many elements; trees of halves are vectorised loops there, and pairwise. Other targets get the plain op.
#include "hlo/builder.h"
#include "hlo/text.h"

namespace tpupilot::hlo {
namespace {

constexpr int64_t kRowOfExtremum = 32;  // rows of this length are left to the plain op
constexpr int64_t kLongestRow = 4096;   // longer rows are reduced in parts first, or halved
constexpr int64_t kPartsOfLongRow = 32;

// A divisor of n near kPartsOfLongRow; 0 if there is none (slices of a row would cost a copy of it).
int64_t parts_of_row(int64_t n) {
  for (int64_t parts = kPartsOfLongRow; parts >= kPartsOfLongRow / 2; --parts) {
    if (n % parts == 0) return parts;
  }
  for (int64_t parts = kPartsOfLongRow + 1; parts <= kPartsOfLongRow * 2; ++parts) {
    if (n % parts == 0) return parts;
  }
  return 0;
}

Dims without(const Dims& sizes, const Dims& dims) {
  Dims kept;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!contains(dims, static_cast<int64_t>(i))) kept.push_back(sizes[i]);
  }
  return kept;
}

struct Group {  // neighbouring dims that are all reduced, or all kept
  int64_t size;
  bool reduced;
};

std::vector<Group> grouped(const Dims& sizes, const Dims& dims) {
  std::vector<Group> groups;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1) continue;
    const bool reduced = contains(dims, static_cast<int64_t>(i));
    if (groups.empty() || groups.back().reduced != reduced) groups.push_back({1, reduced});
    groups.back().size *= sizes[i];
  }
  return groups;
}

}  // namespace

Dims Builder::normalized(std::string_view op, const Dims& dims, const Type& x) const {
  Dims out;
  for (int64_t d : dims) {
    const int64_t span = std::max<int64_t>(x.rank(), 1);
    if (d < -span || d >= span) fail(op, "dimension " + std::to_string(d) + " is out of range for " + x.str());
    if (x.rank() > 0) out.push_back(d < 0 ? d + span : d);
  }
  std::sort(out.begin(), out.end());
  if (std::adjacent_find(out.begin(), out.end()) != out.end()) fail(op, "repeated dimension in " + bracketed(dims));
  return out;
}

Value Builder::reduce(std::string_view combiner, const Value& x, const Value& init, const Dims& dims) {
  const Dims reduced = normalized("reduce", dims, x.type);
  const Type scalar{x.elem(), {}};
  if (init.type != scalar) fail("reduce", "an init of type " + init.type.str() + " for " + x.type.str());
  if (reduced.empty()) return x;
  const std::string body =
      region({scalar, scalar}, [&](const Values& v) { return Values{binary(combiner, v[0], v[1])}; });
  return op("stablehlo.reduce", {x, init}, x.type.with(without(x.dims(), reduced)),
            "dimensions = " + array_attribute(reduced), body);
}

// Reduces the last group of neighbouring dims first: `rows` takes [a, n] to [a], `middle` takes [a, n, b] to [a, 1, b].
Value Builder::reduce_in_stages(const Value& x, const Dims& dims, const std::function<Value(const Value&)>& rows,
                                const std::function<Value(const Value&)>& middle) {
  std::vector<Group> groups = grouped(x.dims(), dims);
  Value y = x;
  int64_t inner = 1;
  bool first = true;
  for (; !groups.empty(); groups.pop_back()) {
    const auto [size, reduced] = groups.back();
    if (!reduced) {
      inner *= size;
      continue;
    }
    // Without the barrier the next stage recomputes this one in each of its operands.
    if (!first) y = barrier(y);
    first = false;
    const int64_t outer = y.type.numel() / (size * inner);
    y = inner == 1 ? rows(reshape(y, {outer, size})) : middle(reshape(y, {outer, size, inner}));
  }
  return reshape(y, without(x.dims(), dims));
}

// Long rows as [a * parts, n / parts], then what is left of them.
Value Builder::reduce_in_parts(const Value& x, int64_t parts, const std::function<Value(const Value&)>& rows) {
  const int64_t outer = x.dims()[0], n = x.dims()[1];
  const Value inner = rows(reshape(x, {outer * parts, n / parts}));
  return rows(reshape(barrier(inner), {outer, parts}));
}

Value Builder::sum_rows(const Value& x) {
  const int64_t n = x.dims()[1];
  const Value zero = zeros({x.elem(), {}});
  if (n <= kLongestRow) return reduce("stablehlo.add", x, zero, {1});
  if (const int64_t parts = parts_of_row(n)) {
    return reduce_in_parts(x, parts, [this](const Value& v) { return sum_rows(v); });
  }
  const auto [folded, rest] = halve_sum(x, kLongestRow);
  const Value sum = reduce("stablehlo.add", folded, zero, {1});
  return rest ? add(sum, squeeze(rest, 1)) : sum;
}

Value Builder::sum_middle(const Value& x) {
  const auto [folded, rest] = halve_sum(x, 1);
  return rest ? add(folded, rest) : folded;
}

std::pair<Value, Value> Builder::halve_sum(Value x, int64_t until) {
  Value rest;  // the sum of the last slices of odd lengths
  for (int64_t n = x.dims()[1]; n > until; n /= 2) {
    if (n % 2 == 1) {
      const Value last = slice_dim(x, 1, n - 1, n);
      rest = rest ? add(rest, last) : last;
    }
    x = add(slice_dim(x, 1, 0, n / 2), slice_dim(x, 1, n / 2, n / 2 * 2));
  }
  return {x, rest};
}

// The halves of an odd length overlap by one.
Value Builder::halve_idempotent(std::string_view combiner, Value x, int64_t until) {
  for (int64_t n = x.dims()[1]; n > until; n = (n + 1) / 2) {
    x = binary(combiner, slice_dim(x, 1, 0, (n + 1) / 2), slice_dim(x, 1, n / 2, n));
  }
  return x;
}

Value Builder::idempotent_rows(std::string_view combiner, const Value& x, const Value& init) {
  const int64_t parts = x.dims()[1] > kLongestRow ? parts_of_row(x.dims()[1]) : 0;
  if (parts != 0) {
    return reduce_in_parts(x, parts, [&](const Value& v) { return idempotent_rows(combiner, v, init); });
  }
  return reduce(combiner, halve_idempotent(combiner, x, kRowOfExtremum), init, {1});
}

Value Builder::keep_identity(const Value& identity, const Type& x, const Dims& dims) {
  return broadcast(identity, without(x.dims, dims));
}

Value Builder::sum(const Value& x, const Dims& dims) {
  if (x.elem() == Elem::Pred) fail("sum", "of " + x.type.str() + " is undefined; convert it first");
  const Dims reduced = normalized("sum", dims, x.type);
  const Value zero = zeros({compute_elem(x.elem()), {}});
  if (x.type.numel() == 0) return convert(keep_identity(zero, x.type, reduced), x.elem());
  const Value wide = convert(x, compute_elem(x.elem()));
  const Value total = target_.cpu() ? reduce_in_stages(
                                          wide, reduced, [this](const Value& v) { return sum_rows(v); },
                                          [this](const Value& v) { return sum_middle(v); })
                                    : reduce("stablehlo.add", wide, zero, reduced);
  return convert(total, x.elem());
}

Value Builder::reduce_idempotent(std::string_view combiner, const Value& x, const Value& init, const Dims& dims) {
  const Dims reduced = normalized(combiner, dims, x.type);
  if (x.type.numel() == 0) return keep_identity(init, x.type, reduced);
  if (!target_.cpu()) return reduce(combiner, x, init, reduced);
  return reduce_in_stages(
      x, reduced, [&](const Value& v) { return idempotent_rows(combiner, v, init); },
      [&](const Value& v) { return halve_idempotent(combiner, v, 1); });
}

Value Builder::amax(const Value& x, const Dims& dims) {
  const Value wide = convert(x, compute_elem(x.elem()));
  return convert(reduce_idempotent("stablehlo.maximum", wide, lowest({wide.elem(), {}}), dims), x.elem());
}

Value Builder::amin(const Value& x, const Dims& dims) {
  const Value wide = convert(x, compute_elem(x.elem()));
  return convert(reduce_idempotent("stablehlo.minimum", wide, highest({wide.elem(), {}}), dims), x.elem());
}

Value Builder::any(const Value& x, const Dims& dims) {
  if (x.elem() != Elem::Pred) fail("any", "needs a Pred, not " + x.type.str());
  return reduce_idempotent("stablehlo.or", x, constant(0, {Elem::Pred, {}}), dims);
}

Value Builder::all(const Value& x, const Dims& dims) {
  if (x.elem() != Elem::Pred) fail("all", "needs a Pred, not " + x.type.str());
  return reduce_idempotent("stablehlo.and", x, constant(1, {Elem::Pred, {}}), dims);
}

Value Builder::keep_dims(const Value& reduced, const Dims& original, const Dims& dims) {
  const Type type{reduced.elem(), original};
  const Dims gone = normalized("keep_dims", dims, type);
  if (reduced.dims() != without(original, gone)) {
    fail("keep_dims", reduced.type.str() + " is not " + bracketed(original) + " reduced over " + bracketed(dims));
  }
  Dims kept = original;
  for (int64_t d : gone) kept[static_cast<size_t>(d)] = 1;
  return reshape(reduced, kept);
}

Value Builder::unreduce(const Value& reduced, const Dims& original, const Dims& dims) {
  const Dims gone = normalized("unreduce", dims, {reduced.elem(), original});
  if (reduced.dims() != without(original, gone)) {
    fail("unreduce", reduced.type.str() + " is not " + bracketed(original) + " reduced over " + bracketed(dims));
  }
  if (gone.empty()) return reduced;
  Dims map;
  for (size_t i = 0; i < original.size(); ++i) {
    if (!contains(gone, static_cast<int64_t>(i))) map.push_back(static_cast<int64_t>(i));
  }
  return broadcast_in_dim(reduced, original, map);
}

}  // namespace tpupilot::hlo
