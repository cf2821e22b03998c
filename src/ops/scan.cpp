#include "ops/scan.h"

namespace tpupilot::ops {

using hlo::Builder;
using hlo::Dims;
using hlo::Value;
using hlo::Values;

namespace {

constexpr int64_t kFewElements = 16;  // a handful of passes costs less than a window

// A window over all that came before. XLA computes it as a tree of blocks, so that it is neither quadratic nor
// sequential.
Value scan_by_window(Builder& b, std::string_view combine, const Value& x, const Value& identity, int64_t dim) {
  const int64_t n = x.dims()[dim];
  Dims window(x.rank(), 1);
  window[dim] = n;
  std::string padding;
  for (int64_t d = 0; d < x.rank(); ++d) {
    padding += (d == 0 ? "[" : ", [") + std::to_string(d == dim ? n - 1 : 0) + ", 0]";
  }
  const std::string properties = "window_dimensions = " + hlo::array_attribute(window) + ", padding = dense<[" +
                                 padding + "]> : tensor<" + std::to_string(x.rank()) + "x2xi64>";
  const hlo::Type scalar{x.elem(), {}};
  const std::string body =
      b.region({scalar, scalar}, [&](const Values& v) { return Values{b.binary(combine, v[0], v[1])}; });
  return b.op("stablehlo.reduce_window", {x, identity}, x.type, properties, body);
}

}  // namespace

Value scan_by_steps(Builder& b, const Combine& combine, Value x, const Value& identity, int64_t dim) {
  const int64_t n = x.dims()[dim];
  for (int64_t shift = 1; shift < n; shift *= 2) {
    Dims low(x.rank(), 0), high(x.rank(), 0);
    low[dim] = shift;
    high[dim] = -shift;
    x = combine(x, b.pad(x, identity, low, high, Dims(x.rank(), 0)));
  }
  return x;
}

Value scan(Builder& b, std::string_view combine, const Value& x, const Value& identity, int64_t dim) {
  if (x.type.numel() == 0) return x;
  if (x.dims()[dim] > kFewElements) return scan_by_window(b, combine, x, identity, dim);
  const auto combined = [&](const Value& later, const Value& earlier) { return b.binary(combine, later, earlier); };
  return scan_by_steps(b, combined, x, identity, dim);
}

}  // namespace tpupilot::ops
