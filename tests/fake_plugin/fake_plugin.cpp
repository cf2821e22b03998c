// The objects and the function table of the fake plugin. See faults.h for what it can be told to do wrong.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "faults.h"

using fake::fault;
using fake::live;

void fake_error_destroy(PJRT_Error_Destroy_Args* args);
void fake_error_message(PJRT_Error_Message_Args* args);
PJRT_Error* fake_error_get_code(PJRT_Error_GetCode_Args* args);

// ---- objects -------------------------------------------------------------------------------------------------------

struct PJRT_DeviceDescription {
  int id;
};
struct PJRT_Device {
  PJRT_DeviceDescription description;
};
struct PJRT_Client {
  std::vector<std::unique_ptr<PJRT_Device>> devices;
  std::vector<PJRT_Device*> list;
};

struct Signal {  // what an event watches
  std::mutex mutex;
  bool ready = false;
  PJRT_Error_Code code = PJRT_Error_Code_OK;
  std::vector<std::function<void()>> waiting;

  PJRT_Error* status() const { return code == PJRT_Error_Code_OK ? nullptr : fake::error(code, "asynchronous fault"); }
  void set() {
    std::vector<std::function<void()>> run;
    {
      const std::lock_guard lock(mutex);
      ready = true;
      run.swap(waiting);
    }
    for (auto& f : run) f();
  }
};
struct PJRT_Event {
  std::shared_ptr<Signal> signal;
  explicit PJRT_Event(std::shared_ptr<Signal> s) : signal(std::move(s)) { ++live.events; }
  ~PJRT_Event() { --live.events; }
};
std::shared_ptr<Signal> ready_signal(PJRT_Error_Code code = PJRT_Error_Code_OK) {
  auto signal = std::make_shared<Signal>();
  signal->ready = true;
  signal->code = code;
  return signal;
}

struct Spec {
  PJRT_Buffer_Type type;
  std::vector<int64_t> dims;
};
size_t element_bytes(PJRT_Buffer_Type type) {
  switch (type) {
    case PJRT_Buffer_Type_PRED:
    case PJRT_Buffer_Type_S8:
    case PJRT_Buffer_Type_U8:
      return 1;
    case PJRT_Buffer_Type_F16:
    case PJRT_Buffer_Type_BF16:
    case PJRT_Buffer_Type_S16:
      return 2;
    case PJRT_Buffer_Type_F64:
    case PJRT_Buffer_Type_S64:
    case PJRT_Buffer_Type_U64:
      return 8;
    default:
      return 4;
  }
}
size_t bytes_of(const Spec& spec) {
  size_t bytes = element_bytes(spec.type);
  for (const int64_t d : spec.dims) bytes *= static_cast<size_t>(d);
  return bytes;
}

struct PJRT_Buffer {
  Spec spec;
  std::vector<char> own;
  const void* alias = nullptr;  // zero copy: the caller's memory
  std::shared_ptr<Signal> ready = ready_signal();
  std::shared_ptr<Signal> done_with_host = ready_signal();
  std::vector<int64_t> minor_to_major;
  explicit PJRT_Buffer(Spec s) : spec(std::move(s)) {
    ++live.buffers;
    for (size_t i = spec.dims.size(); i-- > 0;) minor_to_major.push_back(static_cast<int64_t>(i));
  }
  ~PJRT_Buffer() {
    --live.buffers;
    if (alias != nullptr) done_with_host->set();
  }
  const void* data() const { return alias != nullptr ? alias : own.data(); }
};

struct PJRT_SerializedExecutable {
  std::string bytes;
};
struct PJRT_Executable {
  std::string text;
  std::vector<Spec> outputs;
  std::vector<PJRT_Buffer_Type> types;
  std::vector<int64_t> dims;
  std::vector<size_t> ranks;
  explicit PJRT_Executable(std::string module);
  PJRT_Executable(const PJRT_Executable& other) : PJRT_Executable(other.text) {}
  ~PJRT_Executable() { --live.executables; }
};
struct PJRT_LoadedExecutable {
  PJRT_Executable program;
  explicit PJRT_LoadedExecutable(std::string text) : program(std::move(text)) {}
};

