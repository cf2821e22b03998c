// Gather, scatter, sort, loops and random bits.
#include "hlo/builder.h"
#include "hlo/text.h"

namespace tpupilot::hlo {
namespace {

// The dims of `indices` that are not the index vector.
Dims batch_of(const Dims& indices, int64_t index_vector_dim) {
  Dims batch;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (static_cast<int64_t>(i) != index_vector_dim) batch.push_back(indices[i]);
  }
  return batch;
}

// Batch sizes and window sizes merged: window dims stand at `window_dims`, ascending. Empty if they do not fit.
std::optional<Dims> merged(const Dims& batch, const Dims& window, const Dims& window_dims) {
  const size_t rank = batch.size() + window.size();
  if (window.size() != window_dims.size() || !std::is_sorted(window_dims.begin(), window_dims.end())) return {};
  if (!window_dims.empty() && (window_dims.front() < 0 || window_dims.back() >= static_cast<int64_t>(rank))) return {};
  Dims out;
  size_t next_batch = 0, next_window = 0;
  for (size_t i = 0; i < rank; ++i) {
    const bool is_window = contains(window_dims, static_cast<int64_t>(i));
    if (is_window ? next_window == window.size() : next_batch == batch.size()) return {};
    out.push_back(is_window ? window[next_window++] : batch[next_batch++]);
  }
  return out;
}

bool index_vector_fits(const Type& indices, int64_t index_vector_dim, const Dims& map) {
  if (!is_integer(indices.elem) || index_vector_dim < 0 || index_vector_dim > indices.rank()) return false;
  const bool implicit = index_vector_dim == indices.rank();
  return static_cast<int64_t>(map.size()) == (implicit ? 1 : indices.dims[static_cast<size_t>(index_vector_dim)]);
}

void add_list(std::string& text, std::string_view name, const Dims& dims) {
  if (!dims.empty()) text += std::string(name) + " = " + bracketed(dims) + ", ";
}

std::string gather_numbers(const Gather& g) {
  std::string text = "dimension_numbers = #stablehlo.gather<";
  add_list(text, "offset_dims", g.offset_dims);
  add_list(text, "collapsed_slice_dims", g.collapsed_slice_dims);
  add_list(text, "operand_batching_dims", g.operand_batching_dims);
  add_list(text, "start_indices_batching_dims", g.start_indices_batching_dims);
  add_list(text, "start_index_map", g.start_index_map);
  return text + "index_vector_dim = " + std::to_string(g.index_vector_dim) + ">";
}

std::string scatter_numbers(const Scatter& s) {
  std::string text = "scatter_dimension_numbers = #stablehlo.scatter<";
  add_list(text, "update_window_dims", s.update_window_dims);
  add_list(text, "inserted_window_dims", s.inserted_window_dims);
  add_list(text, "input_batching_dims", s.input_batching_dims);
  add_list(text, "scatter_indices_batching_dims", s.scatter_indices_batching_dims);
  add_list(text, "scatter_dims_to_operand_dims", s.scatter_dims_to_operand_dims);
  return text + "index_vector_dim = " + std::to_string(s.index_vector_dim) + ">";
}

std::vector<Type> types_of(const Values& values) {
  std::vector<Type> types;
  for (const Value& v : values) types.push_back(v.type);
  return types;
}

}  // namespace

Value Builder::gather(const Value& x, const Value& indices, const Gather& g, const Dims& out_dims) {
  const std::string call = "from " + x.type.str() + " at " + indices.type.str() + " to " + bracketed(out_dims) + ": ";
  if (!index_vector_fits(indices.type, g.index_vector_dim, g.start_index_map)) {
    fail("gather", call + "start_index_map " + bracketed(g.start_index_map) + " does not fit the indices");
  }
  if (g.slice_sizes.size() != x.dims().size()) fail("gather", call + "slice_sizes " + bracketed(g.slice_sizes));
  Dims window;
  for (size_t i = 0; i < g.slice_sizes.size(); ++i) {
    const auto d = static_cast<int64_t>(i);
    const bool dropped = contains(g.collapsed_slice_dims, d) || contains(g.operand_batching_dims, d);
    if (g.slice_sizes[i] < 0 || g.slice_sizes[i] > x.dims()[i] || (dropped && g.slice_sizes[i] > 1)) {
      fail("gather", call + "slice_sizes " + bracketed(g.slice_sizes));
    }
    if (!dropped) window.push_back(g.slice_sizes[i]);
  }
  if (merged(batch_of(indices.dims(), g.index_vector_dim), window, g.offset_dims) != out_dims) {
    fail("gather", call + "offset_dims " + bracketed(g.offset_dims) + ", slice_sizes " + bracketed(g.slice_sizes));
  }
  return op("stablehlo.gather", {x, indices}, x.type.with(out_dims),
            gather_numbers(g) + ", slice_sizes = " + array_attribute(g.slice_sizes) + ", indices_are_sorted = false");
}

