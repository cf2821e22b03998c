#include "aten/element.h"

#include <c10/util/Exception.h>

#include <array>

namespace tpupilot::aten {
namespace {

using hlo::Elem;
struct Pair {
  c10::ScalarType dtype;
  Elem elem;
  pjrt::ElementType pjrt;
};
constexpr std::array<Pair, 15> kPairs = {{{c10::kBool, Elem::Pred, pjrt::ElementType::PRED},
                                          {c10::kChar, Elem::S8, pjrt::ElementType::S8},
                                          {c10::kShort, Elem::S16, pjrt::ElementType::S16},
                                          {c10::kInt, Elem::S32, pjrt::ElementType::S32},
                                          {c10::kLong, Elem::S64, pjrt::ElementType::S64},
                                          {c10::kByte, Elem::U8, pjrt::ElementType::U8},
                                          {c10::kUInt16, Elem::U16, pjrt::ElementType::U16},
                                          {c10::kUInt32, Elem::U32, pjrt::ElementType::U32},
                                          {c10::kUInt64, Elem::U64, pjrt::ElementType::U64},
                                          {c10::kHalf, Elem::F16, pjrt::ElementType::F16},
                                          {c10::kBFloat16, Elem::BF16, pjrt::ElementType::BF16},
                                          {c10::kFloat, Elem::F32, pjrt::ElementType::F32},
                                          {c10::kDouble, Elem::F64, pjrt::ElementType::F64},
                                          {c10::kComplexFloat, Elem::C64, pjrt::ElementType::C64},
                                          {c10::kComplexDouble, Elem::C128, pjrt::ElementType::C128}}};

// The three enumerations are small: tables indexed by value keep the hot path free of searches.
constexpr auto kElemOfDtype = [] {
  std::array<Elem, static_cast<size_t>(c10::ScalarType::NumOptions)> table{};
  for (const Pair& p : kPairs) table[static_cast<size_t>(p.dtype)] = p.elem;
  return table;
}();
constexpr auto kPairOfElem = [] {
  std::array<Pair, 16> table{};
  for (const Pair& p : kPairs) table[static_cast<size_t>(p.elem)] = p;
  return table;
}();

}  // namespace

bool has_elem(c10::ScalarType dtype) { return kElemOfDtype[static_cast<size_t>(dtype)] != Elem::Invalid; }

hlo::Elem elem_of(c10::ScalarType dtype) {
  const Elem elem = kElemOfDtype[static_cast<size_t>(dtype)];
  TORCH_CHECK_NOT_IMPLEMENTED(elem != Elem::Invalid, "[tpu] the device has no element type for ", dtype,
                              "; convert the tensor to a supported dtype first");
  return elem;
}

c10::ScalarType dtype_of(hlo::Elem elem) { return kPairOfElem[static_cast<size_t>(elem)].dtype; }
pjrt::ElementType pjrt_type_of(hlo::Elem elem) { return kPairOfElem[static_cast<size_t>(elem)].pjrt; }

}  // namespace tpupilot::aten
