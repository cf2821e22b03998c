// Records the ops of one call into one program instead of running them: the same boxed kernels emit into one module,
// and cells hold program values instead of buffers. One recording a thread at a time; kernels on other threads run
// eagerly.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "aten/cell.h"
#include "aten/generator.h"
#include "aten/verdicts.h"
#include "hlo/builder.h"

namespace tpupilot::aten {

// A recorded program. Inputs are given anew at each run; storages that were only captured (weights, constants) are read
// and written where they lie, as they are at that moment.
class Recorded {
 public:
  // `inputs` as at recording: same number, dtypes, sizes, strides and offsets (raises otherwise). Returns the recorded
  // outputs.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) const;
  const std::string& text() const { return text_; }
  int64_t op_count() const { return op_count_; }

 private:
  friend class Recorder;
  struct Parameter {
    int input = -1;       // index into the inputs, or -1: `captured`
    at::Tensor captured;  // keeps the storage alive
    bool random = false;  // the generator's state
    bool host = false;    // a 0-d tensor on the CPU, uploaded at each run
    hlo::Type type;
  };
  struct Result {
    int input = -1;       // writes this input's storage ...
    at::Tensor captured;  // ... or this captured storage ...
    hlo::Dims sizes;      // ... or makes a new contiguous tensor
    c10::ScalarType dtype = c10::kFloat;
    int64_t length = 0;
    bool writes = false;
  };
  at::Tensor target(const Parameter& p, const std::vector<at::Tensor>& inputs) const;

  std::shared_ptr<pjrt::Executable> executable_;
  std::vector<Parameter> parameters_;
  std::vector<Result> results_;
  Refusals refusals_;  // null, or the program has one result more: a verdict
  std::vector<std::pair<hlo::Type, layout::Layout>> input_types_;
  uint64_t random_blocks_ = 0;
  int64_t op_count_ = 0;
  std::string text_;
};

class Recorder {
 public:
  // Starts a recording on this thread; raises if one is running. Ends (and forgets) it when destroyed.
  explicit Recorder(const std::vector<at::Tensor>& inputs);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // The recording of this thread, or null.
  static Recorder* current();

  hlo::Builder& builder() { return builder_; }
  uint64_t id() const { return id_; }
  // The flat value of a tensor's storage, in the cell's own element type; a storage not seen before becomes a
  // parameter.
  hlo::Value value_of(const at::Tensor& tensor);
  void set_value(const at::Tensor& tensor, hlo::Value flat);
  hlo::Value host_scalar(const at::Tensor& tensor);  // a 0-d CPU tensor
  hlo::Value random_state(uint64_t blocks);          // U64[2]
  void require(const std::vector<ops::Requirement>& requirements) {
    requirements_.insert(requirements_.end(), requirements.begin(), requirements.end());
  }
  // The name of the FX node being replayed, for error texts.
  void at_node(std::string name) { node_ = std::move(name); }
  const std::string& node() const { return node_; }
  // Raises if the tensor's value exists only in this recording.
  void refuse_read(const at::TensorBase& tensor, const char* what) const;

  // Compiles. The recorder is spent afterwards.
  std::shared_ptr<Recorded> finish(const std::vector<at::Tensor>& outputs);

 private:
  struct Seen {
    at::Tensor tensor;
    int input;
    bool written = false;
  };
  Seen* seen(const Cell& cell);

  uint64_t id_;
  hlo::Builder builder_;
  std::vector<at::Tensor> inputs_;
  std::vector<at::Tensor> alive_;  // intermediates: their cells must not be reused while the recording runs
  std::vector<Seen> storages_;     // parameters, in the order of storage_parameters_
  std::vector<Recorded::Parameter> parameters_;
  hlo::Value random_;
  uint64_t random_blocks_ = 0;
  std::vector<ops::Requirement> requirements_;
  std::string node_;
};

}  // namespace tpupilot::aten
