#include "aten/preparation.h"

#include <ATen/ops/nonzero.h>

#include <cmath>

#include "aten/closed_ops.h"

namespace tpupilot::aten {
namespace {

using OptionalTensors = c10::List<std::optional<at::Tensor>>;

bool is_mask(const at::Tensor& t) {
  return t.defined() && (t.scalar_type() == at::kBool || t.scalar_type() == at::kByte);
}

bool holds_mask(const c10::IValue& list) {
  for (const c10::IValue& x : list.toListRef()) {
    if (x.isTensor() && is_mask(x.toTensor())) return true;
  }
  return false;
}

void check_mask(const at::Tensor& mask, const at::Tensor& self, int64_t dim) {
  for (int64_t i = 0; i < mask.dim(); ++i) {
    TORCH_CHECK_INDEX(dim + i < self.dim() && mask.size(i) == self.size(dim + i), "The shape of the mask ",
                      mask.sizes(), " at index ", i, " does not match the shape of the indexed tensor ", self.sizes(),
                      " at index ", dim + i);
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

void expand_masks(const SchemaFacts& facts, torch::jit::Stack* stack) {
  const size_t first = stack->size() - facts.arguments.size();
  for (size_t i = 0; i < facts.arguments.size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    if (facts.arguments[i].name != "indices" || facts.arguments[i].kind != ArgumentKind::TensorList || value.isNone())
      continue;
    if (holds_mask(value)) value = expanded(value, (*stack)[first].toTensor());
  }
}

// The number of elements, as at::native::arange_out counts them.
int64_t range_size(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step, at::ScalarType type) {
  const double first = start.toDouble(), last = end.toDouble(), stride = step.toDouble();
  TORCH_CHECK(stride != 0, "step must be nonzero");
  TORCH_CHECK(std::isfinite(first) && std::isfinite(last), "unsupported range: ", first, " -> ", last);
  TORCH_CHECK((stride > 0 && last >= first) || (stride < 0 && last <= first),
              "upper bound and lower bound inconsistent with step sign");
  if (type != at::kLong) return static_cast<int64_t>(std::ceil((last - first) / stride));
  const int64_t s = step.toLong();  // 0 for a stride below 1
  TORCH_CHECK_VALUE(s != 0, "step must be nonzero");
  return (end.toLong() - start.toLong() + s - (s > 0 ? 1 : -1)) / s;
}

void resize_range(torch::jit::Stack* stack) {
  const size_t first = stack->size() - 4;  // start, end, step, out
  const at::Tensor& out = (*stack)[first + 3].toTensor();
  const int64_t size = range_size((*stack)[first].toScalar(), (*stack)[first + 1].toScalar(),
                                  (*stack)[first + 2].toScalar(), out.scalar_type());
  if (out.numel() != size) resize_tensor(out, {size});
}

// random_(from, to): the bounds are inputs of the program, which cannot raise.
void check_interval(const SchemaFacts& facts, const torch::jit::Stack& stack) {
  const c10::IValue* arguments = stack.data() + stack.size() - facts.arguments.size();
  const int from = facts.index_of("from"), to = facts.index_of("to");
  if (arguments[to].isNone()) return;
  const int64_t low = from < 0 ? 0 : arguments[from].toInt(), high = arguments[to].toInt();
  TORCH_CHECK(low < high, "random_ expects 'from' to be less than 'to', but got from=", low, " >= to=", high);
}

}  // namespace

void prepare(const SchemaFacts& facts, torch::jit::Stack* stack) {
  if (facts.preparation == Preparation::Masks) expand_masks(facts, stack);
  if (facts.preparation == Preparation::Range) resize_range(stack);
  if (facts.preparation == Preparation::Interval) check_interval(facts, *stack);
}

}  // namespace tpupilot::aten
