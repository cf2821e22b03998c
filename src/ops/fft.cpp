// Discrete Fourier transforms over any list of dims. stablehlo.fft takes the last one to three dims: others are moved
// there and back, and longer lists take several ops.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/complex.h"

namespace tpupilot::ops {
namespace {

constexpr size_t kMostDims = 3;  // of one stablehlo.fft

enum class Kind { FFT, IFFT, RFFT, IRFFT };

std::string_view spelled(Kind kind) {
  static constexpr std::string_view kNames[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
  return kNames[static_cast<int>(kind)];
}

// One op over `dims`, of which the last is the halved one of RFFT and IRFFT. `length`: of that dim, on the real side.
Value transform(Builder& b, const Value& x, Kind kind, const Dims& dims, int64_t length) {
  Dims order;  // the other dims first
  for (int64_t d = 0; d < x.rank(); ++d) {
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) order.push_back(d);
  }
  order.insert(order.end(), dims.begin(), dims.end());
  Dims lengths;
  for (const int64_t d : dims) lengths.push_back(x.dims()[d]);
  lengths.back() = length;

  const Value moved = b.transpose(x, order);
  Type out = moved.type;
  if (kind == Kind::RFFT) out = {hlo::complex_of(x.elem()), out.dims};
  if (kind == Kind::IRFFT) out = {hlo::real_of(x.elem()), out.dims};
  out.dims.back() = kind == Kind::RFFT ? length / 2 + 1 : length;
  const std::string properties = "fft_type = #stablehlo<fft_type " + std::string(spelled(kind)) +
                                 ">, fft_length = " + hlo::array_attribute(lengths);
  const Value y = b.op("stablehlo.fft", {moved}, out, properties);

  Dims back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[order[i]] = static_cast<int64_t>(i);
  return b.transpose(y, back);
}

// Takes as many dims off the end of `dims` as one op can have.
Dims take_last(Dims& dims) {
  const size_t rest = dims.size() - std::min(dims.size(), kMostDims);
  Dims last(dims.begin() + static_cast<std::ptrdiff_t>(rest), dims.end());
  dims.resize(rest);
  return last;
}

Value complex_to_complex(Builder& b, Value x, Dims dims, Kind kind) {
  std::sort(dims.begin(), dims.end());  // what is last already need not move
  while (!dims.empty()) {
    const Dims last = take_last(dims);
    x = transform(b, x, kind, last, x.dims()[last.back()]);
  }
  return x;
}

// The dims of the call, wrapped; all but the last in ascending order.
Dims transformed_dims(Context& c, int64_t rank) {
  Dims dims = c.integers("dim");
  for (int64_t& d : dims) d = hlo::wrap_dim(d, rank);
  if (!dims.empty()) std::sort(dims.begin(), dims.end() - 1);
  return dims;
}

double elements(const Dims& sizes, const Dims& dims) {
  return std::accumulate(dims.begin(), dims.end(), 1.0,
                         [&](double n, int64_t d) { return n * static_cast<double>(sizes[d]); });
}

// What to multiply by for at::native::fft_norm_mode (none, by the root of n, by n), after an op that has divided by n
// already or not.
Value normalized(Context& c, const Value& x, double n, bool divided) {
  const int64_t mode = c.integer("normalization");
  double factor = mode == 0 ? 1 : mode == 1 ? 1 / std::sqrt(n) : 1 / n;
  if (divided) factor = mode == 0 ? n : mode == 1 ? std::sqrt(n) : 1;
  if (factor == 1) return x;
  return hlo::is_complex(x.elem()) ? scaled(expr(c, x), factor) : expr(c, x) * factor;
}

Values c2c(Context& c) {
  const Value x = c.tensor("self");
  const Dims dims = transformed_dims(c, x.rank());
  if (dims.empty() || x.type.numel() == 0) return {x};
  const bool forward = c.boolean("forward");
  const Value y = complex_to_complex(c.b, x, dims, forward ? Kind::FFT : Kind::IFFT);
  return {normalized(c, y, elements(x.dims(), dims), !forward)};
}

// X[-k mod n] along `dim`.
Value negated_frequencies(Builder& b, const Value& x, int64_t dim) {
  const int64_t n = x.dims()[dim];
  if (n <= 2) return x;
  return b.concatenate({b.slice_dim(x, dim, 0, 1), b.reverse(b.slice_dim(x, dim, 1, n), {dim})}, dim);
}

// The second half of the last transformed dim, which the real input makes conjugate to the first.
Value two_sided(Context& c, const Value& half, const Dims& dims, int64_t length) {
  const int64_t last = dims.back(), known = half.dims()[last];
  if (known == length) return half;
  Value mirrored = c.b.reverse(c.b.slice_dim(half, last, 1, length - known + 1), {last});
  for (size_t i = 0; i + 1 < dims.size(); ++i) mirrored = negated_frequencies(c.b, mirrored, dims[i]);
  return c.b.concatenate({half, conj(expr(c, mirrored))}, last);
}

Values r2c(Context& c) {
  const Value x = c.tensor("self");
  if (x.type.numel() == 0) return {c.b.zeros(c.result())};
  const Dims all = transformed_dims(c, x.rank());
  Dims dims = all;
  const Dims last = take_last(dims);
  const int64_t length = x.dims()[last.back()];
  const Value half = complex_to_complex(c.b, transform(c.b, x, Kind::RFFT, last, length), dims, Kind::FFT);
  const Value y = normalized(c, half, elements(x.dims(), all), false);
  return {c.boolean("onesided") ? y : two_sided(c, y, all, length)};
}

Values c2r(Context& c) {
  const Value x = c.tensor("self");
  if (x.type.numel() == 0 || c.result().numel() == 0) return {c.b.zeros(c.result())};
  const Dims all = transformed_dims(c, x.rank());
  Dims dims = all;
  const Dims last = take_last(dims);
  const int64_t length = c.integer("last_dim_size");
  // The op wants exactly the frequencies that a real signal of this length has.
  const Value half = c.b.slice_dim(x, last.back(), 0, length / 2 + 1);
  const Value y = transform(c.b, complex_to_complex(c.b, half, dims, Kind::IFFT), Kind::IRFFT, last, length);
  return {normalized(c, y, elements(c.result().dims, all), true)};
}

}  // namespace

std::vector<Row> fft_rows() {
  return {
      {.overloads = {"_fft_c2c", "_fft_c2c.out"}, .emit = c2c},
      {.overloads = {"_fft_r2c", "_fft_r2c.out"}, .emit = r2c},
      {.overloads = {"_fft_c2r", "_fft_c2r.out"}, .emit = c2r},
  };
}

}  // namespace tpupilot::ops
