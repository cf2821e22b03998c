#include "aten/call.h"

#include <c10/core/DefaultDtype.h>

#include "aten/cell.h"
#include "aten/element.h"
#include "layout/layout.h"
#include "ops/complex.h"

namespace tpupilot::aten {

using hlo::Elem;
using ops::Value;

CallContext::CallContext(hlo::Builder& builder, const SchemaFacts& facts, Arguments arguments,
                         const TensorRefs& tensors, Recorder* recorder)
    : Context(builder, facts.overload),
      facts_(facts),
      arguments_(arguments),
      tensors_(tensors),
      recorder_(recorder),
      flats_(tensors.size()),
      reads_(tensors.size()),
      starts_(tensors.size()),
      scalars_(arguments.size()) {
  int ordinal = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    first_ordinal_.push_back(ordinal);
    const ArgumentKind kind = facts.arguments[i].kind;
    if (kind == ArgumentKind::Tensor) ++ordinal;
    if (kind == ArgumentKind::TensorList && !arguments[i].isNone()) {
      ordinal += static_cast<int>(arguments[i].toListRef().size());
    }
  }
}

int CallContext::index(std::string_view name) const {
  const int i = facts_.index_of(name);
  if (i < 0)
    throw hlo::Error("[" + facts_.overload + "] the row asks for an argument '" + std::string(name) +
                     "' that the schema lacks");
  return i;
}

bool CallContext::has_argument(std::string_view name) const { return facts_.index_of(name) >= 0; }

bool CallContext::given(std::string_view name) const {
  const int i = facts_.index_of(name);
  if (i < 0 || arguments_[i].isNone()) return false;
  return facts_.arguments[i].kind != ArgumentKind::Tensor || tensors_[first_ordinal_[i]] != nullptr;
}

Value CallContext::add_input(Input input, hlo::Type type) {
  inputs_.push_back(input);
  return b.parameter(std::move(type));
}

Value CallContext::flat(int ordinal) {
  Value& known = flats_[ordinal];
  if (known) return known;
  const at::Tensor& tensor = *tensors_[ordinal];
  const Elem own = elem_of(tensor.scalar_type());
  if (recorder_ != nullptr) {
    known = layout::reinterpret(b, recorder_->value_of(tensor), own);
    return known;
  }
  const Cell& cell = cell_of(tensor);
  const bool written = cell.buffer != nullptr;
  const hlo::Type type{written ? cell.elem : own, {written ? cell.length : storage_length(tensor)}};
  known = layout::reinterpret(b, add_input({Input::Tensor, ordinal}, type), own);
  return known;
}

const ops::Values& CallContext::starts(int ordinal) {
  std::optional<ops::Values>& known = starts_[ordinal];
  if (known) return *known;
  known.emplace();
  if (recorder_ != nullptr) return *known;
  const at::Tensor& tensor = *tensors_[ordinal];
  const int64_t length = storage_length(tensor);
  const Elem elem = layout::start_elem(length);
  for (const int64_t start : layout::placement(layout_of(tensor), length).starts) {
    const Input input{Input::Start, ordinal, elem, static_cast<int>(known->size()), start};
    known->push_back(add_input(input, {elem, {}}));
  }
  return *known;
}

Value with_lazy_bits(hlo::Builder& b, const Value& value, const at::Tensor& tensor) {
  Value v = value;
  if (tensor.is_conj()) v = ops::conj({&b, v});
  if (tensor.is_neg()) v = b.neg(v);
  return v;
}

Value CallContext::read(int ordinal) {
  Value& known = reads_[ordinal];
  if (!known) known = with_lazy_bits(b, stored(ordinal), *tensors_[ordinal]);
  return known;
}

Value CallContext::stored(int ordinal) {
  const at::Tensor& tensor = *tensors_[ordinal];
  if (tensor.device().is_privateuseone()) {
    const Value whole = flat(ordinal);
    return layout::read(b, whole, layout_of(tensor), starts(ordinal));
  }
  TORCH_CHECK(tensor.device().is_cpu() && tensor.dim() == 0, "[", facts_.overload,
              "] expected all tensors to be on the same device, but found a ", tensor.device(), " tensor of shape ",
              tensor.sizes(), " beside tensors on the tpu; move it with .to('tpu')");
  const Elem elem = elem_of(tensor.scalar_type());
  return recorder_ != nullptr ? recorder_->host_scalar(tensor)
                              : add_input({Input::HostTensor, ordinal, elem}, {elem, {}});
}

Value CallContext::tensor(std::string_view name) {
  const int i = index(name);
  if (!given(name))
    throw hlo::Error("[" + facts_.overload + "] the tensor argument '" + std::string(name) + "' was not given");
  return read(first_ordinal_[i]);
}

