#include "pjrt/plugin.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "pjrt/c_api.h"

namespace tpupilot::pjrt {
namespace {

// The oldest API that this wrapper is tested with.
constexpr ApiVersion kOldest{0, 81};

// Every function up to the last one that the wrapper cannot do without must be in the table.
constexpr size_t kNeededTable = offsetof(PJRT_Api, PJRT_Executable_OutputDimensions) + sizeof(void*);

struct Loaded {
  std::mutex mutex;
  std::map<std::string, const Plugin*> by_file;  // by canonical path
};

Loaded& loaded() {
  static auto* l = new Loaded;  // never destroyed: plugins stay for ever
  return *l;
}

using GetApi = const PJRT_Api* (*)();

// Closes the library unless it is let go.
struct Library {
  void* handle = nullptr;
  ~Library() {
    if (handle != nullptr) dlclose(handle);
  }
};

void check_file(const std::string& path) {
  struct stat info{};
  if (stat(path.c_str(), &info) != 0) {
    throw Error(Error::Code::NotFound, "[Plugin::load] there is no file " + path +
                                           ". Give the path of a PJRT plugin's .so file, or the name of one that is "
                                           "installed as a Python package (cpu).");
  }
  if (!S_ISREG(info.st_mode)) {
    throw Error(Error::Code::InvalidArgument,
                "[Plugin::load] " + path + " is not a file. Give the path of the .so file itself.");
  }
}

GetApi open(const std::string& path, Library& library) {
  // Local, so that two plugins (or a plugin and torch) never see each other's copies of XLA, protobuf and absl.
  library.handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library.handle == nullptr) {
    throw Error(Error::Code::InvalidArgument, "[Plugin::load] " + path +
                                                  " cannot be loaded as a shared library: " + dlerror() +
                                                  ". Install the plugin again, in a build for this machine's "
                                                  "processor and C library.");
  }
  const auto get_api = reinterpret_cast<GetApi>(dlsym(library.handle, "GetPjrtApi"));
  if (get_api == nullptr) {
    throw Error(Error::Code::InvalidArgument,
                "[Plugin::load] " + path +
                    " is a shared library but exports no GetPjrtApi, so it is not a PJRT plugin. Give the path of "
                    "the plugin's own .so file.");
  }
  return get_api;
}

void check_api(const std::string& path, const PJRT_Api* api) {
  if (api == nullptr) {
    throw Error(Error::Code::Internal, "[Plugin::load] GetPjrtApi of " + path + " returned nothing. Install it again.");
  }
  constexpr size_t kVersionEnd = offsetof(PJRT_Api, pjrt_api_version) + PJRT_Api_Version_STRUCT_SIZE;
  const bool has_version = api->struct_size >= kVersionEnd;
  const ApiVersion found{has_version ? api->pjrt_api_version.major_version : 0,
                         has_version ? api->pjrt_api_version.minor_version : 0};
  const std::string is = "[Plugin::load] " + path + " has PJRT API " + std::to_string(found.major) + "." +
                         std::to_string(found.minor) + " with a table of " + std::to_string(api->struct_size) +
                         " bytes; ";
  if (found.major != kOldest.major) {
    throw Error(Error::Code::Unimplemented, is + "major version " + std::to_string(kOldest.major) +
                                                " is needed. Install another version of the plugin.");
  }
  if (found.minor < kOldest.minor || api->struct_size < kNeededTable) {
    throw Error(Error::Code::Unimplemented,
                is + "at least " + std::to_string(kOldest.major) + "." + std::to_string(kOldest.minor) + " with " +
                    std::to_string(kNeededTable) + " bytes is needed. Install a newer plugin.");
  }
  // The functions that have no fallback. The ones in between that are optional are asked for where they are used.
  const auto need = [&](bool present, const char* function) {
    if (!present) {
      throw Error(Error::Code::Unimplemented,
                  is + "its function " + function + ", which is needed, is missing. Install another plugin.");
    }
  };
#define TPUPILOT_NEED(Function) need(detail::has(api, &PJRT_Api::PJRT_##Function), "PJRT_" #Function)
  TPUPILOT_NEED(Error_Destroy);
  TPUPILOT_NEED(Error_Message);
  TPUPILOT_NEED(Error_GetCode);
  TPUPILOT_NEED(Plugin_Initialize);
  TPUPILOT_NEED(Event_Destroy);
  TPUPILOT_NEED(Event_IsReady);
  TPUPILOT_NEED(Event_Await);
  TPUPILOT_NEED(Event_OnReady);
  TPUPILOT_NEED(Client_Create);
  TPUPILOT_NEED(Client_PlatformName);
  TPUPILOT_NEED(Client_PlatformVersion);
  TPUPILOT_NEED(Client_AddressableDevices);
  TPUPILOT_NEED(Client_Compile);
  TPUPILOT_NEED(Client_BufferFromHostBuffer);
  TPUPILOT_NEED(Device_GetDescription);
  TPUPILOT_NEED(DeviceDescription_Id);
  TPUPILOT_NEED(DeviceDescription_ProcessIndex);
  TPUPILOT_NEED(DeviceDescription_Kind);
  TPUPILOT_NEED(Executable_Destroy);
  TPUPILOT_NEED(Executable_NumOutputs);
  TPUPILOT_NEED(Executable_OutputElementTypes);
  TPUPILOT_NEED(Executable_OutputDimensions);
  TPUPILOT_NEED(LoadedExecutable_Destroy);
  TPUPILOT_NEED(LoadedExecutable_GetExecutable);
  TPUPILOT_NEED(LoadedExecutable_Execute);
  TPUPILOT_NEED(Buffer_Destroy);
  TPUPILOT_NEED(Buffer_IsDeleted);
  TPUPILOT_NEED(Buffer_ToHostBuffer);
  TPUPILOT_NEED(Buffer_ReadyEvent);
#undef TPUPILOT_NEED
}

}  // namespace

