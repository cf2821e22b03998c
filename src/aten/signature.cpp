#include "aten/signature.h"

#include <c10/core/DefaultDtype.h>
#include <c10/util/flat_hash_map.h>

#include <bit>
#include <cstring>

#include "aten/cell.h"
#include "aten/runtime.h"

namespace tpupilot::aten {
namespace {

ArgumentKind kind_of(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::OptionalType:
      return kind_of(*type.castRaw<c10::OptionalType>()->getElementType());
    case c10::TypeKind::TensorType:
      return ArgumentKind::Tensor;
    case c10::TypeKind::ListType:
      return kind_of(*type.castRaw<c10::ListType>()->getElementType()) == ArgumentKind::Tensor
                 ? ArgumentKind::TensorList
                 : ArgumentKind::Attribute;
    case c10::TypeKind::NumberType:
    case c10::TypeKind::FloatType:
      return ArgumentKind::Scalar;
    case c10::TypeKind::GeneratorType:
      return ArgumentKind::Generator;
    default:
      return ArgumentKind::Attribute;
  }
}

bool is_list(const c10::Type& type) { return type.kind() == c10::TypeKind::ListType; }

bool writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// The argument that a return aliases, by the names of the alias sets ("a!"); -1 for a new tensor.
int aliased_argument(const c10::Argument& result, const std::vector<c10::Argument>& arguments) {
  if (result.alias_info() == nullptr) return -1;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = arguments[i].alias_info();
    if (alias != nullptr && alias->isWrite() && alias->beforeSets() == result.alias_info()->beforeSets()) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

// A word for each variant, so that values of different kinds never share a key.
enum Tag : uint64_t {
  kUndefined = 1,
  kTensor,
  kCpuScalar,
  kInt,
  kDouble,
  kBool,
  kNone,
  kList,
  kString,
  kDevice,
  kScalar,
  kIdentity,
  kShared,
  kOther
};

enum class Place { Offset, Form };  // how a key tells where a view lies

void add_form(Key& key, const at::Tensor& tensor) {
  const layout::Dims form = layout::placement(layout_of(tensor), storage_length(tensor)).form;
  key.push_back(form.size());
  for (const int64_t word : form) key.push_back(static_cast<uint64_t>(word));
}

void add_tensor(Key& key, const at::Tensor* tensor, Place place) {
  if (tensor == nullptr) {
    key.push_back(kUndefined);
    return;
  }
  const auto* impl = tensor->unsafeGetTensorImpl();
  const auto sizes = impl->sizes();
  const uint64_t dtype = static_cast<uint64_t>(impl->dtype().toScalarType());
  const uint64_t head = dtype << 8 | static_cast<uint64_t>(sizes.size()) << 16 |
                        uint64_t{impl->is_wrapped_number()} << 40 | uint64_t{tensor->is_conj()} << 41 |
                        uint64_t{tensor->is_neg()} << 42;
  if (!impl->device().is_privateuseone()) {
    key.push_back(head | kCpuScalar);
    return;
  }
  const Cell& cell = cell_of(*tensor);
  key.push_back(head | kTensor | static_cast<uint64_t>(cell.buffer ? cell.elem : hlo::Elem::Invalid) << 32);
  for (const int64_t size : sizes) key.push_back(static_cast<uint64_t>(size));
  for (const int64_t stride : impl->strides()) key.push_back(static_cast<uint64_t>(stride));
  if (place == Place::Offset) {
    key.push_back(static_cast<uint64_t>(impl->storage_offset()));
  } else {
    add_form(key, *tensor);
  }
  key.push_back(impl->storage().nbytes());
}

// Which of the written tensors share a storage: their writes are chained in the program.
void add_sharing(Key& key, const TensorRefs& written) {
  ska::flat_hash_map<const void*, uint64_t> seen;
  for (size_t i = 0; i < written.size(); ++i) {
    if (written[i] == nullptr) continue;
    const auto [first, is_new] = seen.emplace(written[i]->storage().unsafeGetStorageImpl(), i);
    if (is_new) continue;
    key.push_back(kShared | static_cast<uint64_t>(i) << 8);
    key.push_back(first->second);
  }
}

const at::Tensor* reference(const c10::IValue& value) {
  if (!value.isTensor()) return nullptr;
  const at::Tensor& tensor = value.toTensor();
  return tensor.defined() ? &tensor : nullptr;
}

void add_attribute(Key& key, const c10::IValue& value) {
  if (value.isNone()) {
    key.push_back(kNone);
  } else if (value.isInt()) {
    key.push_back(kInt);
    key.push_back(static_cast<uint64_t>(value.toInt()));
  } else if (value.isDouble()) {
    key.push_back(kDouble);
    key.push_back(std::bit_cast<uint64_t>(value.toDouble()));
  } else if (value.isBool()) {
    key.push_back(kBool | uint64_t{value.toBool()} << 8);
  } else if (value.isDevice()) {
    key.push_back(kDevice | static_cast<uint64_t>(value.toDevice().index()) << 8);
  } else if (value.isString()) {
    const std::string& text = value.toStringRef();
    key.push_back(kString | static_cast<uint64_t>(text.size()) << 8);
    for (size_t i = 0; i < text.size(); i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, text.data() + i, std::min<size_t>(8, text.size() - i));
      key.push_back(word);
    }
  } else if (value.isIntList()) {  // by far the most common list: without boxing its elements
    const c10::List<int64_t> list = value.toIntList();
    key.push_back(kList | static_cast<uint64_t>(list.size()) << 8);
    for (const int64_t x : list) key.push_back(static_cast<uint64_t>(x));
  } else if (value.isList()) {
    const auto list = value.toListRef();
    key.push_back(kList | static_cast<uint64_t>(list.size()) << 8);
    for (const c10::IValue& x : list) add_attribute(key, x);
  } else {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "[tpu] an argument of type ", value.tagKind(),
                                " cannot be part of a program's key");
  }
}

}  // namespace

