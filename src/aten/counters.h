// What the device did so far. Relaxed atomics; torch.tpu.counters() reads them.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tpupilot::aten {

struct Counters {
  std::atomic<int64_t> memory_hits{0};  // calls that found their program
  std::atomic<int64_t> fallbacks{0};    // ops that ran on the CPU because they were allowed to
  std::atomic<int64_t> host_syncs{0};   // reads of device data by the host
  std::atomic<int64_t> recordings{0};   // compiled regions
};
Counters& counters();

// Each overload that was called, with the number of signatures (programs) it has.
void register_overload(const std::string& overload, const std::atomic<int64_t>* signatures);
std::map<std::string, int64_t> signatures_by_overload();

void count_fallback(const std::string& overload);
std::map<std::string, int64_t> fallbacks_by_overload();

// The whole picture by name, PJRT's and the cache's counters included; "compile_seconds" is the one fraction.
std::map<std::string, double> counter_values();
void reset_counters();  // bytes_in_use stays; the peak starts again from it

}  // namespace tpupilot::aten