const Plugin& Plugin::load(const std::string& path) {
  check_file(path);
  std::error_code failed;
  const std::string file = std::filesystem::canonical(path, failed).string();
  const std::string& key = failed ? path : file;

  const std::lock_guard lock(loaded().mutex);
  if (const auto found = loaded().by_file.find(key); found != loaded().by_file.end()) return *found->second;

  setenv("TF_CPP_MIN_LOG_LEVEL", "3", /*overwrite=*/0);  // else the plugin writes notes and source traces to stderr
  Library library;
  const PJRT_Api* api = open(path, library)();
  check_api(path, api);
  library.handle = nullptr;  // from here on the plugin may have threads: it stays, even if it fails
  TPUPILOT_PJRT_ARGS(Plugin_Initialize, initialize);
  detail::check(api, api->PJRT_Plugin_Initialize(&initialize), "Plugin::load");
  const auto* plugin = new Plugin(path, api);
  loaded().by_file[key] = plugin;
  return *plugin;
}

Plugin::Plugin(std::string path, const PJRT_Api* api)
    : path_(std::move(path)),
      api_(api),
      version_{api->pjrt_api_version.major_version, api->pjrt_api_version.minor_version} {
  TPUPILOT_PJRT_ARGS(Plugin_Attributes, args);
  if (detail::call_optional(api, &PJRT_Api::PJRT_Plugin_Attributes, args).ok()) {
    attributes_ = detail::attributes_of(args.attributes, args.num_attributes);
  }
}

std::vector<int64_t> Plugin::version_attribute(const std::string& name) const {
  const auto found = attributes_.find(name);
  if (found == attributes_.end()) return {};
  if (const auto* list = std::get_if<std::vector<int64_t>>(&found->second)) return *list;
  if (const auto* number = std::get_if<int64_t>(&found->second)) return {*number};
  return {};
}

}  // namespace tpupilot::pjrt
