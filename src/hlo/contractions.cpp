// dot_general and convolution.
#include <array>
#include <cctype>
#include <utility>

#include "hlo/builder.h"
#include "hlo/text.h"

namespace tpupilot::hlo {
namespace {

// A TPU does the passes itself. Elsewhere by_passes made the parts, whose products are exact in f32.
std::string precision_attribute(const Target& target) {
  constexpr std::array<std::string_view, 4> kNames = {"HIGHEST", "DEFAULT", "HIGH", "HIGHEST"};  // by Passes
  const auto passes = target.platform == Platform::Tpu ? target.passes : Passes::Exact;
  const std::string one = "#stablehlo<precision " + std::string(kNames.at(static_cast<size_t>(passes))) + ">";
  return "precision_config = [" + one + ", " + one + "]";
}

// "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]" in its three parts; a spatial dim k is labelled '0' + k.
struct ConvolutionLabels {
  std::array<std::string, 3> parts;  // input, kernel, output

  explicit ConvolutionLabels(std::string_view text) {
    size_t part = 0;
    bool open = false;
    for (char c : text) {
      if (c == '[') open = true;
      if (c == ']') open = false, ++part;
      if (open && part < 3 && std::isalnum(static_cast<unsigned char>(c))) parts[part] += c;
    }
  }
  int64_t of(size_t part, char label, const Dims& dims) const {
    const size_t at = parts[part].find(label);
    return at < dims.size() ? dims[at] : -1;
  }
  bool is_complete(size_t part, std::string_view letters, size_t spatial) const {
    if (parts[part].size() != letters.size() + spatial) return false;
    for (char c : letters) {
      if (parts[part].find(c) == std::string::npos) return false;
    }
    for (size_t k = 0; k < spatial; ++k) {
      if (parts[part].find(static_cast<char>('0' + k)) == std::string::npos) return false;
    }
    return true;
  }
};

int64_t dilated(int64_t size, int64_t dilation) { return size == 0 ? 0 : (size - 1) * dilation + 1; }

}  // namespace

Value Builder::dot_general(const Value& a, const Value& b, const Dims& lhs_batch, const Dims& rhs_batch,
                           const Dims& lhs_contract, const Dims& rhs_contract, std::optional<Elem> result) {
  return by_passes(a, b, [&](const Value& x, const Value& y) {
    return dot(x, y, {lhs_batch, rhs_batch, lhs_contract, rhs_contract}, result);
  });
}

Value Builder::exact_dot_general(const Value& a, const Value& b, const Dims& lhs_batch, const Dims& rhs_batch,
                                 const Dims& lhs_contract, const Dims& rhs_contract, std::optional<Elem> result) {
  const Passes passes = std::exchange(target_.passes, Passes::Exact);
  const Value product = dot(a, b, {lhs_batch, rhs_batch, lhs_contract, rhs_contract}, result);
  target_.passes = passes;
  return product;
}

Value Builder::dot(const Value& a, const Value& b, const DotDims& dims, std::optional<Elem> result) {
  const auto& [lhs_batch, rhs_batch, lhs_contract, rhs_contract] = dims;
  const std::string call = a.type.str() + " and " + b.type.str() + ", batch " + bracketed(lhs_batch) + " " +
                           bracketed(rhs_batch) + ", contract " + bracketed(lhs_contract) + " " +
                           bracketed(rhs_contract);
  if (a.elem() != b.elem()) fail("dot_general", "operands of different element types: " + call);
  const auto check_pairs = [&](const Dims& lhs, const Dims& rhs) {
    bool fits = lhs.size() == rhs.size();
    for (size_t i = 0; fits && i < lhs.size(); ++i) {
      fits = lhs[i] >= 0 && lhs[i] < a.rank() && rhs[i] >= 0 && rhs[i] < b.rank() &&
             a.dims()[static_cast<size_t>(lhs[i])] == b.dims()[static_cast<size_t>(rhs[i])];
    }
    if (!fits) fail("dot_general", "dimensions do not match: " + call);
  };
  check_pairs(lhs_batch, rhs_batch);
  check_pairs(lhs_contract, rhs_contract);
  Dims out;
  for (int64_t d : lhs_batch) out.push_back(a.dims()[static_cast<size_t>(d)]);
  for (int64_t d = 0; d < a.rank(); ++d) {
    if (!contains(lhs_batch, d) && !contains(lhs_contract, d)) out.push_back(a.dims()[static_cast<size_t>(d)]);
  }
  for (int64_t d = 0; d < b.rank(); ++d) {
    if (!contains(rhs_batch, d) && !contains(rhs_contract, d)) out.push_back(b.dims()[static_cast<size_t>(d)]);
  }
  const std::string numbers =
      "dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = " + bracketed(lhs_batch) +
      ", rhs_batching_dimensions = " + bracketed(rhs_batch) +
      ", lhs_contracting_dimensions = " + bracketed(lhs_contract) +
      ", rhs_contracting_dimensions = " + bracketed(rhs_contract) + ">, ";
  return op("stablehlo.dot_general", {a, b}, {result.value_or(a.elem()), out}, numbers + precision_attribute(target_));
}

Value Builder::convolution(const Value& input, const Value& kernel, const Convolution& c, const Dims& out_dims) {
  const std::string call =
      "of " + input.type.str() + " with " + kernel.type.str() + " to " + bracketed(out_dims) + ": ";
  const size_t spatial = c.window_strides.size();
  const ConvolutionLabels labels(c.dimension_numbers);
  if (input.elem() != kernel.elem()) fail("convolution", call + "different element types");
  if (input.dims().size() != spatial + 2 || kernel.dims().size() != spatial + 2 || out_dims.size() != spatial + 2 ||
      c.padding.size() != spatial || c.lhs_dilation.size() != spatial || c.rhs_dilation.size() != spatial) {
    fail("convolution", call + "needs " + std::to_string(spatial) + " spatial dimensions everywhere");
  }
  if (!labels.is_complete(0, "bf", spatial) || !labels.is_complete(1, "oi", spatial) ||
      !labels.is_complete(2, "bf", spatial)) {
    fail("convolution", call + "dimension numbers " + c.dimension_numbers);
  }
  if (c.feature_group_count < 1 || c.batch_group_count < 1) fail("convolution", call + "group counts must be positive");
  bool fits = labels.of(0, 'f', input.dims()) == labels.of(1, 'i', kernel.dims()) * c.feature_group_count &&
              labels.of(2, 'f', out_dims) == labels.of(1, 'o', kernel.dims()) &&
              labels.of(2, 'b', out_dims) * c.batch_group_count == labels.of(0, 'b', input.dims());
  std::string padding;
  for (size_t k = 0; k < spatial; ++k) {
    const char label = static_cast<char>('0' + k);
    if (c.window_strides[k] < 1 || c.lhs_dilation[k] < 1 || c.rhs_dilation[k] < 1) {
      fail("convolution", call + "strides and dilations must be positive");
    }
    const int64_t padded =
        dilated(labels.of(0, label, input.dims()), c.lhs_dilation[k]) + c.padding[k].first + c.padding[k].second;
    const int64_t window = dilated(labels.of(1, label, kernel.dims()), c.rhs_dilation[k]);
    const int64_t expected = padded < window ? 0 : (padded - window) / c.window_strides[k] + 1;
    fits = fits && labels.of(2, label, out_dims) == expected;
    padding += (k ? ", " : "") + bracketed({c.padding[k].first, c.padding[k].second});
  }
  if (!fits) fail("convolution", call + "the shapes do not fit " + c.dimension_numbers);
  const std::string pairs = "tensor<" + std::to_string(spatial) + "x2xi64>";
  const std::string attributes =
      "window_strides = " + array_attribute(c.window_strides) + ", padding = dense<" +
      (spatial ? "[" + padding + "]" : "") + "> : " + pairs + ", lhs_dilation = " + array_attribute(c.lhs_dilation) +
      ", rhs_dilation = " + array_attribute(c.rhs_dilation) + ", dimension_numbers = #stablehlo.conv<" +
      c.dimension_numbers + ">, feature_group_count = " + integer_attribute(c.feature_group_count) +
      ", batch_group_count = " + integer_attribute(c.batch_group_count) + ", " + precision_attribute(target_);
  return by_passes(input, kernel, [&](const Value& x, const Value& w) {
    return op("stablehlo.convolution", {x, w}, x.type.with(out_dims), attributes);
  });
}

}  // namespace tpupilot::hlo
