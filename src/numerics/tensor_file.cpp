#include "numerics/tensor_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "numerics/dtype.h"
#include "numerics/error.h"
#include "numerics/kernels.h"

namespace tpupilot::numerics {

using nlohmann::json;

namespace {

TensorView read_tensor(const json& entry, std::string_view data) {
  TensorView tensor;
  const std::string name = entry.at("dtype");
  size_t size = 0;
  for (const DtypeFormat& format : kDtypes) {
    if (name == format.safetensors) tensor.dtype = format.torch, size = format.size;
  }
  if (size == 0) throw std::runtime_error("has the unknown dtype " + name);
  tensor.shape = entry.at("shape").get<std::vector<int64_t>>();
  size_t wanted = size;
  for (int64_t dim : tensor.shape) {
    if (dim < 0) throw std::runtime_error("has a negative dimension");
    if (__builtin_mul_overflow(wanted, static_cast<size_t>(dim), &wanted))
      throw std::runtime_error("has a shape of more elements than there can be");
  }
  const uint64_t begin = entry.at("data_offsets").at(0), end = entry.at("data_offsets").at(1);
  if (end < begin || end > data.size())
    throw std::runtime_error("ends at byte " + std::to_string(end) + " of " + std::to_string(data.size()) +
                             ": the file is cut short");
  if (end - begin != wanted)
    throw std::runtime_error("has " + std::to_string(end - begin) + " bytes, its shape wants " +
                             std::to_string(wanted));
  tensor.bytes = data.substr(begin, end - begin);
  return tensor;
}

// Calls visit(begin, end) for each window of a tensor's bytes, with the pages of `files` in place.
template <typename Visit>
void by_window(const std::vector<std::pair<const MappedFile*, const TensorView*>>& parts, Visit&& visit) {
  const size_t size = parts.front().second->bytes.size();
  for (size_t begin = 0; begin < size; begin += MappedFile::kWindow) {
    const size_t end = std::min(size, begin + MappedFile::kWindow);
    const auto at = [](const auto& part) {
      return static_cast<size_t>(part.second->bytes.data() - part.first->bytes().data());
    };
    for (const auto& part : parts) part.first->load(at(part) + begin, at(part) + end);
    const bool go_on = visit(begin, end);
    for (const auto& part : parts) {
      const size_t from = at(part) + begin;
      part.first->release(from - std::min(from, MappedFile::kWindow), at(part) + end);
    }
    if (!go_on) return;
  }
}

}  // namespace

const DtypeFormat& format_of(const std::string& torch_name) {
  for (const DtypeFormat& format : kDtypes) {
    if (torch_name == format.torch) return format;
  }
  throw Error("[format_of] no dtype `" + torch_name + "`");
}

size_t TensorView::count() const {
  size_t n = 1;
  for (int64_t dim : shape) n *= static_cast<size_t>(dim);
  return n;
}

std::vector<double> Tensor::values() const {
  std::vector<double> result(count());
  kernels().widen(format_of(dtype).dtype, bytes.data(), result.size(), result.data());
  return result;
}

std::vector<int64_t> Tensor::ordered() const {
  std::vector<int64_t> result(count());
  kernels().order(format_of(dtype).dtype, bytes.data(), result.size(), result.data());
  return result;
}

TensorFile::TensorFile(const std::filesystem::path& file) : file_(file) {
  const std::string_view data = file_.bytes();
  uint64_t length = 0;
  if (data.size() >= 8) {
    file_.load(0, 8);
    std::memcpy(&length, data.data(), 8);
  }
  if (data.size() < 8 || length > data.size() - 8) throw Error(file_.name() + " is cut short: its header is not whole");
  file_.load(0, 8 + length);
  const json header =
      json::parse(data.begin() + 8, data.begin() + 8 + static_cast<std::ptrdiff_t>(length), nullptr, false);
  if (!header.is_object()) throw Error(file_.name() + " is no safetensors file");
  for (const auto& [key, entry] : header.items()) {
    if (key == "__metadata__") continue;
    try {
      tensors_[key] = read_tensor(entry, data.substr(8 + length));
    } catch (const std::exception& error) {
      throw Error(file_.name() + ": tensor `" + key + "` " + error.what());
    }
  }
}

std::map<std::string, Tensor> read_tensors(const std::filesystem::path& file) {
  const TensorFile opened(file);
  opened.file().load(0, opened.file().bytes().size());
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, view] : opened.tensors()) tensors[name] = {view.dtype, view.shape, std::string(view.bytes)};
  return tensors;
}

bool same_bytes(const MappedFile& file_a, const TensorView& a, const MappedFile& file_b, const TensorView& b) {
  if (a.bytes.size() != b.bytes.size()) return false;
  bool same = true;
  by_window({{&file_a, &a}, {&file_b, &b}}, [&](size_t begin, size_t end) {
    return same = std::memcmp(a.bytes.data() + begin, b.bytes.data() + begin, end - begin) == 0;
  });
  return same;
}

double squared_norm(const MappedFile& file, const TensorView& tensor) {
  const DtypeFormat& format = format_of(tensor.dtype);
  std::array<double, kBlock> values;
  double squares = 0;
  by_window({{&file, &tensor}}, [&](size_t begin, size_t end) {
    for (size_t at = begin; at < end; at += kBlock * format.size) {
      const size_t count = std::min(kBlock, (end - at) / format.size);
      kernels().widen(format.dtype, tensor.bytes.data() + at, count, values.data());
      for (size_t i = 0; i < count; ++i) squares += values[i] * values[i];
    }
    return true;
  });
  return squares;
}

}  // namespace tpupilot::numerics