size_t KeyHash::operator()(const Key& key) const {
  uint64_t h = 0x9E3779B97F4A7C15ULL;
  for (const uint64_t word : key) {
    h = (h ^ word) * 0xFF51AFD7ED558CCDULL;
    h ^= h >> 32;
  }
  return h;
}

bool KeyEqual::operator()(const Key& a, const Key& b) const {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(uint64_t)) == 0;
}

int SchemaFacts::index_of(std::string_view name) const {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

SchemaFacts facts_of(const c10::FunctionSchema& schema, const ops::Row& row) {
  SchemaFacts facts;
  facts.overload = schema.name().substr(schema.name().find("::") + 2);
  if (!schema.overload_name().empty()) facts.overload += "." + schema.overload_name();
  if (facts.overload == "arange.start_out") facts.preparation = Preparation::Range;
  if (facts.overload == "random_.from" || facts.overload == "random_.to") facts.preparation = Preparation::Interval;
  for (const c10::Argument& a : schema.arguments()) {
    ArgumentFacts f{a.name(), kind_of(*a.type()), writes(a), std::nullopt, a.N().value_or(0)};
    for (const std::string_view constant : row.constants) {
      if (constant == f.name) f.kind = ArgumentKind::Attribute;
    }
    for (const std::string_view input : row.inputs) {
      if (input == f.name)
        f.kind = f.expand_to > 0 || is_list(*a.type()) ? ArgumentKind::IntegerList : ArgumentKind::Scalar;
    }
    for (const auto& identity : row.identities) {
      if (identity.name == f.name) f.identity = identity.value;
    }
    if (f.kind == ArgumentKind::TensorList && f.name == "indices") facts.preparation = Preparation::Masks;
    facts.arguments.push_back(std::move(f));
  }
  for (const c10::Argument& r : schema.returns())
    facts.results.push_back({aliased_argument(r, schema.arguments()), -1, true});
  facts.returns = facts.results.size();
  if (facts.returns == 0) {  // in-place overloads that return nothing
    for (size_t i = 0; i < facts.arguments.size(); ++i) {
      if (facts.arguments[i].written) facts.results.push_back({static_cast<int>(i), -1, false});
    }
  }
  for (const std::string_view name : row.mutates) {
    const int index = facts.index_of(name);
    TORCH_INTERNAL_ASSERT(index >= 0, facts.overload, " has no argument ", std::string(name));
    facts.results.push_back({index, -1, false});
    facts.arguments[index].written = true;
  }
  size_t written = 0;
  for (const ArgumentFacts& f : facts.arguments) written += f.written ? f.kind == ArgumentKind::TensorList ? 2 : 1 : 0;
  facts.may_share = written > 1;
  return facts;
}

namespace {

void make_key(const SchemaFacts& facts, Arguments arguments, Key& key, TensorRefs& tensors, Place place) {
  key.push_back(
      static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()));  // what integers become in float functions
  TensorRefs written;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const ArgumentFacts& f = facts.arguments[i];
    const c10::IValue& value = arguments[i];
    const size_t first = tensors.size();
    switch (f.kind) {
      case ArgumentKind::Tensor:
        tensors.push_back(reference(value));
        add_tensor(key, tensors.back(), place);
        break;
      case ArgumentKind::TensorList: {
        if (value.isNone()) {
          key.push_back(kNone);
          break;
        }
        const auto list = value.toListRef();
        key.push_back(kList | static_cast<uint64_t>(list.size()) << 8);
        for (const c10::IValue& element : list) {
          tensors.push_back(reference(element));
          add_tensor(key, tensors.back(), place);
        }
        break;
      }
      case ArgumentKind::Scalar:
        if (value.isNone()) {
          key.push_back(kNone);
        } else if (is_identity(f, value)) {
          key.push_back(kIdentity);
        } else {
          key.push_back(kScalar | static_cast<uint64_t>(scalar_kind(value)) << 8);
        }
        break;
      case ArgumentKind::IntegerList:
        key.push_back(kList | static_cast<uint64_t>(value.toListRef().size()) << 8);
        break;
      case ArgumentKind::Generator:
        break;
      case ArgumentKind::Attribute:
        add_attribute(key, value);
        break;
    }
    if (facts.may_share && f.written) written.append(tensors.begin() + first, tensors.end());
  }
  if (facts.may_share) add_sharing(key, written);
}

}  // namespace

