// Ops that move elements without computing: reshape, broadcast, transpose, slices, pad, concatenate.
#include <numeric>

#include "hlo/builder.h"
#include "hlo/text.h"

namespace tpupilot::hlo {
namespace {

std::string at_dim(size_t i) { return " at dimension " + std::to_string(i); }

bool are_starts(const Values& starts, int64_t rank) {
  if (static_cast<int64_t>(starts.size()) != rank) return false;
  return std::all_of(starts.begin(), starts.end(), [&](const Value& s) {
    return s.rank() == 0 && is_integer(s.elem()) && s.elem() == starts[0].elem();
  });
}

}  // namespace

Value Builder::reshape(const Value& x, const Dims& dims) {
  if (x.dims() == dims) return x;
  if (product(dims) != x.type.numel()) fail("reshape", x.type.str() + " to " + bracketed(dims));
  Value result = op("stablehlo.reshape", {x}, x.type.with(dims));
  if (dims.size() == 1) flattened_.emplace(result.name, x);
  return result;
}

Value Builder::broadcast(const Value& x, const Dims& dims) {
  if (x.dims() == dims) return x;
  const size_t rank = x.dims().size();
  if (rank > dims.size()) fail("broadcast", x.type.str() + " to fewer dimensions " + bracketed(dims));
  Dims map(rank);
  std::iota(map.begin(), map.end(), static_cast<int64_t>(dims.size() - rank));
  return broadcast_in_dim(x, dims, map);
}

Value Builder::broadcast_in_dim(const Value& x, const Dims& out, const Dims& dims) {
  bool fits = dims.size() == x.dims().size();
  for (size_t i = 0; fits && i < dims.size(); ++i) {
    fits = dims[i] >= 0 && dims[i] < static_cast<int64_t>(out.size()) &&
           (x.dims()[i] == 1 || x.dims()[i] == out[static_cast<size_t>(dims[i])]) &&
           std::count(dims.begin(), dims.end(), dims[i]) == 1;
  }
  if (!fits) fail("broadcast", x.type.str() + " to " + bracketed(out) + " by dimensions " + bracketed(dims));
  return op("stablehlo.broadcast_in_dim", {x}, x.type.with(out), "broadcast_dimensions = " + array_attribute(dims));
}

Value Builder::transpose(const Value& x, const Dims& permutation) {
  Dims sorted = permutation, identity(x.dims().size());
  std::sort(sorted.begin(), sorted.end());
  std::iota(identity.begin(), identity.end(), 0);
  if (sorted != identity)
    fail("transpose", bracketed(permutation) + " is no permutation of the dimensions of " + x.type.str());
  if (permutation == identity) return x;
  Dims out;
  for (int64_t p : permutation) out.push_back(x.dims()[static_cast<size_t>(p)]);
  return op("stablehlo.transpose", {x}, x.type.with(out), "permutation = " + array_attribute(permutation));
}

Value Builder::slice(const Value& x, const Dims& start, const Dims& limit, const Dims& stride) {
  const size_t rank = x.dims().size();
  if (start.size() != rank || limit.size() != rank || stride.size() != rank) {
    fail("slice", bracketed(start) + " to " + bracketed(limit) + " by " + bracketed(stride) + " of " + x.type.str());
  }
  Dims out(rank);
  for (size_t i = 0; i < rank; ++i) {
    if (start[i] < 0 || start[i] > limit[i] || limit[i] > x.dims()[i] || stride[i] < 1) {
      fail("slice", std::to_string(start[i]) + " to " + std::to_string(limit[i]) + " by " + std::to_string(stride[i]) +
                        at_dim(i) + " of " + x.type.str());
    }
    out[i] = (limit[i] - start[i] + stride[i] - 1) / stride[i];
  }
  if (out == x.dims()) return x;
  return op("stablehlo.slice", {x}, x.type.with(out),
            "start_indices = " + array_attribute(start) + ", limit_indices = " + array_attribute(limit) +
                ", strides = " + array_attribute(stride));
}

Value Builder::slice_dim(const Value& x, int64_t dim, int64_t start, int64_t limit, int64_t stride) {
  if (dim < 0 || dim >= x.rank()) fail("slice_dim", "dimension " + std::to_string(dim) + " of " + x.type.str());
  Dims starts(x.dims().size(), 0), limits = x.dims(), strides(x.dims().size(), 1);
  const auto d = static_cast<size_t>(dim);
  starts[d] = start;
  limits[d] = limit;
  strides[d] = stride;
  return slice(x, starts, limits, strides);
}

Value Builder::dynamic_slice(const Value& x, const Values& starts, const Dims& sizes) {
  if (!are_starts(starts, x.rank()))
    fail("dynamic_slice", "needs one 0-d integer of one type a dimension of " + x.type.str());
  bool fits = sizes.size() == x.dims().size();
  for (size_t i = 0; fits && i < sizes.size(); ++i) fits = sizes[i] >= 0 && sizes[i] <= x.dims()[i];
  if (!fits) fail("dynamic_slice", "sizes " + bracketed(sizes) + " of " + x.type.str());
  Values in{x};
  in.insert(in.end(), starts.begin(), starts.end());
  return op("stablehlo.dynamic_slice", in, x.type.with(sizes), "slice_sizes = " + array_attribute(sizes));
}

Value Builder::dynamic_update_slice(const Value& x, const Value& update, const Values& starts) {
  if (!are_starts(starts, x.rank())) {
    fail("dynamic_update_slice", "needs one 0-d integer of one type a dimension of " + x.type.str());
  }
  bool fits = update.elem() == x.elem() && update.rank() == x.rank();
  for (size_t i = 0; fits && i < x.dims().size(); ++i) fits = update.dims()[i] <= x.dims()[i];
  if (!fits) fail("dynamic_update_slice", "an update of type " + update.type.str() + " into " + x.type.str());
  Values in{x, update};
  in.insert(in.end(), starts.begin(), starts.end());
  return op("stablehlo.dynamic_update_slice", in, x.type);
}

Value Builder::pad(const Value& x, const Value& fill, const Dims& low, const Dims& high, const Dims& interior) {
  const size_t rank = x.dims().size();
  if (low.size() != rank || high.size() != rank || interior.size() != rank) {
    fail("pad", bracketed(low) + ", " + bracketed(high) + ", " + bracketed(interior) + " of " + x.type.str());
  }
  if (fill.type != Type{x.elem(), {}}) fail("pad", "a fill of type " + fill.type.str() + " for " + x.type.str());
  Dims out(rank);
  for (size_t i = 0; i < rank; ++i) {
    out[i] = low[i] + high[i] + x.dims()[i] + std::max<int64_t>(x.dims()[i] - 1, 0) * interior[i];
    if (interior[i] < 0 || out[i] < 0) {
      fail("pad", std::to_string(low[i]) + ", " + std::to_string(high[i]) + ", interior " +
                      std::to_string(interior[i]) + at_dim(i) + " of " + x.type.str());
    }
  }
  const Dims none(rank, 0);
  if (low == none && high == none && interior == none) return x;
  return op("stablehlo.pad", {x, fill}, x.type.with(out),
            "edge_padding_low = " + array_attribute(low) + ", edge_padding_high = " + array_attribute(high) +
                ", interior_padding = " + array_attribute(interior));
}

Value Builder::concatenate(const Values& parts, int64_t dim) {
  if (parts.empty()) fail("concatenate", "needs at least one operand");
  Type out = parts[0].type;
  if (dim < 0 || dim >= out.rank()) fail("concatenate", "dimension " + std::to_string(dim) + " of " + out.str());
  const auto d = static_cast<size_t>(dim);
  out.dims[d] = 0;
  for (const Value& part : parts) {
    Type expected = out;
    if (part.rank() == out.rank()) expected.dims[d] = part.dims()[d];
    if (part.type != expected) {
      fail("concatenate", part.type.str() + " with " + parts[0].type.str() + at_dim(d));
    }
    out.dims[d] += part.dims()[d];
  }
  if (parts.size() == 1) return parts[0];
  return op("stablehlo.concatenate", parts, out, "dimension = " + integer_attribute(dim));
}

Value Builder::reverse(const Value& x, const Dims& dims) {
  for (int64_t d : dims) {
    if (d < 0 || d >= x.rank() || std::count(dims.begin(), dims.end(), d) != 1) {
      fail("reverse", "dimensions " + bracketed(dims) + " of " + x.type.str());
    }
  }
  return dims.empty() ? x : op("stablehlo.reverse", {x}, x.type, "dimensions = " + array_attribute(dims));
}

Value Builder::squeeze(const Value& x, int64_t dim) {
  if (dim < 0 || dim >= x.rank() || x.dims()[static_cast<size_t>(dim)] != 1) {
    fail("squeeze", "dimension " + std::to_string(dim) + " of " + x.type.str() + " is not of size 1");
  }
  Dims out = x.dims();
  out.erase(out.begin() + dim);
  return reshape(x, out);
}

Value Builder::unsqueeze(const Value& x, int64_t dim) {
  if (dim < 0 || dim > x.rank()) fail("unsqueeze", "dimension " + std::to_string(dim) + " of " + x.type.str());
  Dims out = x.dims();
  out.insert(out.begin() + dim, 1);
  return reshape(x, out);
}

}  // namespace tpupilot::hlo
