// Element type and dimensions of a dense row-major buffer: what is compared before a program runs. Plain data.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "pjrt/element.h"

namespace tpupilot::pjrt {

class Shape {
 public:
  Shape() = default;
  // Throws Error if a dimension is negative or the bytes overflow 63 bits.
  Shape(ElementType type, std::span<const int64_t> dims);
  Shape(ElementType type, std::initializer_list<int64_t> dims)
      : Shape(type, std::span<const int64_t>(dims.begin(), dims.size())) {}

  ElementType element_type() const { return type_; }
  std::span<const int64_t> dims() const { return {rank_ <= kInline ? inline_.data() : long_.data(), rank_}; }
  size_t rank() const { return rank_; }
  int64_t elements() const { return elements_; }
  size_t byte_size() const { return bytes_; }  // in a host buffer
  std::string str() const;                     // "f32[2,3]"

  bool operator==(const Shape& other) const {
    return type_ == other.type_ && rank_ == other.rank_ &&
           std::memcmp(dims().data(), other.dims().data(), rank_ * sizeof(int64_t)) == 0;
  }

 private:
  static constexpr uint32_t kInline = 6;  // so that making a buffer of usual rank allocates nothing

  ElementType type_ = ElementType::INVALID;
  uint32_t rank_ = 0;
  int64_t elements_ = 1;
  size_t bytes_ = 0;
  std::array<int64_t, kInline> inline_{};
  std::vector<int64_t> long_;
};

}  // namespace tpupilot::pjrt
