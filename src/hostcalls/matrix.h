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
template <class T>
using IfConst = std::conditional_t<std::is_const_v<T>, const RowMajor<std::remove_const_t<T>>, RowMajor<T>>;

// The size of dim -1 (last = 0), -2 (last = 1).
inline int64_t size(const HostArray& a, size_t last) { return a.dims[a.dims.size() - 1 - last]; }

// How many items of `rank` trailing dimensions there are.
inline int64_t batches(const HostArray& a, size_t rank) {
  int64_t count = 1;
  for (size_t i = 0; i + rank < a.dims.size(); ++i) count *= a.dims[i];
  return count;
}

// The i-th matrix, in place; T is const for operands.
template <class T>
Eigen::Map<IfConst<T>> matrix(const HostArray& a, int64_t i) {
  const int64_t rows = size(a, 1), cols = size(a, 0);
  return {static_cast<T*>(a.data) + i * rows * cols, rows, cols};
}

template <class T>
auto vector(const HostArray& a, int64_t i) {
  using V = std::conditional_t<std::is_const_v<T>, const Vector<std::remove_const_t<T>>, Vector<T>>;
  const int64_t n = size(a, 0);
  return Eigen::Map<V>(static_cast<T*>(a.data) + i * n, n);
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
