#include "aten/index_masks.h"

#include <ATen/ops/nonzero.h>

namespace tpupilot::aten {
namespace {

using OptionalTensors = c10::List<std::optional<at::Tensor>>;

bool is_mask(const at::Tensor& t) { return t.defined() && (t.scalar_type() == at::kBool || t.scalar_type() == at::kByte); }

bool holds_mask(const c10::IValue& list) {
  for (const c10::IValue& x : list.toListRef()) {
    if (x.isTensor() && is_mask(x.toTensor())) return true;
  }
  return false;
}

void check_mask(const at::Tensor& mask, const at::Tensor& self, int64_t dim) {
  for (int64_t i = 0; i < mask.dim(); ++i) {
    TORCH_CHECK_INDEX(dim + i < self.dim() && mask.size(i) == self.size(dim + i), "The shape of the mask ", mask.sizes(),
                      " at index ", i, " does not match the shape of the indexed tensor ", self.sizes(), " at index ", dim + i);
  }
}

OptionalTensors expanded(const c10::IValue& list, const at::Tensor& self) {
  OptionalTensors result;
  int64_t dim = 0;
  for (const c10::IValue& x : list.toListRef()) {
    if (!x.isTensor() || !x.toTensor().defined()) {
      result.push_back(std::nullopt);
      ++dim;
    } else if (const at::Tensor& index = x.toTensor(); is_mask(index)) {
      check_mask(index, self, dim);
      for (const at::Tensor& coordinates : index.nonzero().unbind(1)) result.push_back(coordinates);
      dim += index.dim();
    } else {
      result.push_back(index);
      ++dim;
    }
  }
  return result;
}

}  // namespace

void expand_masks(const SchemaFacts& facts, torch::jit::Stack* stack) {
  const size_t first = stack->size() - facts.arguments.size();
  for (size_t i = 0; i < facts.arguments.size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    if (facts.arguments[i].name != "indices" || facts.arguments[i].kind != ArgumentKind::TensorList || value.isNone()) continue;
    if (holds_mask(value)) value = expanded(value, (*stack)[first].toTensor());
  }
}

}  // namespace tpupilot::aten
