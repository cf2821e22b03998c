// The element types that evidence may have: safetensors' name, torch's name, bytes an element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tpupilot::numerics {

enum class Dtype : uint8_t { Float64, Float32, Float16, BFloat16, Int64, Int32, Int16, Int8, UInt8, Bool };

struct DtypeFormat {
  Dtype dtype;
  const char *safetensors, *torch;
  size_t size;
};

constexpr DtypeFormat kDtypes[] = {{Dtype::Float64, "F64", "float64", 8}, {Dtype::Float32, "F32", "float32", 4},
                                   {Dtype::Float16, "F16", "float16", 2}, {Dtype::BFloat16, "BF16", "bfloat16", 2},
                                   {Dtype::Int64, "I64", "int64", 8},     {Dtype::Int32, "I32", "int32", 4},
                                   {Dtype::Int16, "I16", "int16", 2},     {Dtype::Int8, "I8", "int8", 1},
                                   {Dtype::UInt8, "U8", "uint8", 1},      {Dtype::Bool, "BOOL", "bool", 1}};

constexpr size_t size_of(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)].size; }  // in the order of Dtype

// By torch's name; Error if there is none such.
const DtypeFormat& format_of(const std::string& torch_name);

}  // namespace tpupilot::numerics
