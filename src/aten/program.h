// One cached program of an overload: which call arguments it reads, what its results become. Built on a cache miss, run
// on every call.
#pragma once

#include <ATen/core/stack.h>

#include <memory>
#include <vector>

#include "aten/call.h"
#include "aten/signature.h"
#include "aten/verdicts.h"

namespace c10 {
class OperatorHandle;
}

namespace tpupilot::aten {

struct ResultFacts {
  hlo::Type type;
  hlo::Dims strides;  // of a new tensor
  c10::ScalarType dtype = c10::kFloat;
  ResultSlot slot;
  bool defined = true;  // false: an undefined tensor, no output of the program
  int64_t length = 0;   // elements of the flat output
};

struct Program {
  std::shared_ptr<pjrt::Executable> executable;
  c10::SmallVector<Input, 6> inputs;
  std::vector<ResultFacts> results;
  size_t outputs = 0;    // of the executable
  bool resizes = false;  // an out= argument had another size: it is resized before each run
  uint64_t random_blocks = 0;
  Refusals refusals;       // null, or the last output is a verdict
  bool prompt = false;     // execute.h
  bool contracts = false;  // it was built for one setting of current_passes()
};

// Everything an overload's kernel knows besides its cache.
struct Overload {
  const ops::Row* row = nullptr;
  const c10::OperatorHandle* handle = nullptr;
  SchemaFacts facts;
};

// Runs the Meta kernel (or the row's shape function), the emitter, and the compiler. `arguments` may be resized (out=).
std::unique_ptr<Program> build_program(const Overload& overload, Arguments arguments, const TensorRefs& tensors,
                                       const Key& key, hlo::Passes passes);

// The same for an overload whose results are known from a call that another kernel served: neither Meta kernel nor
// shape function.
std::unique_ptr<Program> build_program(const Overload& overload, Arguments arguments, const TensorRefs& tensors,
                                       const torch::jit::Stack& results, hlo::Passes passes);

// A program for views of the same forms that start elsewhere (layout::Placement).
std::unique_ptr<Program> placed_elsewhere(const Program& sibling, const TensorRefs& tensors);

// Runs it and leaves the results on the stack in place of the arguments.
void run_program(const Program& program, const Overload& overload, Arguments arguments, const TensorRefs& tensors,
                 torch::jit::Stack* stack);

// Emits the call into the current recording instead.
void record_call(const Overload& overload, Arguments arguments, const TensorRefs& tensors, const Key& key,
                 torch::jit::Stack* stack);

// Registers a kernel for every row. Called once, when the module is imported: not from a static initialiser, since the
// rows are built from constants of other files.
void register_rows();

// A new tensor on the current device; its storage holds nothing yet.
at::Tensor new_tensor(const hlo::Dims& sizes, const hlo::Dims& strides, c10::ScalarType dtype);

}  // namespace tpupilot::aten
