// The process's one PJRT client, loaded by the first operation on the device: importing the package loads no plugin.
// All functions may be called from any thread.
#pragma once

#include <c10/core/Device.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache/executable_cache.h"
#include "cache/note_store.h"
#include "hlo/target.h"
#include "pjrt/client.h"

namespace tpupilot::aten {

using BufferRef = std::shared_ptr<pjrt::Buffer>;

struct Runtime {
  std::shared_ptr<pjrt::Client> client;
  std::unique_ptr<cache::ExecutableCache> cache;
  std::unique_ptr<cache::NoteStore> meta_notes;  // answers of Meta kernels
  hlo::Target eager_target;
  pjrt::CompileOptions eager_options;
  hlo::Target region_target;
  pjrt::CompileOptions region_options;
};

// From Python at import: the plugin's name or path (TPUPILOT_PLUGIN), where installed plugins lie, the number of
// devices.
void configure(std::string plugin, std::vector<std::string> site_packages, int device_count);

// Loads the plugin on the first call; raises a sentence that says what to do if that fails, and again on later calls.
// Raises in a forked child of a process that had loaded it.
Runtime& runtime();
bool loaded() noexcept;
bool in_bad_fork() noexcept;                               // a forked child of a process that had loaded the plugin
bool available() noexcept;                                 // the plugin's file and hardware are there; loads nothing
std::string plugin_path();                                 // "" if it cannot be found
std::map<std::string, std::string> runtime_description();  // of the loaded plugin: platform, versions
void add_runtime_counters(std::map<std::string, double>& values);  // PJRT's and the cache's; the plugin must be loaded

c10::DeviceIndex device_count() noexcept;
c10::DeviceIndex current_device() noexcept;       // of this thread
void check_device(c10::DeviceIndex index);        // raises if out of range
void set_current_device(c10::DeviceIndex index);  // likewise
c10::DeviceIndex exchange_device(c10::DeviceIndex index);
void set_current_device_unchecked(c10::DeviceIndex index) noexcept;

// Results that may still be computed; `what` (an op; lives as long as the process) makes them. `synchronize` waits for
// all of a device's and raises the first error among them, `wait_for` that of one buffer. Both name the op that failed
// first, and an error that was raised is not raised again for what else it spoiled. Both raise what a program found
// wrong with its arguments (verdicts.h).
void note_pending(const BufferRef& buffer, c10::DeviceIndex device, const std::string& what);
void synchronize(c10::DeviceIndex device);
void wait_for(const pjrt::Buffer& buffer, c10::DeviceIndex device);
bool idle(c10::DeviceIndex device);
std::vector<BufferRef> pending_results(c10::DeviceIndex device);
void check_not_forked();  // raises in a forked child of a process that had loaded the plugin

// {free, total} bytes, as the loaded plugin says. If it says nothing, as the CPU one: the host's memory, less what our
// tensors hold.
std::pair<size_t, size_t> memory_info(c10::DeviceIndex device);
size_t bytes_allocated(c10::DeviceIndex device);
size_t peak_bytes_allocated(c10::DeviceIndex device);
void reset_peak_bytes(c10::DeviceIndex device);

bool debug();  // TPUPILOT_DEBUG=1: wait after each op, name it in the error

}  // namespace tpupilot::aten
