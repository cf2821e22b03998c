#include "pjrt/executable.h"

#include <array>

#include "pjrt/client_core.h"

namespace tpupilot::pjrt {

using detail::Status;

Executable::Executable(Made&& made)
    : core_(made.core),
      loaded_(made.loaded.release()),
      handle_(made.handle.release()),
      portable_(made.portable),
      parameters_(std::move(made.parameters)),
      outputs_(std::move(made.outputs)) {}

Executable::~Executable() {
  if (core_->forked()) return;
  detail::Destroyer{core_->api}(handle_);
  detail::Destroyer{core_->api}(loaded_);
}

namespace {

// An array on the stack for as many handles as programs usually have, on the heap for more. Starts as nulls.
template <class Handle>
class Handles {
 public:
  explicit Handles(size_t size) : size_(size) {
    if (size > kInline) heap_ = std::make_unique<Handle*[]>(size);
  }
  Handle** data() { return size_ > kInline ? heap_.get() : inline_.data(); }
  Handle*& operator[](size_t i) { return data()[i]; }

 private:
  static constexpr size_t kInline = 16;
  size_t size_;
  std::array<Handle*, kInline> inline_{};
  std::unique_ptr<Handle*[]> heap_;
};

// Output handles from the moment the plugin may have written them. What is not taken is destroyed: a plugin may fill
// some of them and then fail.
class Outputs {
 public:
  Outputs(const PJRT_Api* api, size_t size) : api_(api), size_(size), handles_(size) {}
  ~Outputs() {
    for (size_t i = 0; i < size_; ++i) {
      if (handles_[i] != nullptr) detail::Destroyer{api_}(handles_[i]);
    }
  }
  PJRT_Buffer** data() { return handles_.data(); }
  detail::Owned<PJRT_Buffer> take(size_t i) { return {std::exchange(handles_[i], nullptr), {api_}}; }

 private:
  const PJRT_Api* api_;
  size_t size_;
  Handles<PJRT_Buffer> handles_;
};

[[noreturn, gnu::noinline]] void refuse(const std::string& text) {
  throw Error(Error::Code::InvalidArgument, "[execute] " + text);
}

[[noreturn, gnu::noinline]] void refuse_argument(size_t index, const std::string& what) {
  refuse("argument " + std::to_string(index) + " " + what);
}

}  // namespace

void Executable::check_arguments(std::span<Buffer* const> arguments, int device) const {
  if (arguments.size() != parameters_.size()) {
    refuse("the program takes " + std::to_string(parameters_.size()) + " arguments, got " +
           std::to_string(arguments.size()));
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Buffer* argument = arguments[i];
    if (argument == nullptr) refuse_argument(i, "is null");
    if (argument->core_ != core_) refuse_argument(i, "belongs to another client");
    if (argument->device_ != device) {
      refuse_argument(i, "lies on device " + std::to_string(argument->device_) + ", the program runs on device " +
                             std::to_string(device));
    }
    if (!(argument->shape_ == parameters_[i])) {
      refuse_argument(i, "is " + argument->shape_.str() + ", the program takes " + parameters_[i].str());
    }
  }
}

void Executable::execute(std::span<Buffer* const> arguments, int device, std::span<std::shared_ptr<Buffer>> outputs,
                         std::span<const int64_t> keep) const {
  core_->check_fork("execute");
  core_->check_device(device, "execute");
  if (!portable_ && device != 0) {
    refuse("the program was compiled for device 0 only, asked for device " + std::to_string(device) +
           "; compile it with CompileOptions::portable");
  }
  check_arguments(arguments, device);
  if (outputs.size() != outputs_.size()) {
    refuse("the program has " + std::to_string(outputs_.size()) + " outputs, got places for " +
           std::to_string(outputs.size()));
  }

  Handles<PJRT_Buffer> in(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) in[i] = arguments[i]->handle_;
  Outputs out(core_->api, outputs.size());
  PJRT_Buffer* const* argument_lists[1] = {in.data()};
  PJRT_Buffer** output_lists[1] = {out.data()};

  PJRT_ExecuteOptions options{};
  options.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE;
  options.non_donatable_input_indices = keep.data();
  options.num_non_donatable_input_indices = keep.size();

  TPUPILOT_PJRT_ARGS(LoadedExecutable_Execute, args);
  args.executable = loaded_;
  args.options = &options;
  args.argument_lists = argument_lists;
  args.num_devices = 1;
  args.num_args = arguments.size();
  args.output_lists = output_lists;
  args.execute_device = portable_ ? core_->devices[static_cast<size_t>(device)] : nullptr;
  if (PJRT_Error* error = core_->api->PJRT_LoadedExecutable_Execute(&args); error != nullptr) [[unlikely]] {
    detail::raise(detail::take(core_->api, error), "execute", outputs_, core_->counters.bytes_in_use);
  }

  for (size_t i = 0; i < outputs.size(); ++i) {
    outputs[i] = std::make_shared<Buffer>(Buffer::Made{core_, out.take(i), device, outputs_[i]});
  }
  core_->counters.executions.fetch_add(1, std::memory_order_relaxed);
}

std::string Executable::serialize() const {
  core_->check_fork("serialize");
  TPUPILOT_PJRT_ARGS(Executable_Serialize, args);
  args.executable = handle_;
  const Status status = detail::call_optional(core_->api, &PJRT_Api::PJRT_Executable_Serialize, args);
  if (!status.ok()) detail::raise(status, "serialize");
  const auto free_bytes = [&](PJRT_SerializedExecutable* bytes) { args.serialized_executable_deleter(bytes); };
  const std::unique_ptr<PJRT_SerializedExecutable, decltype(free_bytes)> owner(args.serialized_executable, free_bytes);
  return {args.serialized_bytes, args.serialized_bytes_size};
}

std::optional<MemoryStats> Executable::memory_stats() const {
  core_->check_fork("memory_stats");
  TPUPILOT_PJRT_ARGS(Executable_GetCompiledMemoryStats, args);
  args.executable = handle_;
  const Status status = detail::call_optional(core_->api, &PJRT_Api::PJRT_Executable_GetCompiledMemoryStats, args);
  if (status.code == Error::Code::Unimplemented) return std::nullopt;
  if (!status.ok()) detail::raise(status, "memory_stats");
  return MemoryStats{.generated_code = args.generated_code_size_in_bytes,
                     .arguments = args.argument_size_in_bytes,
                     .outputs = args.output_size_in_bytes,
                     .aliased = args.alias_size_in_bytes,
                     .temporaries = args.temp_size_in_bytes,
                     .peak = args.peak_memory_in_bytes};
}

std::string Executable::fingerprint() const {
  core_->check_fork("fingerprint");
  TPUPILOT_PJRT_ARGS(Executable_Fingerprint, args);
  args.executable = handle_;
  const Status status = detail::call_optional(core_->api, &PJRT_Api::PJRT_Executable_Fingerprint, args);
  if (status.code == Error::Code::Unimplemented) return {};
  if (!status.ok()) detail::raise(status, "fingerprint");
  return {args.executable_fingerprint, args.executable_fingerprint_size};
}

}  // namespace tpupilot::pjrt