// "tensor<2x3xf32>" after the -> of @main, in order.
std::vector<Spec> results_of(const std::string& text) {
  static const std::map<std::string, PJRT_Buffer_Type, std::less<>> kTypes = {
      {"i1", PJRT_Buffer_Type_PRED}, {"i8", PJRT_Buffer_Type_S8},     {"i32", PJRT_Buffer_Type_S32},
      {"i64", PJRT_Buffer_Type_S64}, {"ui8", PJRT_Buffer_Type_U8},    {"f16", PJRT_Buffer_Type_F16},
      {"f32", PJRT_Buffer_Type_F32}, {"bf16", PJRT_Buffer_Type_BF16}, {"f64", PJRT_Buffer_Type_F64}};
  std::vector<Spec> results;
  const size_t arrow = text.find("->", text.find("@main"));
  const std::string_view list = std::string_view(text).substr(arrow, text.find('{', arrow) - arrow);
  for (size_t at = list.find("tensor<"); at != list.npos; at = list.find("tensor<", at + 1)) {
    std::string_view body = list.substr(at + 7, list.find('>', at) - at - 7);
    Spec spec{PJRT_Buffer_Type_INVALID, {}};
    for (size_t x = body.find('x'); x != body.npos; x = body.find('x')) {
      spec.dims.push_back(std::atol(std::string(body.substr(0, x)).c_str()));
      body.remove_prefix(x + 1);
    }
    if (const auto found = kTypes.find(body); found != kTypes.end()) spec.type = found->second;
    results.push_back(spec);
  }
  return results;
}
PJRT_Executable::PJRT_Executable(std::string module) : text(std::move(module)), outputs(results_of(text)) {
  ++live.executables;
  for (const Spec& spec : outputs) {
    types.push_back(spec.type);
    dims.insert(dims.end(), spec.dims.begin(), spec.dims.end());
    ranks.push_back(spec.dims.size());
  }
}

// ---- functions -----------------------------------------------------------------------------------------------------