std::vector<std::optional<Value>> CallContext::tensors(std::string_view name) {
  const int i = index(name);
  std::vector<std::optional<Value>> values;
  if (arguments_[i].isNone()) return values;
  const size_t count = arguments_[i].toListRef().size();
  for (size_t k = 0; k < count; ++k) {
    const int ordinal = first_ordinal_[i] + static_cast<int>(k);
    values.push_back(tensors_[ordinal] == nullptr ? std::nullopt : std::optional(read(ordinal)));
  }
  return values;
}

bool CallContext::is_wrapped_number(std::string_view name) const {
  const at::Tensor* tensor = tensors_[first_ordinal_[index(name)]];
  return tensor != nullptr && tensor->unsafeGetTensorImpl()->is_wrapped_number();
}

bool CallContext::is_contiguous(std::string_view name) const {
  return tensors_[first_ordinal_[index(name)]]->is_contiguous();
}

Elem CallContext::default_elem() const { return elem_of(c10::get_default_dtype_as_scalartype()); }

Value CallContext::scalar(std::string_view name, Elem elem) {
  const int i = index(name);
  Value& known = scalars_[i];
  if (!known) {
    static constexpr Elem kElems[] = {Elem::Pred, Elem::S64, Elem::F64, Elem::C128};
    const c10::IValue& value = arguments_[i];
    const Elem own = kElems[static_cast<int>(scalar_kind(name))];
    if (recorder_ == nullptr) {
      known = add_input({Input::Scalar, i, own}, {own, {}});
    } else if (own == Elem::C128) {
      const c10::complex<double> number = value.toComplexDouble();
      known = b.constant_complex({number.real(), number.imag()}, {own, {}});
    } else if (own == Elem::F64) {
      known = b.constant(value.toDouble(), {own, {}});
    } else {
      known = b.constant_int(value.isBool() ? int64_t{value.toBool()} : value.toInt(), {own, {}});
    }
  }
  return b.convert(known, elem);
}

ops::Values CallContext::integer_inputs(std::string_view name) {
  const int i = index(name);
  ops::Values values;
  for (const c10::IValue& element : arguments_[i].toListRef()) {
    const int at = static_cast<int>(values.size());
    values.push_back(recorder_ != nullptr ? b.constant_int(element.toInt(), {Elem::S64, {}})
                                          : add_input({Input::Scalar, i, Elem::S64, at}, {Elem::S64, {}}));
  }
  return values;
}

bool CallContext::is_scalar(std::string_view name) const {
  const int i = facts_.index_of(name);
  return i >= 0 && facts_.arguments[i].kind == ArgumentKind::Scalar;
}

double CallContext::constant(std::string_view name) const {
  const c10::IValue& v = value(name);
  return v.isInt() ? static_cast<double>(v.toInt()) : v.toDouble();
}

ops::ScalarKind CallContext::scalar_kind(std::string_view name) const { return aten::scalar_kind(value(name)); }

bool CallContext::is_identity(std::string_view name) const {
  const int i = index(name);
  return aten::is_identity(facts_.arguments[i], arguments_[i]);
}

int64_t CallContext::integer(std::string_view name) const {
  const c10::IValue& v = value(name);
  return v.isBool() ? int64_t{v.toBool()} : v.toInt();
}
bool CallContext::boolean(std::string_view name) const { return value(name).toBool(); }
std::string CallContext::string(std::string_view name) const { return value(name).toStringRef(); }

ops::Dims CallContext::integers(std::string_view name) const {
  const c10::IValue& v = value(name);
  if (v.isNone()) return {};
  ops::Dims dims;
  if (v.isInt()) {
    dims.push_back(v.toInt());
  } else {
    for (const c10::IValue& x : v.toListRef()) dims.push_back(x.toInt());
  }
  const int count = facts_.arguments[index(name)].expand_to;
  if (dims.size() == 1 && count > 1) dims.assign(count, dims[0]);
  return dims;
}

std::vector<bool> CallContext::booleans(std::string_view name) const {
  std::vector<bool> values;
  for (const c10::IValue& x : value(name).toListRef()) values.push_back(x.toBool());
  return values;
}

std::vector<double> CallContext::floats(std::string_view name) const {
  std::vector<double> values;
  if (value(name).isNone()) return values;
  for (const c10::IValue& x : value(name).toListRef()) values.push_back(x.toDouble());
  return values;
}

const ops::Type& CallContext::result(size_t i) const {
  if (i >= results_.size())
    throw hlo::Error("[" + facts_.overload + "] the row asks for result " + std::to_string(i) + " of " +
                     std::to_string(results_.size()));
  return results_[i];
}

Value CallContext::random_state() {
  if (!random_state_) {
    random_state_ = recorder_ != nullptr ? recorder_->random_state(random_blocks_)
                                         : add_input({Input::RandomState}, {Elem::U64, {2}});
  }
  return random_state_;
}

}  // namespace tpupilot::aten
