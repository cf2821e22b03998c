// What a call looks like to the program cache: the facts of an overload's schema, and the key of one call.
// The key holds all that shapes the program (dtypes, sizes, strides, offsets, storage lengths, attributes) and nothing
// that is a program input (scalar values, 0-d CPU tensors, seeds). Where a view starts is an input too; the key has its
// offset all the same, since what a program makes of it takes time to find out.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/row.h"

namespace tpupilot::aten {

using Arguments = c10::ArrayRef<c10::IValue>;
using Key = c10::SmallVector<uint64_t, 48>;
// All tensors of a call in schema order, lists flattened; null for None and undefined ones. Borrowed from the stack.
using TensorRefs = c10::SmallVector<const at::Tensor*, 8>;

struct KeyHash {
  size_t operator()(const Key& key) const;
};
struct KeyEqual {
  bool operator()(const Key& a, const Key& b) const;
};

enum class ArgumentKind { Tensor, TensorList, Scalar, IntegerList, Generator, Attribute };  // IntegerList: Row::inputs

struct ArgumentFacts {
  std::string name;
  ArgumentKind kind = ArgumentKind::Attribute;
  bool written = false;            // by its schema, or because the row says that the op mutates it
  std::optional<double> identity;  // Row::identities
  int expand_to = 0;               // int[N] that may be given as one number
};

// Where a result goes: a new tensor, or one of the arguments (in-place and out= overloads, mutated statistics).
struct ResultSlot {
  int argument = -1;     // -1 = a new tensor
  int element = -1;      // of a Tensor[] argument
  bool returned = true;  // false: a mutated argument that the schema does not return
};

// What happens to a call before it gets its key: preparation.h.
enum class Preparation { None, Masks, Range, Interval };

struct SchemaFacts {
  std::string overload;  // "add.out"
  std::vector<ArgumentFacts> arguments;
  // The schema's returns, then the row's mutated arguments. A Tensor[] stands here once; a call has a result for each
  // of its elements.
  std::vector<ResultSlot> results;
  size_t returns = 0;
  bool may_share = false;  // several tensors are written: they may be views of one storage
  Preparation preparation = Preparation::None;

  int index_of(std::string_view name) const;  // -1 if there is none
};

SchemaFacts facts_of(const c10::FunctionSchema& schema, const ops::Row& row);

// Fills `key` and `tensors` from the arguments.
void make_key(const SchemaFacts& facts, Arguments arguments, Key& key, TensorRefs& tensors);

// Equal for calls that one program serves, wherever their views start: the key with each offset replaced by the view's
// form (layout::Placement).
Key form_of(const SchemaFacts& facts, Arguments arguments);

// True if the argument is the row's identity value, so that the program does without the input.
bool is_identity(const ArgumentFacts& facts, const c10::IValue& value);
ops::ScalarKind scalar_kind(const c10::IValue& value);

// The device of a call: that of its first device tensor, else of a device argument, else the current one.
c10::DeviceIndex device_of_call(const TensorRefs& tensors, Arguments arguments);

}  // namespace tpupilot::aten
