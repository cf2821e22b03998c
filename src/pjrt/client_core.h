// Inside this room only: what buffers, executables and the client share. Made once per client and never freed.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "pjrt/c_api.h"
#include "pjrt/client.h"
#include "pjrt/fork.h"

namespace tpupilot::pjrt {

namespace detail {

struct ClientCore {
  const Plugin* plugin = nullptr;
  const PJRT_Api* api = nullptr;
  PJRT_Client* client = nullptr;
  uint32_t generation = 0;  // of the process that made it
  std::vector<PJRT_Device*> devices;
  std::vector<DeviceDescription> descriptions;
  std::string platform_name;
  std::string platform_version;
  bool data_pointers = false;  // the slots for reading through a pointer exist
  Counters counters;

  std::mutex override_mutex;  // guards the two sets
  std::set<std::string> accepted_overrides;
  std::set<std::string> dropped_overrides;

  bool forked() const noexcept { return generation != fork_generation.load(std::memory_order_relaxed); }
  void check_fork(const char* where) const {
    if (forked()) [[unlikely]] {
      raise_forked(where);
    }
  }
  void check_device(int device, const char* where) const {
    if (device < 0 || static_cast<size_t>(device) >= devices.size()) [[unlikely]] {
      raise_device(device, where);
    }
  }

  [[noreturn]] static void raise_forked(const char* where);
  [[noreturn]] void raise_device(int device, const char* where) const;
};

}  // namespace detail

struct Buffer::Made {
  detail::ClientCore* core;
  detail::Owned<PJRT_Buffer> handle;
  int device;
  const Shape& shape;
  bool aliases_host = false;
};

struct Executable::Made {
  detail::ClientCore* core;
  detail::Owned<PJRT_LoadedExecutable> loaded;
  detail::Owned<PJRT_Executable> handle;
  bool portable;
  std::vector<Shape> parameters;
  std::vector<Shape> outputs;
};

}  // namespace tpupilot::pjrt
