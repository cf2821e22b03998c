// One call as an emitter sees it: ops::Context over the arguments on torch's stack. Lives as long as the emission.
#pragma once

#include "aten/recorder.h"
#include "aten/signature.h"
#include "ops/row.h"

namespace tpupilot::aten {

// Where a program's parameter comes from, call by call.
struct Input {
  enum Kind { Tensor, HostTensor, Scalar, RandomState, Start } kind;
  int index = 0;                        // ordinal among the call's tensors, or of the scalar argument
  hlo::Elem elem = hlo::Elem::Invalid;  // of a HostTensor, Scalar or Start
  int element = -1;                     // of an integer list; of a tensor's starts (layout::Placement)
  int64_t start = 0;
};

// `value` conjugated if the tensor's conjugate bit is set, negated if its negative bit is: what memory holds -> what
// the tensor is, and back. Core resolves the bits before it calls most ops; matrix products and `_copy_from` get them.
ops::Value with_lazy_bits(hlo::Builder& b, const ops::Value& value, const at::Tensor& tensor);

class CallContext final : public ops::Context {
 public:
  CallContext(hlo::Builder& builder, const SchemaFacts& facts, Arguments arguments, const TensorRefs& tensors,
              Recorder* recorder);

  bool has_argument(std::string_view name) const override;
  bool given(std::string_view name) const override;
  ops::Value tensor(std::string_view name) override;
  std::vector<std::optional<ops::Value>> tensors(std::string_view name) override;
  bool is_wrapped_number(std::string_view name) const override;
  bool is_contiguous(std::string_view name) const override;
  ops::Elem default_elem() const override;
  bool is_scalar(std::string_view name) const override;
  ops::Value scalar(std::string_view name, ops::Elem elem) override;
  ops::Values integer_inputs(std::string_view name) override;
  double constant(std::string_view name) const override;
  ops::ScalarKind scalar_kind(std::string_view name) const override;
  bool is_identity(std::string_view name) const override;
  int64_t integer(std::string_view name) const override;
  bool boolean(std::string_view name) const override;
  ops::Dims integers(std::string_view name) const override;
  std::string string(std::string_view name) const override;
  std::vector<bool> booleans(std::string_view name) const override;
  std::vector<double> floats(std::string_view name) const override;
  size_t result_count() const override { return results_.size(); }
  const ops::Type& result(size_t i) const override;
  ops::Value random_state() override;

  void set_results(std::vector<ops::Type> results) { results_ = std::move(results); }
  void set_random_blocks(uint64_t blocks) { random_blocks_ = blocks; }

  // The flat value of the ordinal-th tensor's storage, in the tensor's element type.
  ops::Value flat(int ordinal);
  // Where the ordinal-th tensor lies in its storage, as program inputs; nothing in a recording.
  const ops::Values& starts(int ordinal);
  int ordinal_of(int argument) const { return first_ordinal_[argument]; }
  const std::vector<Input>& inputs() const { return inputs_; }

 private:
  int index(std::string_view name) const;
  const c10::IValue& value(std::string_view name) const { return arguments_[index(name)]; }
  ops::Value read(int ordinal);
  ops::Value stored(int ordinal);  // before the lazy bits
  ops::Value add_input(Input input, hlo::Type type);

  const SchemaFacts& facts_;
  Arguments arguments_;
  const TensorRefs& tensors_;
  Recorder* recorder_;
  std::vector<int> first_ordinal_;                  // by argument
  std::vector<ops::Value> flats_, reads_;           // by ordinal, made once
  std::vector<std::optional<ops::Values>> starts_;  // likewise
  std::vector<ops::Value> scalars_;                 // by argument
  std::vector<Input> inputs_;
  std::vector<ops::Type> results_;
  ops::Value random_state_;
  uint64_t random_blocks_ = 0;
};

}  // namespace tpupilot::aten
