#include "numerics/tensor_file.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "numerics/error.h"

namespace tpupilot::numerics {

using nlohmann::json;

namespace {

struct Format {
  const char *name, *torch;
  size_t size;
};

constexpr Format kFormats[] = {
    {"F64", "float64", 8}, {"F32", "float32", 4}, {"F16", "float16", 2}, {"BF16", "bfloat16", 2}, {"I64", "int64", 8},
    {"I32", "int32", 4},   {"I16", "int16", 2},   {"I8", "int8", 1},     {"U8", "uint8", 1},      {"BOOL", "bool", 1}};

template <typename T>
T element(const std::string& bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

double half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == 31) return mantissa ? std::nan("") : sign * HUGE_VAL;
  return sign * (exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24));
}

double value_at(const Tensor& tensor, size_t i) {
  const std::string &type = tensor.dtype, &bytes = tensor.bytes;
  if (type == "float32") return element<float>(bytes, i);
  if (type == "float64") return element<double>(bytes, i);
  if (type == "bfloat16") return std::bit_cast<float>(static_cast<uint32_t>(element<uint16_t>(bytes, i)) << 16);
  if (type == "float16") return half(element<uint16_t>(bytes, i));
  if (type == "int64") return static_cast<double>(element<int64_t>(bytes, i));
  if (type == "int32") return element<int32_t>(bytes, i);
  if (type == "int16") return element<int16_t>(bytes, i);
  if (type == "int8") return element<int8_t>(bytes, i);
  return element<uint8_t>(bytes, i);
}

// Sign and magnitude to two's complement: -0 and +0 are both 0.
template <typename Bits>
int64_t in_order(Bits bits) {
  constexpr Bits sign = Bits{1} << (sizeof(Bits) * 8 - 1);
  const auto magnitude = static_cast<int64_t>(bits & static_cast<Bits>(~sign));
  return bits & sign ? -magnitude : magnitude;
}

Tensor read_tensor(const json& entry, const std::string& data, size_t begin_of_data) {
  Tensor tensor;
  const std::string name = entry.at("dtype");
  size_t size = 0;
  for (const Format& format : kFormats) {
    if (name == format.name) tensor.dtype = format.torch, size = format.size;
  }
  if (size == 0) throw std::runtime_error("has the unknown dtype " + name);
  tensor.shape = entry.at("shape").get<std::vector<int64_t>>();
  for (int64_t dim : tensor.shape) {
    if (dim < 0) throw std::runtime_error("has a negative dimension");
  }
  const uint64_t begin = entry.at("data_offsets").at(0), end = entry.at("data_offsets").at(1);
  const size_t available = data.size() - begin_of_data;
  if (end < begin || end > available)
    throw std::runtime_error("ends at byte " + std::to_string(end) + " of " + std::to_string(available) +
                             ": the file is cut short");
  if (end - begin != tensor.count() * size)
    throw std::runtime_error("has " + std::to_string(end - begin) + " bytes, its shape wants " +
                             std::to_string(tensor.count() * size));
  tensor.bytes = data.substr(begin_of_data + begin, end - begin);
  return tensor;
}

}  // namespace

size_t Tensor::count() const {
  size_t n = 1;
  for (int64_t dim : shape) n *= static_cast<size_t>(dim);
  return n;
}

std::vector<double> Tensor::values() const {
  std::vector<double> result(count());
  for (size_t i = 0; i < result.size(); ++i) result[i] = value_at(*this, i);
  return result;
}

std::vector<int64_t> Tensor::ordered() const {
  std::vector<int64_t> result(count());
  for (size_t i = 0; i < result.size(); ++i) {
    if (dtype == "float32")
      result[i] = in_order(element<uint32_t>(bytes, i));
    else if (dtype == "float64")
      result[i] = in_order(element<uint64_t>(bytes, i));
    else if (dtype == "float16" || dtype == "bfloat16")
      result[i] = in_order(element<uint16_t>(bytes, i));
    else
      result[i] = static_cast<int64_t>(value_at(*this, i));
  }
  return result;
}

std::map<std::string, Tensor> read_tensors(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string name = file.filename().string();
  if (!in) throw Error(name + " cannot be read");
  const std::string data{std::istreambuf_iterator<char>(in), {}};
  const uint64_t length = data.size() >= 8 ? element<uint64_t>(data, 0) : 0;
  if (data.size() < 8 || length > data.size() - 8) throw Error(name + " is cut short: its header is not whole");
  const json header =
      json::parse(data.begin() + 8, data.begin() + 8 + static_cast<std::ptrdiff_t>(length), nullptr, false);
  if (!header.is_object()) throw Error(name + " is no safetensors file");
  std::map<std::string, Tensor> tensors;
  for (const auto& [key, entry] : header.items()) {
    if (key == "__metadata__") continue;
    try {
      tensors[key] = read_tensor(entry, data, 8 + length);
    } catch (const std::exception& error) {
      throw Error(name + ": tensor `" + key + "` " + error.what());
    }
  }
  return tensors;
}

}  // namespace tpupilot::numerics
