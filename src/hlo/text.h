// Small pieces of StableHLO text and of error messages, shared by the files of this room.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "hlo/type.h"

namespace tpupilot::hlo {

inline std::string joined(const Dims& dims) {
  std::string text;
  for (size_t i = 0; i < dims.size(); ++i) text += (i ? ", " : "") + std::to_string(dims[i]);
  return text;
}

inline std::string bracketed(const Dims& dims) { return "[" + joined(dims) + "]"; }

inline std::string integer_attribute(int64_t v) { return std::to_string(v) + " : i64"; }

// "stablehlo.add" -> "add": how an op is called in errors.
inline std::string_view short_name(std::string_view op) {
  const size_t dot = op.find('.');
  return dot == std::string_view::npos ? op : op.substr(dot + 1);
}

inline bool contains(const Dims& dims, int64_t d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); }

}  // namespace tpupilot::hlo
