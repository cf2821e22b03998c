#include "aten/counters.h"

#include <mutex>

#include "aten/runtime.h"

namespace tpupilot::aten {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, const std::atomic<int64_t>*> signatures;
  std::map<std::string, int64_t> fallbacks;
  std::map<std::string, double> at_reset;
};
Registry& registry() {
  static auto* r = new Registry;
  return *r;
}

std::map<std::string, double> raw_values() {
  const Counters& c = counters();
  std::map<std::string, double> values = {{"memory_hits", static_cast<double>(c.memory_hits)},
                                          {"fallbacks", static_cast<double>(c.fallbacks)},
                                          {"host_syncs", static_cast<double>(c.host_syncs)},
                                          {"recordings", static_cast<double>(c.recordings)}};
  for (const char* name : {"compiles", "compile_seconds", "executions", "h2d_bytes", "d2h_bytes", "zero_copy_uploads",
                           "disk_hits", "disk_misses", "cache_corrupt", "cache_write_failures"}) {
    values[name] = 0;
  }
  if (loaded()) add_runtime_counters(values);
  return values;
}

}  // namespace

Counters& counters() {
  static auto* c = new Counters;
  return *c;
}

void register_overload(const std::string& overload, const std::atomic<int64_t>* signatures) {
  const std::lock_guard lock(registry().mutex);
  registry().signatures[overload] = signatures;
}

std::map<std::string, int64_t> signatures_by_overload() {
  const std::lock_guard lock(registry().mutex);
  std::map<std::string, int64_t> result;
  for (const auto& [overload, count] : registry().signatures) result[overload] = count->load();
  return result;
}

void count_fallback(const std::string& overload) {
  counters().fallbacks.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(registry().mutex);
  ++registry().fallbacks[overload];
}

std::map<std::string, int64_t> fallbacks_by_overload() {
  const std::lock_guard lock(registry().mutex);
  return registry().fallbacks;
}

std::map<std::string, double> counter_values() {
  std::map<std::string, double> values = raw_values();
  const std::lock_guard lock(registry().mutex);
  for (const auto& [name, before] : registry().at_reset) values[name] -= before;
  double in_use = 0;
  double peak = 0;
  for (c10::DeviceIndex d = 0; d < device_count(); ++d) {
    in_use += static_cast<double>(bytes_allocated(d));
    peak += static_cast<double>(peak_bytes_allocated(d));
  }
  values["bytes_in_use"] = in_use;
  values["bytes_peak"] = peak;
  return values;
}

void reset_counters() {
  std::map<std::string, double> values = raw_values();
  const std::lock_guard lock(registry().mutex);
  registry().at_reset = std::move(values);
  registry().fallbacks.clear();
  for (c10::DeviceIndex d = 0; d < device_count(); ++d) reset_peak_bytes(d);
}

}  // namespace tpupilot::aten
