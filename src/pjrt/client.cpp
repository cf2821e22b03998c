#include "pjrt/client.h"

#include <cstring>
#include <map>

#include "pjrt/client_core.h"

namespace tpupilot::pjrt {

using detail::ClientCore;
using detail::Status;

namespace detail {

void ClientCore::raise_forked(const char* where) {
  throw Error(Error::Code::FailedPrecondition,
              std::string("[") + where +
                  "] this process was forked after the device was initialised; the plugin's threads do not exist in "
                  "it. Start workers with the `spawn` method, or use the device for the first time in the child.");
}

void ClientCore::raise_device(int device, const char* where) const {
  throw Error(Error::Code::InvalidArgument, std::string("[") + where + "] there is no device " +
                                                std::to_string(device) + ": the client has " +
                                                std::to_string(devices.size()));
}

}  // namespace detail

namespace {

PJRT_NamedValue option(const char* name, PJRT_NamedValue_Type type) {
  PJRT_NamedValue value{};
  value.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  value.name = name;
  value.name_size = std::strlen(name);
  value.type = type;
  value.value_size = 1;
  return value;
}

Status create_client(const PJRT_Api* api, const std::vector<PJRT_NamedValue>& options, PJRT_Client** client) {
  TPUPILOT_PJRT_ARGS(Client_Create, args);
  args.create_options = options.data();
  args.num_options = options.size();
  const Status status = detail::take(api, api->PJRT_Client_Create(&args));
  *client = args.client;
  return status;
}

// A plugin refuses an option that it does not know: then it is asked with fewer. CPU plugins know the first.
PJRT_Client* create_client(const PJRT_Api* api, const ClientOptions& options) {
  std::vector<PJRT_NamedValue> values;
  if (options.device_count > 0) {
    values.push_back(option("cpu_device_count", PJRT_NamedValue_kInt64));
    values.back().int64_value = options.device_count;
  }
  values.push_back(option("asynchronous", PJRT_NamedValue_kBool));
  values.back().bool_value = options.asynchronous;

  PJRT_Client* client = nullptr;
  Status status = create_client(api, values, &client);
  while (status.code == Error::Code::InvalidArgument && !values.empty()) {
    values.pop_back();
    status = create_client(api, values, &client);
  }
  if (!status.ok()) detail::raise(status, "Client::create");
  return client;
}

DeviceDescription describe(const PJRT_Api* api, PJRT_Device* device) {
  DeviceDescription result;
  TPUPILOT_PJRT_ARGS(Device_GetDescription, get);
  get.device = device;
  detail::check(api, api->PJRT_Device_GetDescription(&get), "Client::create");

  TPUPILOT_PJRT_ARGS(DeviceDescription_Id, id);
  id.device_description = get.device_description;
  detail::check(api, api->PJRT_DeviceDescription_Id(&id), "Client::create");
  result.id = id.id;

  TPUPILOT_PJRT_ARGS(DeviceDescription_ProcessIndex, process);
  process.device_description = get.device_description;
  detail::check(api, api->PJRT_DeviceDescription_ProcessIndex(&process), "Client::create");
  result.process_index = process.process_index;

  TPUPILOT_PJRT_ARGS(DeviceDescription_Kind, kind);
  kind.device_description = get.device_description;
  detail::check(api, api->PJRT_DeviceDescription_Kind(&kind), "Client::create");
  result.kind.assign(kind.device_kind, kind.device_kind_size);

  TPUPILOT_PJRT_ARGS(DeviceDescription_DebugString, debug);
  debug.device_description = get.device_description;
  if (detail::call_optional(api, &PJRT_Api::PJRT_DeviceDescription_DebugString, debug).ok()) {
    result.debug.assign(debug.debug_string, debug.debug_string_size);
  }

  TPUPILOT_PJRT_ARGS(DeviceDescription_Attributes, attributes);
  attributes.device_description = get.device_description;
  if (detail::call_optional(api, &PJRT_Api::PJRT_DeviceDescription_Attributes, attributes).ok()) {
    result.attributes = detail::attributes_of(attributes.attributes, attributes.num_attributes);
  }
  return result;
}

void read_client(ClientCore& core) {
  TPUPILOT_PJRT_ARGS(Client_PlatformName, platform);
  platform.client = core.client;
  detail::check(core.api, core.api->PJRT_Client_PlatformName(&platform), "Client::create");
  core.platform_name.assign(platform.platform_name, platform.platform_name_size);

  TPUPILOT_PJRT_ARGS(Client_PlatformVersion, version);
  version.client = core.client;
  detail::check(core.api, core.api->PJRT_Client_PlatformVersion(&version), "Client::create");
  core.platform_version.assign(version.platform_version, version.platform_version_size);

  TPUPILOT_PJRT_ARGS(Client_AddressableDevices, devices);
  devices.client = core.client;
  detail::check(core.api, core.api->PJRT_Client_AddressableDevices(&devices), "Client::create");
  core.devices.assign(devices.addressable_devices, devices.addressable_devices + devices.num_addressable_devices);
  for (PJRT_Device* device : core.devices) core.descriptions.push_back(describe(core.api, device));

  core.data_pointers = detail::has(core.api, &PJRT_Api::PJRT_Buffer_IsOnCpu) &&
                       detail::has(core.api, &PJRT_Api::PJRT_Buffer_OpaqueDeviceMemoryDataPointer);
}

// Every client ever made, and in which generation of the process a plugin got its first one. Never destroyed.
struct Made {
  std::mutex mutex;
  std::vector<ClientCore*> cores;
  std::map<const Plugin*, uint32_t> first_generation;
};

Made& made() {
  static auto* m = new Made;
  return *m;
}

}  // namespace

std::shared_ptr<Client> Client::create(const Plugin& plugin, const ClientOptions& options) {
  if (options.device_count < 0) {
    throw Error(Error::Code::InvalidArgument,
                "[Client::create] device_count is " + std::to_string(options.device_count) + ", must be 0 or more");
  }
  detail::watch_forks();
  const std::lock_guard lock(made().mutex);
  const uint32_t generation = detail::fork_generation.load();
  const auto first = made().first_generation.find(&plugin);
  if (first != made().first_generation.end() && first->second != generation) {
    ClientCore::raise_forked("Client::create");
  }

  auto owner = std::make_unique<ClientCore>();
  owner->plugin = &plugin;
  owner->api = plugin.api_;
  owner->generation = generation;
  owner->client = create_client(owner->api, options);
  made().first_generation.emplace(&plugin, generation);
  made().cores.push_back(owner.get());
  ClientCore* core = owner.release();
  read_client(*core);
  return std::shared_ptr<Client>(new Client(core));
}

const Plugin& Client::plugin() const { return *core_->plugin; }
const std::string& Client::platform_name() const { return core_->platform_name; }
const std::string& Client::platform_version() const { return core_->platform_version; }
int Client::device_count() const { return static_cast<int>(core_->devices.size()); }
const std::vector<DeviceDescription>& Client::devices() const { return core_->descriptions; }
std::optional<DeviceMemory> Client::device_memory(int device) const {
  core_->check_fork("device_memory");
  core_->check_device(device, "device_memory");
  TPUPILOT_PJRT_ARGS(Device_MemoryStats, args);
  args.device = core_->devices[static_cast<size_t>(device)];
  const Status status = detail::call_optional(core_->api, &PJRT_Api::PJRT_Device_MemoryStats, args);
  if (status.code == Error::Code::Unimplemented) return std::nullopt;
  if (!status.ok()) detail::raise(status, "device_memory");
  DeviceMemory memory{.in_use = args.bytes_in_use, .limit = std::nullopt};
  if (args.bytes_limit_is_set) memory.limit = args.bytes_limit;
  return memory;
}

bool Client::forked() const noexcept { return core_->forked(); }
Counters& Client::counters() const { return core_->counters; }

}  // namespace tpupilot::pjrt
