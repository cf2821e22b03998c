#include "aten/errors.h"

#include <c10/util/Exception.h>

#include <new>
#include <stdexcept>

#include "pjrt/error.h"

namespace tpupilot::aten {

namespace {

// Host memory that the device's own work needs: staging, and on CPU plugins all there is.
bool is_host_out_of_memory(const std::exception& error) {
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
         dynamic_cast<const std::length_error*>(&error) != nullptr;
}

}  // namespace

void raise_for(const std::string& what, const std::exception& error) {
  TORCH_CHECK_WITH(OutOfMemoryError, !is_host_out_of_memory(error), "[", what, "] the host is out of memory (",
                   error.what(), "). Free tensors, or use a smaller batch.");
  if (const auto* pjrt_error = dynamic_cast<const pjrt::Error*>(&error)) {
    TORCH_CHECK_WITH(OutOfMemoryError, pjrt_error->code() != pjrt::Error::Code::ResourceExhausted, "[", what,
                     "] the device is out of memory: ", error.what(),
                     ". Free tensors, or use a smaller batch; torch.tpu.memory_stats() says what is held.");
    TORCH_CHECK_NOT_IMPLEMENTED(pjrt_error->code() != pjrt::Error::Code::Unimplemented, "[", what, "] ", error.what());
  }
  TORCH_CHECK(false, "[", what, "] ", error.what());
}

}  // namespace tpupilot::aten
