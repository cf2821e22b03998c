// Safetensors, read with suspicion: every offset is checked against the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace tpupilot::numerics {

struct Tensor {
  std::string dtype;  // torch's name: "float32", "bfloat16", "int64", "bool", ...
  std::vector<int64_t> shape;
  std::string bytes;  // dense, row-major, little-endian

  size_t count() const;
  std::vector<double> values() const;    // exact for all dtypes but int64 beyond 2^53
  std::vector<int64_t> ordered() const;  // floats as integers in the order of their values: a difference is in ULP
  bool is_float() const { return dtype.find("float") != std::string::npos; }
};

// Error that names the file if it is cut short or no safetensors file.
std::map<std::string, Tensor> read_tensors(const std::filesystem::path& file);

}  // namespace tpupilot::numerics
