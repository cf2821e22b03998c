// A client: the devices of one plugin in this process.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pjrt/buffer.h"
#include "pjrt/compile_options.h"
#include "pjrt/counters.h"
#include "pjrt/element.h"
#include "pjrt/error.h"
#include "pjrt/executable.h"
#include "pjrt/host_call.h"
#include "pjrt/plugin.h"
#include "pjrt/shape.h"

namespace tpupilot::pjrt {

struct ClientOptions {
  int device_count = 1;       // virtual devices of a CPU plugin; 0: its default. Other platforms have what they have
  bool asynchronous = false;  // false keeps small programs in the calling thread
};

struct DeviceDescription {
  int id = 0;
  int process_index = 0;
  std::string kind;
  std::string debug;  // the plugin's one-line description
  Attributes attributes;
};

struct DeviceMemory {  // bytes
  int64_t in_use = 0;
  std::optional<int64_t> limit;
};

// Any thread, several at once. The plugin's client is never destroyed, not even at exit: its buffers and threads may
// outlive everything else. Every call that would enter the plugin from a process forked after create() throws
// (FailedPrecondition): the plugin's threads do not exist there, and a call would hang.
class Client {
 public:
  // A plugin that does not know an option is asked again without it: check device_count() where it matters.
  static std::shared_ptr<Client> create(const Plugin& plugin, const ClientOptions& options = {});

  const Plugin& plugin() const;
  const std::string& platform_name() const;  // "cpu"
  const std::string& platform_version() const;
  int device_count() const;  // addressable ones
  const std::vector<DeviceDescription>& devices() const;
  std::optional<DeviceMemory> device_memory(int device) const;  // nothing if the plugin does not say, as XLA's CPU one
  bool forked() const noexcept;  // this process is a fork of the one that made the client

  // `data` is dense and row-major; it may be reused when the call returns.
  std::shared_ptr<Buffer> from_host(const void* data, ElementType type, std::span<const int64_t> dims, int device);

  // Reads `data` in place if the device is a CPU and `data` aligned enough (64 bytes always is); otherwise it copies.
  // Buffer::aliases_host tells.
  // It must not change meanwhile. `keep_alive` is let go when neither the Buffer nor a running program needs the
  // memory, on any thread, perhaps within this call: its deleter must take no lock that the caller holds.
  std::shared_ptr<Buffer> from_host_zero_copy(const void* data, ElementType type, std::span<const int64_t> dims,
                                              int device, std::shared_ptr<void> keep_alive);

  // StableHLO text (or bytecode) with a function @main of these parameters. The plugin's diagnostics are in the error.
  std::shared_ptr<Executable> compile(std::string_view program, const CompileOptions& options,
                                      std::vector<Shape> parameters);

  // `bytes` from Executable::serialize, with the options and parameters of its compile().
  std::shared_ptr<Executable> deserialize(std::string_view bytes, const CompileOptions& options,
                                          std::vector<Shape> parameters);

  // Programs may from now on call `handler` by this name; before, they fail to compile (NotFound). All clients of the
  // plugin share the names: once a plugin is enough. False if the plugin has no such calls.
  bool register_host_call(const std::string& target, HostHandler handler);

  // Names what this client makes of the options; equal text means equal code from the same plugin file.
  std::string fingerprint(const CompileOptions& options) const;

  // Optional overrides that the plugin turned out not to know.
  std::vector<std::string> dropped_overrides() const;

  Counters& counters() const;

  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

 private:
  explicit Client(detail::ClientCore* core) : core_(core) {}
  std::string effective_options(const CompileOptions& options) const;
  bool drop_rejected_overrides(const CompileOptions& options);

  detail::ClientCore* core_;  // reachable for ever, so that a buffer may outlive this object
};

}  // namespace tpupilot::pjrt
