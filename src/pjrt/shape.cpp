#include "pjrt/shape.h"

#include <algorithm>

#include "pjrt/error.h"

namespace tpupilot::pjrt {
namespace {

std::string text(ElementType type, std::span<const int64_t> dims) {
  std::string result = std::string(name(type)) + "[";
  for (size_t i = 0; i < dims.size(); ++i) result += (i ? "," : "") + std::to_string(dims[i]);
  return result + "]";
}

}  // namespace

Shape::Shape(ElementType type, std::span<const int64_t> dims) : type_(type), rank_(static_cast<uint32_t>(dims.size())) {
  for (const int64_t dim : dims) {
    if (dim < 0) {
      throw Error(Error::Code::InvalidArgument, "[Shape] a dimension of " + text(type, dims) + " is negative");
    }
    if (__builtin_mul_overflow(elements_, dim, &elements_)) {
      throw Error(Error::Code::InvalidArgument, "[Shape] " + text(type, dims) + " has more than 2^63 elements");
    }
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements_, static_cast<int64_t>(pjrt::byte_size(type)), &bytes)) {
    throw Error(Error::Code::InvalidArgument, "[Shape] " + text(type, dims) + " has more than 2^63 bytes");
  }
  bytes_ = static_cast<size_t>(bytes);
  if (rank_ <= kInline) {
    std::copy(dims.begin(), dims.end(), inline_.begin());
  } else {
    long_.assign(dims.begin(), dims.end());
  }
}

std::string Shape::str() const { return text(type_, dims()); }

}  // namespace tpupilot::pjrt