#define FAKE(Function) PJRT_Error* fake_##Function(PJRT_##Function##_Args* args)
#define FAULT(Function)                                             \
  if (PJRT_Error* planned = fault(#Function); planned != nullptr) { \
    return planned;                                                 \
  }

FAKE(Plugin_Initialize) {
  FAULT(Plugin_Initialize)
  (void)args;
  return nullptr;
}
FAKE(Plugin_Attributes) {
  FAULT(Plugin_Attributes)
  static const int64_t kVersion[3] = {1, 13, 3};
  static PJRT_NamedValue value{};
  value.name = "stablehlo_current_version";
  value.name_size = std::strlen(value.name);
  value.type = PJRT_NamedValue_kInt64List;
  value.int64_array_value = kVersion;
  value.value_size = 3;
  args->attributes = &value;
  args->num_attributes = 1;
  return nullptr;
}

FAKE(Event_Destroy) {
  delete args->event;
  return nullptr;
}
FAKE(Event_IsReady) {
  FAULT(Event_IsReady)
  args->is_ready = args->event->signal->ready;
  return nullptr;
}
FAKE(Event_Error) { return args->event->signal->status(); }
FAKE(Event_Await) {
  FAULT(Event_Await)
  return args->event->signal->status();
}
FAKE(Event_OnReady) {
  FAULT(Event_OnReady)
  const auto signal = args->event->signal;
  const auto call = [signal, callback = args->callback, user = args->user_arg] { callback(signal->status(), user); };
  {
    const std::lock_guard lock(signal->mutex);
    if (!signal->ready) {
      signal->waiting.push_back(call);
      return nullptr;
    }
  }
  call();
  return nullptr;
}

FAKE(Client_Create) {
  FAULT(Client_Create)
  int64_t devices = 1;
  for (size_t i = 0; i < args->num_options; ++i) {
    const std::string name(args->create_options[i].name, args->create_options[i].name_size);
    if (fake::listed("FAKE_PJRT_UNKNOWN_CLIENT_OPTION", name)) {
      return fake::error(PJRT_Error_Code_INVALID_ARGUMENT, "Unexpected option name passed to create: " + name);
    }
    if (name == "cpu_device_count") devices = args->create_options[i].int64_value;
  }
  args->client = new PJRT_Client;
  for (int64_t i = 0; i < devices; ++i) {
    args->client->devices.push_back(std::make_unique<PJRT_Device>(PJRT_Device{{static_cast<int>(i)}}));
    args->client->list.push_back(args->client->devices.back().get());
  }
  return nullptr;
}
FAKE(Client_PlatformName) {
  args->platform_name = "fake";
  args->platform_name_size = 4;
  return nullptr;
}
FAKE(Client_PlatformVersion) {
  args->platform_version = "fake 1";
  args->platform_version_size = 6;
  return nullptr;
}
FAKE(Client_AddressableDevices) {
  args->addressable_devices = args->client->list.data();
  args->num_addressable_devices = args->client->list.size();
  return nullptr;
}
FAKE(Device_GetDescription) {
  args->device_description = &args->device->description;
  return nullptr;
}
FAKE(Device_MemoryStats) {
  FAULT(Device_MemoryStats)
  args->bytes_in_use = 1000;
  args->bytes_limit = 5000;
  args->bytes_limit_is_set = fake::variable("FAKE_PJRT_NO_LIMIT") == nullptr;
  return nullptr;
}
FAKE(DeviceDescription_Id) {
  args->id = args->device_description->id;
  return nullptr;
}
FAKE(DeviceDescription_ProcessIndex) {
  args->process_index = 0;
  return nullptr;
}
FAKE(DeviceDescription_Kind) {
  args->device_kind = "fake";
  args->device_kind_size = 4;
  return nullptr;
}

FAKE(Client_Compile) {
  FAULT(Client_Compile)
  const std::string_view options(args->compile_options, args->compile_options_size);
  const char* unknown = fake::variable("FAKE_PJRT_UNKNOWN_OPTION");
  if (unknown != nullptr && options.find(unknown) != options.npos) {
    return fake::error(PJRT_Error_Code_INVALID_ARGUMENT, std::string("No such compile option: '") + unknown + "'");
  }
  std::string text(args->program->code, args->program->code_size);
  if (text.find("@main") == text.npos) return fake::error(PJRT_Error_Code_UNKNOWN, "no @main");
  args->executable = new PJRT_LoadedExecutable(std::move(text));
  return nullptr;
}
FAKE(LoadedExecutable_Destroy) {
  delete args->executable;
  return nullptr;
}
FAKE(LoadedExecutable_GetExecutable) {
  FAULT(LoadedExecutable_GetExecutable)
  args->executable = new PJRT_Executable(args->loaded_executable->program);
  return nullptr;
}
FAKE(Executable_Destroy) {
  delete args->executable;
  return nullptr;
}
FAKE(Executable_NumOutputs) {
  args->num_outputs = args->executable->outputs.size();
  return nullptr;
}
FAKE(Executable_OutputElementTypes) {
  FAULT(Executable_OutputElementTypes)
  args->output_types = args->executable->types.data();
  args->num_output_types = args->executable->types.size();
  return nullptr;
}
FAKE(Executable_OutputDimensions) {
  FAULT(Executable_OutputDimensions)
  args->num_outputs = args->executable->ranks.size();
  args->dims = args->executable->dims.data();
  args->dim_sizes = args->executable->ranks.data();
  return nullptr;
}
FAKE(Executable_Serialize) {
  FAULT(Executable_Serialize)
  args->serialized_executable = new PJRT_SerializedExecutable{"FAKE" + args->executable->text};
  args->serialized_bytes = args->serialized_executable->bytes.data();
  args->serialized_bytes_size = args->serialized_executable->bytes.size();
  args->serialized_executable_deleter = [](PJRT_SerializedExecutable* bytes) { delete bytes; };
  return nullptr;
}
FAKE(Executable_DeserializeAndLoad) {
  FAULT(Executable_DeserializeAndLoad)
  const std::string bytes(args->serialized_executable, args->serialized_executable_size);
  if (!bytes.starts_with("FAKE")) return fake::error(PJRT_Error_Code_INVALID_ARGUMENT, "not a serialized program");
  args->loaded_executable = new PJRT_LoadedExecutable(bytes.substr(4));
  return nullptr;
}

FAKE(LoadedExecutable_Execute) {
  const auto& outputs = args->executable->program.outputs;
  PJRT_Error* planned = fault("LoadedExecutable_Execute");
  const size_t fill = planned == nullptr ? outputs.size() : (fake::variable("FAKE_PJRT_PARTIAL") != nullptr ? 1 : 0);
  for (size_t i = 0; i < std::min(fill, outputs.size()); ++i) {
    auto* buffer = new PJRT_Buffer(outputs[i]);
    buffer->own.resize(bytes_of(outputs[i]));
    if (const char* code = fake::variable("FAKE_PJRT_ASYNC_ERROR"); code != nullptr) {
      const int number = std::atoi(code);
      buffer->ready = ready_signal(number > 1 ? static_cast<PJRT_Error_Code>(number) : PJRT_Error_Code_INTERNAL);
    }
    args->output_lists[0][i] = buffer;
  }
  return planned;
}

FAKE(Client_BufferFromHostBuffer) {
  FAULT(Client_BufferFromHostBuffer)
  auto* buffer = new PJRT_Buffer({args->type, {args->dims, args->dims + args->num_dims}});
  const bool zero_copy = args->host_buffer_semantics == PJRT_HostBufferSemantics_kImmutableZeroCopy;
  if (zero_copy && reinterpret_cast<uintptr_t>(args->data) % 64 == 0) {
    buffer->alias = args->data;
    buffer->done_with_host = std::make_shared<Signal>();
  } else {
    const auto* data = static_cast<const char*>(args->data);
    buffer->own.assign(data, data + bytes_of(buffer->spec));
  }
  args->buffer = buffer;
  args->done_with_host_buffer = new PJRT_Event(buffer->done_with_host);
  return nullptr;
}
FAKE(Buffer_Destroy) {
  delete args->buffer;
  return nullptr;
}
FAKE(Buffer_IsDeleted) {
  args->is_deleted = false;
  return nullptr;
}
FAKE(Buffer_IsOnCpu) {
  FAULT(Buffer_IsOnCpu)
  args->is_on_cpu = true;
  return nullptr;
}
FAKE(Buffer_OpaqueDeviceMemoryDataPointer) {
  FAULT(Buffer_OpaqueDeviceMemoryDataPointer)
  args->device_memory_ptr = const_cast<void*>(args->buffer->data());
  return nullptr;
}
FAKE(Buffer_GetMemoryLayout) {
  FAULT(Buffer_GetMemoryLayout)
  args->layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  args->layout.tiled.minor_to_major = args->buffer->minor_to_major.data();
  args->layout.tiled.minor_to_major_size = args->buffer->minor_to_major.size();
  return nullptr;
}
FAKE(Buffer_ReadyEvent) {
  FAULT(Buffer_ReadyEvent)
  args->event = new PJRT_Event(args->buffer->ready);
  return nullptr;
}
FAKE(Buffer_ToHostBuffer) {
  FAULT(Buffer_ToHostBuffer)
  const size_t bytes = bytes_of(args->src->spec);
  if (args->dst_size < bytes) return fake::error(PJRT_Error_Code_INVALID_ARGUMENT, "the target is too small");
  std::memcpy(args->dst, args->src->data(), bytes);
  args->event = new PJRT_Event(args->src->ready);
  return nullptr;
}

// ---- the table -----------------------------------------------------------------------------------------------------

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  static PJRT_Api api;
  std::memset(&api, 0, sizeof(api));
  const auto number = [](const char* name, long otherwise) {
    const char* text = fake::variable(name);
    return text == nullptr ? otherwise : std::atol(text);
  };
  api.struct_size = static_cast<size_t>(number("FAKE_PJRT_STRUCT_SIZE", PJRT_Api_STRUCT_SIZE));
  api.pjrt_api_version.struct_size = PJRT_Api_Version_STRUCT_SIZE;
  api.pjrt_api_version.major_version = static_cast<int>(number("FAKE_PJRT_MAJOR", PJRT_API_MAJOR));
  api.pjrt_api_version.minor_version = static_cast<int>(number("FAKE_PJRT_MINOR", PJRT_API_MINOR));
  api.PJRT_Error_Destroy = fake_error_destroy;
  api.PJRT_Error_Message = fake_error_message;
  api.PJRT_Error_GetCode = fake_error_get_code;
#define SLOT(Function) api.PJRT_##Function = fake::listed("FAKE_PJRT_NULL_SLOT", #Function) ? nullptr : fake_##Function
  SLOT(Plugin_Initialize);
  SLOT(Plugin_Attributes);
  SLOT(Event_Destroy);
  SLOT(Event_IsReady);
  SLOT(Event_Error);
  SLOT(Event_Await);
  SLOT(Event_OnReady);
  SLOT(Client_Create);
  SLOT(Client_PlatformName);
  SLOT(Client_PlatformVersion);
  SLOT(Client_AddressableDevices);
  SLOT(Device_GetDescription);
  SLOT(Device_MemoryStats);
  SLOT(DeviceDescription_Id);
  SLOT(DeviceDescription_ProcessIndex);
  SLOT(DeviceDescription_Kind);
  SLOT(Client_Compile);
  SLOT(LoadedExecutable_Destroy);
  SLOT(LoadedExecutable_GetExecutable);
  SLOT(LoadedExecutable_Execute);
  SLOT(Executable_Destroy);
  SLOT(Executable_NumOutputs);
  SLOT(Executable_OutputElementTypes);
  SLOT(Executable_OutputDimensions);
  SLOT(Executable_Serialize);
  SLOT(Executable_DeserializeAndLoad);
  SLOT(Client_BufferFromHostBuffer);
  SLOT(Buffer_Destroy);
  SLOT(Buffer_IsDeleted);
  SLOT(Buffer_IsOnCpu);
  SLOT(Buffer_OpaqueDeviceMemoryDataPointer);
  SLOT(Buffer_GetMemoryLayout);
  SLOT(Buffer_ReadyEvent);
  SLOT(Buffer_ToHostBuffer);
#undef SLOT
  return &api;
}
