#include "pjrt/counters.h"

namespace tpupilot::pjrt {

CounterValues Counters::snapshot() const {
  return {.compiles = compiles,
          .compile_nanoseconds = compile_nanoseconds,
          .deserializations = deserializations,
          .executions = executions,
          .host_transfers = host_transfers,
          .zero_copy_uploads = zero_copy_uploads,
          .h2d_bytes = h2d_bytes,
          .d2h_bytes = d2h_bytes,
          .bytes_in_use = bytes_in_use,
          .bytes_peak = bytes_peak};
}

void Counters::reset_peak() { bytes_peak = bytes_in_use.load(); }

}  // namespace tpupilot::pjrt
