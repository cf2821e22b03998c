#include "aten/recorder.h"

#include <atomic>

#include "aten/counters.h"
#include "aten/element.h"
#include "aten/execute.h"
#include "aten/program.h"
#include "aten/runtime.h"
#include "aten/storage.h"
#include "layout/layout.h"

namespace tpupilot::aten {
namespace {

thread_local Recorder* t_current = nullptr;

uint64_t next_id() {
  static std::atomic<uint64_t> id{0};
  return ++id;  // 0 means "no recording"
}

bool on_device(const at::Tensor& t) { return t.defined() && t.device().is_privateuseone(); }

hlo::Value literal(hlo::Builder& b, const at::Tensor& host) {
  const hlo::Type type{elem_of(host.scalar_type()), {}};
  if (hlo::is_complex(type.elem)) {
    const c10::complex<double> number = host.item().toComplexDouble();
    return b.constant_complex({number.real(), number.imag()}, type);
  }
  if (hlo::is_float(type.elem)) return b.constant(host.item().toDouble(), type);
  return b.constant_int(host.item().toLong(), type);
}

}  // namespace

Recorder* Recorder::current() { return t_current; }

Recorder::Recorder(const std::vector<at::Tensor>& inputs)
    : id_(next_id()), builder_(runtime().region_target), inputs_(inputs) {
  TORCH_CHECK(t_current == nullptr, "[record] a recording is already running on this thread");
  t_current = this;
}

Recorder::~Recorder() {
  for (const Seen& s : storages_) cell_of(s.tensor).recording = 0;  // their buffers are untouched
  if (t_current == this) t_current = nullptr;
}

Recorder::Seen* Recorder::seen(const Cell& cell) {
  for (Seen& s : storages_) {
    if (&cell_of(s.tensor) == &cell) return &s;
  }
  return nullptr;
}

hlo::Value Recorder::value_of(const at::Tensor& tensor) {
  Cell& cell = cell_of(tensor);
  if (cell.recording == id_) {
    if (!cell.value)
      cell.value = builder_.zeros({elem_of(tensor.scalar_type()), {storage_length(tensor)}});  // never written
    return cell.value;
  }
  buffer_of(tensor);  // a storage that was never written becomes zeros, so that it has an element type
  Recorded::Parameter parameter;
  for (size_t i = 0; i < inputs_.size() && parameter.input < 0; ++i) {
    if (on_device(inputs_[i]) && &cell_of(inputs_[i]) == &cell) parameter.input = static_cast<int>(i);
  }
  if (parameter.input < 0) parameter.captured = tensor;
  parameter.type = {cell.elem, {cell.length}};
  cell.value = builder_.parameter(parameter.type);
  cell.recording = id_;
  storages_.push_back({tensor, parameter.input});
  parameters_.push_back(std::move(parameter));
  return cell.value;
}

void Recorder::set_value(const at::Tensor& tensor, hlo::Value flat) {
  Cell& cell = cell_of(tensor);
  if (cell.recording != id_) value_of(tensor);  // a storage from outside: its new value is a result of the program
  if (Seen* s = seen(cell)) s->written = true;
  cell.recording = id_;
  cell.value = std::move(flat);
  alive_.push_back(tensor);
}

hlo::Value Recorder::host_scalar(const at::Tensor& tensor) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].defined() || !inputs_[i].is_same(tensor)) continue;
    Recorded::Parameter parameter;
    parameter.input = static_cast<int>(i);
    parameter.host = true;
    parameter.type = {elem_of(tensor.scalar_type()), {}};
    parameters_.push_back(parameter);
    return builder_.parameter(parameter.type);
  }
  return literal(builder_, tensor);
}

hlo::Value Recorder::random_state(uint64_t blocks) {
  if (!random_) {
    Recorded::Parameter parameter;
    parameter.random = true;
    parameter.type = {hlo::Elem::U64, {2}};
    parameters_.push_back(parameter);
    random_ = builder_.parameter(parameter.type);
  }
  const hlo::Value skip = builder_.constant_ints({0, static_cast<int64_t>(random_blocks_)}, hlo::Elem::U64);
  random_blocks_ += blocks;
  return builder_.add(random_, skip);
}

void Recorder::refuse_read(const at::TensorBase& tensor, const char* what) const {
  if (!tensor.defined() || !tensor.device().is_privateuseone() || cell_of(tensor).recording != id_) return;
  TORCH_CHECK(false, "[tpu] ", what, " needs the value of a tensor that a compiled region is still computing",
              node_.empty() ? "" : ", at node '" + node_ + "'",
              "; move .item(), .cpu() and printing out of the compiled function");
}

