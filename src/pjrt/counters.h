// What a client has done so far. Written by any thread; a snapshot is not one moment in time.
#pragma once

#include <atomic>
#include <cstdint>

namespace tpupilot::pjrt {

struct CounterValues {
  int64_t compiles = 0;             // finished with success
  int64_t compile_nanoseconds = 0;  // wall time of those
  int64_t deserializations = 0;
  int64_t executions = 0;
  int64_t host_transfers = 0;     // uploads and downloads, zero-copy ones too
  int64_t zero_copy_uploads = 0;  // those that really read the caller's memory in place
  int64_t h2d_bytes = 0;          // zero-copy ones too
  int64_t d2h_bytes = 0;
  int64_t bytes_in_use = 0;  // of live Buffer objects; a donated input counts until its object dies
  int64_t bytes_peak = 0;
};

struct Counters {
  std::atomic<int64_t> compiles{0};
  std::atomic<int64_t> compile_nanoseconds{0};
  std::atomic<int64_t> deserializations{0};
  std::atomic<int64_t> executions{0};
  std::atomic<int64_t> host_transfers{0};
  std::atomic<int64_t> zero_copy_uploads{0};
  std::atomic<int64_t> h2d_bytes{0};
  std::atomic<int64_t> d2h_bytes{0};
  std::atomic<int64_t> bytes_in_use{0};
  std::atomic<int64_t> bytes_peak{0};

  CounterValues snapshot() const;
  void reset_peak();  // bytes_peak = bytes_in_use

  void hold(int64_t bytes) noexcept {
    const int64_t now = bytes_in_use.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t peak = bytes_peak.load(std::memory_order_relaxed);
    while (now > peak && !bytes_peak.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }
  void release(int64_t bytes) noexcept { bytes_in_use.fetch_sub(bytes, std::memory_order_relaxed); }
};

}  // namespace tpupilot::pjrt