void make_key(const SchemaFacts& facts, Arguments arguments, Key& key, TensorRefs& tensors) {
  make_key(facts, arguments, key, tensors, Place::Offset);
}

Key form_of(const SchemaFacts& facts, Arguments arguments) {
  Key form;
  TensorRefs tensors;
  make_key(facts, arguments, form, tensors, Place::Form);
  return form;
}

bool is_identity(const ArgumentFacts& facts, const c10::IValue& value) {
  if (!facts.identity) return false;
  if (value.isInt()) return static_cast<double>(value.toInt()) == *facts.identity;
  return value.isDouble() && value.toDouble() == *facts.identity;
}

ops::ScalarKind scalar_kind(const c10::IValue& value) {
  if (value.isInt()) return ops::ScalarKind::Int;
  if (value.isDouble()) return ops::ScalarKind::Float;
  if (value.isBool()) return ops::ScalarKind::Bool;
  if (value.isComplexDouble()) return ops::ScalarKind::Complex;
  TORCH_CHECK_NOT_IMPLEMENTED(false, "[tpu] a scalar of type ", value.tagKind(), " cannot be a program input");
}

c10::DeviceIndex device_of_call(const TensorRefs& tensors, Arguments arguments) {
  for (const at::Tensor* t : tensors) {
    if (t != nullptr && t->device().is_privateuseone()) return t->device().index();
  }
  for (const c10::IValue& a : arguments) {
    if (a.isDevice() && a.toDevice().has_index()) return a.toDevice().index();
  }
  return current_device();
}

}  // namespace tpupilot::aten
