#include "aten/meta.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/version.h>

#include <sstream>

#include "aten/cell.h"
#include "aten/runtime.h"

namespace tpupilot::aten {
namespace {

at::Tensor to_meta(const at::Tensor& t) {
  // A 0-d CPU tensor stays: a wrapped number on meta cannot cross into a Python Meta kernel.
  if (!t.defined() || !t.device().is_privateuseone()) return t;
  at::Tensor meta(at::detail::empty_strided_meta(t.sizes(), t.strides(), t.scalar_type()));
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  return meta;
}

bool holds_optional_tensors(const c10::IValue& list) {
  const auto type = list.type();
  return type->castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::OptionalType;
}

c10::IValue meta_value(const c10::IValue& v) {
  if (v.isTensor()) return to_meta(v.toTensor());
  if (v.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const c10::IValue& t : v.toListRef()) list.push_back(to_meta(t.toTensor()));
    return list;
  }
  if (v.isDevice()) return c10::Device(c10::kMeta);
  if (v.isGenerator()) return {};  // Meta kernels draw nothing
  if (v.isList() && holds_optional_tensors(v)) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& x : v.toListRef()) {
      list.push_back(x.isTensor() ? std::optional(to_meta(x.toTensor())) : std::nullopt);
    }
    return list;
  }
  return v;
}

TensorFacts facts_of_result(const c10::IValue& v) {
  if (!v.isTensor() || !v.toTensor().defined()) return {{}, {}, c10::kFloat};
  const at::Tensor& t = v.toTensor();
  return {dims_of(t.sizes()), dims_of(t.strides()), t.scalar_type()};
}

// ---- answers on disk: "dtype sizes : strides ;" for each result ----
std::string written(const std::vector<TensorFacts>& results) {
  std::ostringstream out;
  for (const TensorFacts& r : results) {
    out << static_cast<int>(r.dtype);
    for (const int64_t size : r.sizes) out << ' ' << size;
    out << " :";
    for (const int64_t stride : r.strides) out << ' ' << stride;
    out << " ; ";
  }
  return out.str();
}

std::vector<TensorFacts> parsed(const std::string& text) {
  std::vector<TensorFacts> results;
  std::istringstream in(text);
  int dtype = 0;
  while (in >> dtype) {
    TensorFacts r{{}, {}, static_cast<c10::ScalarType>(dtype)};
    hlo::Dims* target = &r.sizes;
    for (std::string word; in >> word && word != ";";) {
      if (word == ":") {
        target = &r.strides;
      } else {
        target->push_back(std::stoll(word));
      }
    }
    results.push_back(std::move(r));
  }
  return results;
}

std::string disk_key(const c10::OperatorHandle& op, const Key& key) {
  std::string text = c10::str(TORCH_VERSION, " ", op.operator_name(), " ");
  return text.append(reinterpret_cast<const char*>(key.data()), key.size() * sizeof(uint64_t));
}

std::vector<TensorFacts> ask_meta(const c10::OperatorHandle& op, Arguments arguments) {
  TORCH_CHECK_NOT_IMPLEMENTED(op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta), "[tpu] ", op.operator_name(),
                              " has no Meta kernel, and its row has no shape function");
  torch::jit::Stack stack;
  stack.reserve(arguments.size());
  for (const c10::IValue& a : arguments) stack.push_back(meta_value(a));
  op.callBoxedForDispatchKey(c10::DispatchKey::Meta, stack);
  std::vector<TensorFacts> results;
  for (const c10::IValue& v : stack) results.push_back(facts_of_result(v));
  return results;
}

}  // namespace

std::vector<TensorFacts> run_meta(const c10::OperatorHandle& op, Arguments arguments, const Key& key) {
  cache::NoteStore& store = *runtime().meta_notes;
  const std::string name = disk_key(op, key);
  if (const std::optional<std::string> note = store.find(name)) return parsed(*note);
  std::vector<TensorFacts> results = ask_meta(op, arguments);
  store.keep(name, written(results));
  return results;
}

}  // namespace tpupilot::aten
