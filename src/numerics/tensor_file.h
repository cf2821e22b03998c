// Safetensors, read with suspicion: every offset is checked against the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "numerics/mapped_file.h"

namespace tpupilot::numerics {

// A tensor whose bytes somebody else holds.
struct TensorView {
  std::string dtype;  // torch's name: "float32", "bfloat16", "int64", "bool", ...
  std::vector<int64_t> shape;
  std::string_view bytes;  // dense, row-major, little-endian; not necessarily aligned

  size_t count() const;
  bool is_float() const { return dtype.find("float") != std::string::npos; }
};

// A tensor that holds its own bytes.
struct Tensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;

  TensorView view() const { return {dtype, shape, bytes}; }
  size_t count() const { return view().count(); }
  std::vector<double> values() const;    // exact for all dtypes but int64 beyond 2^53
  std::vector<int64_t> ordered() const;  // floats as integers in the order of their values: a difference is in ULP
  bool is_float() const { return view().is_float(); }
};

// A file and the tensors in it, by name. The views are valid while this lives. Only the header is read at once.
class TensorFile {
 public:
  // Error that names the file if it is cut short or no safetensors file.
  explicit TensorFile(const std::filesystem::path& file);

  const MappedFile& file() const { return file_; }
  const std::map<std::string, TensorView>& tensors() const { return tensors_; }

 private:
  MappedFile file_;
  std::map<std::string, TensorView> tensors_;
};

// The whole file in memory: for small ones.
std::map<std::string, Tensor> read_tensors(const std::filesystem::path& file);

// Whether two tensors of the same dtype and shape are equal bit for bit; each of `file_a` and `file_b` holds its own.
bool same_bytes(const MappedFile& file_a, const TensorView& a, const MappedFile& file_b, const TensorView& b);

// The sum of the squares of all elements, in f64.
double squared_norm(const MappedFile& file, const TensorView& tensor);

}  // namespace tpupilot::numerics