Value Builder::scatter(const Value& x, const Value& indices, const Value& updates, const Scatter& s,
                       std::string_view combiner, bool unique) {
  const std::string call = "of " + updates.type.str() + " into " + x.type.str() + " at " + indices.type.str() + ": ";
  if (updates.elem() != x.elem()) fail("scatter", call + "different element types");
  if (!index_vector_fits(indices.type, s.index_vector_dim, s.scatter_dims_to_operand_dims)) {
    fail("scatter", call + "scatter_dims_to_operand_dims " + bracketed(s.scatter_dims_to_operand_dims));
  }
  Dims window;  // as wide as the updates' window dims, which may be narrower than x
  for (int64_t d : s.update_window_dims) {
    if (d < 0 || d >= updates.rank()) fail("scatter", call + "update_window_dims " + bracketed(s.update_window_dims));
    window.push_back(updates.dims()[static_cast<size_t>(d)]);
  }
  const size_t dropped = s.inserted_window_dims.size() + s.input_batching_dims.size();
  const auto expected = merged(batch_of(indices.dims(), s.index_vector_dim), window, s.update_window_dims);
  if (expected != updates.dims() || window.size() + dropped != x.dims().size()) {
    fail("scatter", call + "update_window_dims " + bracketed(s.update_window_dims) + ", inserted_window_dims " +
                        bracketed(s.inserted_window_dims));
  }
  const Type scalar{x.elem(), {}};
  const std::string body = region({scalar, scalar}, [&](const Values& v) {
    return Values{combiner.empty() ? v[1] : binary(combiner, v[0], v[1])};
  });
  return op("stablehlo.scatter", {x, indices, updates}, x.type,
            scatter_numbers(s) + ", indices_are_sorted = false, unique_indices = " + (unique ? "true" : "false"), body);
}

Values Builder::sort(const Values& operands, int64_t dim, const std::function<Value(const Values&)>& less) {
  if (operands.empty()) fail("sort", "needs at least one operand");
  std::vector<Type> scalars;
  for (const Value& v : operands) {
    if (v.dims() != operands[0].dims())
      fail("sort", "operands of different shapes: " + operands[0].type.str() + " and " + v.type.str());
    scalars.insert(scalars.end(), 2, {v.elem(), {}});
  }
  if (dim < 0 || dim >= operands[0].rank())
    fail("sort", "dimension " + std::to_string(dim) + " of " + operands[0].type.str());
  const std::string body = region(scalars, [&](const Values& v) {
    const Value result = less(v);
    if (result.type != Type{Elem::Pred, {}}) fail("sort", "the comparator returned " + result.type.str());
    return Values{result};
  });
  return ops("stablehlo.sort", operands, types_of(operands),
             "dimension = " + integer_attribute(dim) + ", is_stable = true", body);
}

Values Builder::while_loop(const Values& init, const std::function<Value(const Values&)>& condition,
                           const std::function<Values(const Values&)>& body) {
  const std::vector<Type> types = types_of(init);
  if (init.empty()) fail("while", "needs at least one carried value");
  const std::string head = region(
      types,
      [&](const Values& v) {
        const Value result = condition(v);
        if (result.type != Type{Elem::Pred, {}}) fail("while", "the condition returned " + result.type.str());
        return Values{result};
      },
      true);
  const std::string loop = region(
      types,
      [&](const Values& v) {
        const Values results = body(v);
        if (results.size() != types.size()) {
          fail("while",
               "the body returned " + std::to_string(results.size()) + " values for " + std::to_string(types.size()));
        }
        for (size_t i = 0; i < types.size(); ++i) {
          if (results[i].type != types[i]) {
            fail("while",
                 "value " + std::to_string(i) + " came back as " + results[i].type.str() + ", not " + types[i].str());
          }
        }
        return results;
      },
      true);
  return ops("stablehlo.while", init, types, {}, head + ", " + loop);
}

}  // namespace tpupilot::hlo
