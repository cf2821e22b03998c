// Element types of device buffers. The numbers are those of PJRT_Buffer_Type.
#pragma once

#include <cstddef>
#include <string_view>

namespace tpupilot::pjrt {

enum class ElementType : int {
  INVALID = 0,
  PRED = 1,
  S8 = 2,
  S16 = 3,
  S32 = 4,
  S64 = 5,
  U8 = 6,
  U16 = 7,
  U32 = 8,
  U64 = 9,
  F16 = 10,
  F32 = 11,
  F64 = 12,
  BF16 = 13,
  C64 = 14,
  C128 = 15,
  F8E5M2 = 16,
  F8E4M3FN = 17,
  F8E4M3B11FNUZ = 18,
  F8E5M2FNUZ = 19,
  F8E4M3FNUZ = 20,
  S4 = 21,
  U4 = 22,
  TOKEN = 23,
  S2 = 24,
  U2 = 25,
  F8E4M3 = 26,
  F8E3M4 = 27,
  F8E8M0FNU = 28,
  F4E2M1FN = 29,
  S1 = 30,
  U1 = 31,
  F6E2M3FN = 32,
  F6E3M2FN = 33,
};

std::string_view name(ElementType type);  // "f32", "bf16", "pred"; "invalid" for a number that is not listed
// Bytes of one element in a host buffer. Types below a byte take one byte each there. 0 for INVALID and TOKEN.
size_t byte_size(ElementType type);
bool is_sub_byte(ElementType type);  // packed on some devices: never read through a data pointer

}  // namespace tpupilot::pjrt
