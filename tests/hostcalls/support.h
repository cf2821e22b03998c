// Calls a function of the room as the plugin would, without one.
#pragma once

#include <complex>
#include <vector>

#include "hostcalls/hostcalls.h"
#include "hostcalls/matrix.h"

namespace tpupilot::hostcalls::test {

template <class T>
constexpr pjrt::ElementType kElement = pjrt::ElementType::INVALID;
template <>
inline constexpr pjrt::ElementType kElement<float> = pjrt::ElementType::F32;
template <>
inline constexpr pjrt::ElementType kElement<double> = pjrt::ElementType::F64;
template <>
inline constexpr pjrt::ElementType kElement<std::complex<float>> = pjrt::ElementType::C64;
template <>
inline constexpr pjrt::ElementType kElement<std::complex<double>> = pjrt::ElementType::C128;
template <>
inline constexpr pjrt::ElementType kElement<int32_t> = pjrt::ElementType::S32;

template <class T>
struct Tensor {
  std::vector<int64_t> dims;
  std::vector<T> values;

  explicit Tensor(std::vector<int64_t> d) : dims(std::move(d)) {
    size_t count = 1;
    for (const int64_t n : dims) count *= static_cast<size_t>(n);
    values.resize(count);
  }
  Tensor(std::vector<int64_t> d, std::vector<T> v) : dims(std::move(d)), values(std::move(v)) {}

  HostArray array() const { return {kElement<T>, dims, const_cast<T*>(values.data())}; }
  Matrix<Wide<T>> matrix(int64_t i = 0) { return read_matrix<T>(array(), i); }
};

template <class T>
T entry(double re, double im) {
  if constexpr (Eigen::NumTraits<T>::IsComplex != 0)
    return {static_cast<Real<T>>(re), static_cast<Real<T>>(im)};
  else
    return static_cast<T>(re + 0 * im);
}

// Numbers in [-1, 1) that no seed of the machine decides.
template <class T>
Tensor<T> numbers(std::vector<int64_t> dims, uint32_t seed = 1) {
  Tensor<T> t(std::move(dims));
  uint32_t state = seed;
  const auto next = [&] {
    state = state * 1664525u + 1013904223u;
    return static_cast<double>(state >> 8) / (1 << 23) - 1;
  };
  for (T& v : t.values) {
    const double re = next(), im = next();
    v = entry<T>(re, im);
  }
  return t;
}

template <class T>
Tensor<T> from(const Matrix<Wide<T>>& m) {
  Tensor<T> t({m.rows(), m.cols()});
  write_matrix<T>(t.array(), 0, m);
  return t;
}

// How far apart, in units of T's rounding error of numbers of the matrices' size.
template <class T>
double distance(const Matrix<Wide<T>>& a, const Matrix<Wide<T>>& b) {
  const double scale = std::max<double>(1, static_cast<double>(b.norm()));
  return static_cast<double>((a - b).norm()) / scale / static_cast<double>(Eigen::NumTraits<Real<T>>::epsilon());
}

}  // namespace tpupilot::hostcalls::test
