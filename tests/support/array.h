// Host arrays for tests: typed bytes, and their elements as doubles whatever the type.
#pragma once

#include <complex>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "hlo/builder.h"

namespace tpupilot::test {

struct Array {
  hlo::Type type;
  std::vector<char> bytes;  // row-major, as a host buffer

  // Elements of a C++ type of the same width: float for F32, uint16_t for BF16 bits, std::complex<float> for C64, ...
  template <typename T>
  static Array of(hlo::Type type, const std::vector<T>& values) {
    Array a{std::move(type), std::vector<char>(values.size() * sizeof(T))};
    if (sizeof(T) != hlo::byte_size(a.type.elem) || static_cast<int64_t>(values.size()) != a.type.numel()) {
      throw std::invalid_argument("[Array::of] " + std::to_string(values.size()) + " values of " +
                                  std::to_string(sizeof(T)) + " bytes for " + a.type.str());
    }
    if (!values.empty()) std::memcpy(a.bytes.data(), values.data(), a.bytes.size());
    return a;
  }
  template <typename T>
  std::vector<T> as() const {
    if (sizeof(T) != hlo::byte_size(type.elem)) {
      throw std::invalid_argument("[Array::as] elements of " + std::to_string(sizeof(T)) + " bytes from " + type.str());
    }
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
};

// Every element as a double (real types; Pred as 0 and 1), and back: rounded to nearest even, integers truncated.
std::vector<double> doubles(const Array& a);
Array array(hlo::Type type, const std::vector<double>& values);

}  // namespace tpupilot::test