std::shared_ptr<Recorded> Recorder::finish(const std::vector<at::Tensor>& outputs) {
  auto recorded = std::make_shared<Recorded>();
  hlo::Values results;
  for (const at::Tensor& t : outputs) {
    const hlo::Value flat = layout::reinterpret(builder_, value_of(t), elem_of(t.scalar_type()));
    const hlo::Value value = layout::read(builder_, flat, layout_of(t));
    results.push_back(builder_.reshape(value, {value.type.numel()}));
    Recorded::Result r;
    r.sizes = dims_of(t.sizes());
    r.dtype = t.scalar_type();
    r.length = t.numel();
    recorded->results_.push_back(std::move(r));
  }
  for (const Seen& s : storages_) {
    if (!s.written) continue;
    const Cell& cell = cell_of(s.tensor);
    results.push_back(cell.value);
    Recorded::Result r;
    r.input = s.input;
    if (s.input < 0) r.captured = s.tensor;
    r.dtype = dtype_of(cell.value.elem());
    r.length = cell.value.type.numel();
    r.writes = true;
    recorded->results_.push_back(std::move(r));
  }
  for (const at::Tensor& t : inputs_) {
    recorded->input_types_.emplace_back(on_device(t) ? type_of(t) : hlo::Type{},
                                        on_device(t) ? layout_of(t) : layout::Layout{});
  }
  recorded->refusals_ = refusals_of(requirements_);
  if (recorded->refusals_) results.push_back(ops::verdict(builder_, requirements_));
  recorded->parameters_ = std::move(parameters_);
  recorded->random_blocks_ = random_blocks_;
  recorded->op_count_ = builder_.op_count();
  recorded->text_ = builder_.module(results);
  recorded->executable_ = compile(builder_, results, runtime().region_options);
  counters().recordings.fetch_add(1, std::memory_order_relaxed);
  return recorded;
}

at::Tensor Recorded::target(const Parameter& p, const std::vector<at::Tensor>& inputs) const {
  return p.input >= 0 ? inputs[p.input] : p.captured;
}

std::vector<at::Tensor> Recorded::run(const std::vector<at::Tensor>& inputs) const {
  TORCH_CHECK(inputs.size() == input_types_.size(), "[recorded] the program was recorded with ", input_types_.size(),
              " inputs and is called with ", inputs.size());
  c10::DeviceIndex device = current_device();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!on_device(inputs[i])) continue;
    TORCH_CHECK(type_of(inputs[i]) == input_types_[i].first && layout_of(inputs[i]) == input_types_[i].second,
                "[recorded] input ", i,
                " has another dtype, shape, stride or offset than when the program was recorded");
    device = inputs[i].device().index();
  }
  std::vector<BufferRef> held;
  std::vector<pjrt::Buffer*> arguments;
  for (const Parameter& p : parameters_) {
    if (p.random) {
      at::Generator generator = default_generator(device);
      const std::lock_guard lock(generator.mutex());
      const auto [seed, offset] = generator.get<Generator>()->reserve(random_blocks_);
      const uint64_t words[2] = {seed, offset};
      const int64_t dims[] = {2};
      held.push_back(runtime().client->from_host(words, pjrt::ElementType::U64, dims, device));
    } else if (p.host) {
      held.push_back(scalar_buffer(p.type.elem, inputs[p.input].const_data_ptr(), device));
    } else {
      const at::Tensor storage = target(p, inputs);
      held.push_back(buffer_of(storage));
    }
    arguments.push_back(held.back().get());
  }
  std::vector<BufferRef> out(results_.size() + (refusals_ ? 1 : 0));
  static const std::string kRegion = "compiled region";
  execute(*executable_, arguments, device, out, kRegion);
  if (refusals_) note_verdict(std::move(out.back()), device, refusals_);
  std::vector<at::Tensor> outputs;
  for (size_t i = 0; i < results_.size(); ++i) {
    const Result& r = results_[i];
    const at::Tensor t = !r.writes      ? new_tensor(r.sizes, hlo::contiguous_strides(r.sizes), r.dtype)
                         : r.input >= 0 ? inputs[r.input]
                                        : r.captured;
    assign(cell_of(t), std::move(out[i]), elem_of(r.dtype), r.length);
    if (!r.writes) outputs.push_back(t);
  }
  return outputs;
}

}  // namespace tpupilot::aten
