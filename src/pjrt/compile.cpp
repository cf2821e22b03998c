// Client: from program text, or serialized code, to an executable.
#include <algorithm>
#include <chrono>

#include "pjrt/client_core.h"

namespace tpupilot::pjrt {

using detail::ClientCore;
using detail::Status;

namespace {

constexpr std::string_view kTrivialProgram =
    "module @probe { func.func @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> } }";

Status compile_text(ClientCore& core, std::string_view text, std::string_view options,
                    detail::Owned<PJRT_LoadedExecutable>& result) {
  constexpr std::string_view kFormat = "mlir";
  PJRT_Program program{};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  program.code = const_cast<char*>(text.data());  // the structure is also used for output; here it is only read
  program.code_size = text.size();
  program.format = kFormat.data();
  program.format_size = kFormat.size();

  TPUPILOT_PJRT_ARGS(Client_Compile, args);
  args.client = core.client;
  args.program = &program;
  args.compile_options = options.data();
  args.compile_options_size = options.size();
  const Status status = detail::take(core.api, core.api->PJRT_Client_Compile(&args));
  result = {status.ok() ? args.executable : nullptr, {core.api}};
  return status;
}

std::vector<Shape> read_outputs(const PJRT_Api* api, PJRT_Executable* executable, const char* where) {
  TPUPILOT_PJRT_ARGS(Executable_NumOutputs, number);
  number.executable = executable;
  detail::check(api, api->PJRT_Executable_NumOutputs(&number), where);
  TPUPILOT_PJRT_ARGS(Executable_OutputElementTypes, types);
  types.executable = executable;
  detail::check(api, api->PJRT_Executable_OutputElementTypes(&types), where);
  TPUPILOT_PJRT_ARGS(Executable_OutputDimensions, dims);
  dims.executable = executable;
  detail::check(api, api->PJRT_Executable_OutputDimensions(&dims), where);

  if (types.num_output_types != number.num_outputs || dims.num_outputs != number.num_outputs) {
    throw Error(Error::Code::Internal, std::string("[") + where + "] the plugin names " +
                                           std::to_string(number.num_outputs) + " outputs, " +
                                           std::to_string(types.num_output_types) + " element types and " +
                                           std::to_string(dims.num_outputs) + " shapes");
  }
  std::vector<Shape> outputs;
  const int64_t* next = dims.dims;
  for (size_t i = 0; i < number.num_outputs; ++i) {
    outputs.emplace_back(static_cast<ElementType>(types.output_types[i]), std::span(next, dims.dim_sizes[i]));
    next += dims.dim_sizes[i];
  }
  return outputs;
}

Shape flat(const Shape& shape) {
  const auto count = static_cast<int64_t>(shape.byte_size() / byte_size(shape.element_type()));
  return {shape.element_type(), {count}};
}

// A portable program costs more to launch, and gives nothing where there is one device.
bool portable(const ClientCore& core, const CompileOptions& options) {
  return options.portable && core.devices.size() > 1;
}

std::shared_ptr<Executable> wrap(ClientCore& core, detail::Owned<PJRT_LoadedExecutable> loaded,
                                 const CompileOptions& options, std::vector<Shape> parameters, const char* where) {
  TPUPILOT_PJRT_ARGS(LoadedExecutable_GetExecutable, get);
  get.loaded_executable = loaded.get();
  detail::check(core.api, core.api->PJRT_LoadedExecutable_GetExecutable(&get), where);
  detail::Owned<PJRT_Executable> handle(get.executable, {core.api});
  std::vector<Shape> outputs = read_outputs(core.api, handle.get(), where);
  if (options.flat_results) std::transform(outputs.begin(), outputs.end(), outputs.begin(), flat);
  return std::make_shared<Executable>(Executable::Made{
      &core, std::move(loaded), std::move(handle), portable(core, options), std::move(parameters), std::move(outputs)});
}

}  // namespace

std::string Client::effective_options(const CompileOptions& options) const {
  CompileOptions effective = options;
  effective.portable = portable(*core_, options);
  const std::lock_guard lock(core_->override_mutex);
  std::set<std::string> without;
  for (const auto& [name, override] : options.overrides) {
    if (override.optional && core_->dropped_overrides.contains(name)) without.insert(name);
  }
  return serialize(effective, without);
}

// As asked for, not as accepted: which overrides a plugin drops follows from its file, and asking would cost a compile.
std::string Client::fingerprint(const CompileOptions& options) const {
  CompileOptions effective = options;
  effective.portable = portable(*core_, options);
  return serialize(effective) + (options.flat_results ? "flat results" : "");
}

// A plugin refuses an unknown name without saying which options it would take: so each is tried alone, once.
bool Client::drop_rejected_overrides(const CompileOptions& options) {
  bool dropped = false;
  for (const auto& [name, override] : options.overrides) {
    if (!override.optional) continue;
    // By name and value: a plugin may know a name, and not this value of it.
    CompileOptions alone;
    alone.portable = false;
    alone.overrides[name] = override;
    const std::string bytes = serialize(alone);
    {
      const std::lock_guard lock(core_->override_mutex);
      if (core_->dropped_overrides.contains(name)) {
        dropped = true;
        continue;
      }
      if (core_->accepted_overrides.contains(bytes)) continue;
    }
    detail::Owned<PJRT_LoadedExecutable> probe;
    const bool rejected = compile_text(*core_, kTrivialProgram, bytes, probe).code == Error::Code::InvalidArgument;
    const std::lock_guard lock(core_->override_mutex);
    if (rejected) {
      core_->dropped_overrides.insert(name);
      dropped = true;
    } else {
      core_->accepted_overrides.insert(bytes);
    }
  }
  return dropped;
}

std::vector<std::string> Client::dropped_overrides() const {
  const std::lock_guard lock(core_->override_mutex);
  return {core_->dropped_overrides.begin(), core_->dropped_overrides.end()};
}

std::shared_ptr<Executable> Client::compile(std::string_view program, const CompileOptions& options,
                                            std::vector<Shape> parameters) {
  core_->check_fork("compile");
  const auto start = std::chrono::steady_clock::now();
  detail::Owned<PJRT_LoadedExecutable> loaded;
  std::string sent = effective_options(options);
  Status status = compile_text(*core_, program, sent, loaded);
  if (status.code == Error::Code::InvalidArgument && drop_rejected_overrides(options)) {
    if (std::string left = effective_options(options); left != sent) {
      status = compile_text(*core_, program, left, loaded);
    }
  }
  if (!status.ok()) detail::raise(status, "compile");
  auto executable = wrap(*core_, std::move(loaded), options, std::move(parameters), "compile");

  const auto spent = std::chrono::steady_clock::now() - start;
  core_->counters.compiles.fetch_add(1, std::memory_order_relaxed);
  core_->counters.compile_nanoseconds.fetch_add(std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count(),
                                                std::memory_order_relaxed);
  return executable;
}

std::shared_ptr<Executable> Client::deserialize(std::string_view bytes, const CompileOptions& options,
                                                std::vector<Shape> parameters) {
  core_->check_fork("deserialize");
  TPUPILOT_PJRT_ARGS(Executable_DeserializeAndLoad, args);
  args.client = core_->client;
  args.serialized_executable = bytes.data();
  args.serialized_executable_size = bytes.size();
  const Status status = detail::call_optional(core_->api, &PJRT_Api::PJRT_Executable_DeserializeAndLoad, args);
  if (!status.ok()) detail::raise(status, "deserialize");
  detail::Owned<PJRT_LoadedExecutable> loaded(args.loaded_executable, {core_->api});
  auto executable = wrap(*core_, std::move(loaded), options, std::move(parameters), "deserialize");
  core_->counters.deserializations.fetch_add(1, std::memory_order_relaxed);
  return executable;
}

}  // namespace tpupilot::pjrt
