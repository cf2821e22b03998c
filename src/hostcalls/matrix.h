// Inside this room only: a call's arrays as Eigen's matrices, and the choice of the element type.
#pragma once

#include <Eigen/Core>
#include <complex>
#include <string>
#include <type_traits>

#include "pjrt/error.h"
#include "pjrt/host_call.h"

namespace tpupilot::hostcalls {

using pjrt::ElementType;
using pjrt::HostArray;
using pjrt::HostCall;

template <class T>
using Real = typename Eigen::NumTraits<T>::Real;
template <class T>
using Complex = std::complex<Real<T>>;
template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
template <class T>
using Vector = Eigen::Matrix<T, Eigen::Dynamic, 1>;
template <class T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// What this room computes in: f64 for f32, c128 for c64. Each type more is minutes of compiling, and Eigen loads a
// complex<float> in a way that the sanitizers refuse.
template <class T>
using Wide = std::conditional_t<Eigen::NumTraits<T>::IsComplex != 0, std::complex<double>, double>;

// The size of dim -1 (last = 0), -2 (last = 1).
inline int64_t size(const HostArray& a, size_t last) { return a.dims[a.dims.size() - 1 - last]; }

// How many items of `rank` trailing dimensions there are.
inline int64_t batches(const HostArray& a, size_t rank) {
  int64_t count = 1;
  for (size_t i = 0; i + rank < a.dims.size(); ++i) count *= a.dims[i];
  return count;
}

// The i-th matrix of an array whose elements are of type T; written values are rounded to it.
template <class T>
Matrix<Wide<T>> read_matrix(const HostArray& a, int64_t i) {
  const int64_t rows = size(a, 1), cols = size(a, 0);
  const Eigen::Map<const RowMajor<T>> given(static_cast<const T*>(a.data) + i * rows * cols, rows, cols);
  return given.template cast<Wide<T>>();
}

template <class T, class M>
void write_matrix(const HostArray& a, int64_t i, const M& m) {
  const int64_t rows = size(a, 1), cols = size(a, 0);
  Eigen::Map<RowMajor<T>>(static_cast<T*>(a.data) + i * rows * cols, rows, cols) = m.template cast<T>();
}

template <class T>
Vector<Wide<T>> read_vector(const HostArray& a, int64_t i) {
  const int64_t n = size(a, 0);
  return Eigen::Map<const Vector<T>>(static_cast<const T*>(a.data) + i * n, n).template cast<Wide<T>>();
}

template <class T, class V>
void write_vector(const HostArray& a, int64_t i, const V& v) {
  const int64_t n = size(a, 0);
  Eigen::Map<Vector<T>>(static_cast<T*>(a.data) + i * n, n) = v.template cast<T>();
}

// The i-th row of integers, in place.
inline Eigen::Map<Eigen::VectorX<int32_t>> integers(const HostArray& a, int64_t i) {
  const int64_t n = size(a, 0);
  return {static_cast<int32_t*>(a.data) + i * n, n};
}

// Calls body(T{}) with the element type of `a`.
template <class Body>
void for_type(const HostArray& a, Body body) {
  switch (a.type) {
    case ElementType::F32:
      return body(float{});
    case ElementType::F64:
      return body(double{});
    case ElementType::C64:
      return body(std::complex<float>{});
    case ElementType::C128:
      return body(std::complex<double>{});
    default:
      throw pjrt::Error(pjrt::Error::Code::InvalidArgument,
                        "[hostcalls] a matrix of " + std::string(name(a.type)) + "; f32, f64, c64 and c128 are known");
  }
}

// What is wrong with the numbers of the i-th matrix of `a`, in the words of torch.linalg: `text` follows the function's
// name and, in a batch, the place. OutOfRange is torch's LinAlgError; nothing else in this room has that code.
[[noreturn]] inline void fail(const std::string& function, const HostArray& a, int64_t i, const std::string& text) {
  const std::string place = a.dims.size() > 2 ? ": (Batch element " + std::to_string(i) + ")" : "";
  throw pjrt::Error(pjrt::Error::Code::OutOfRange, function + place + ": " + text);
}

}  // namespace tpupilot::hostcalls
