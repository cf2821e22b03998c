#include "aten/errors.h"

#include <c10/util/Exception.h>

#include "pjrt/error.h"

namespace tpupilot::aten {

void raise_for(const std::string& what, const std::exception& error) {
  if (const auto* pjrt_error = dynamic_cast<const pjrt::Error*>(&error)) {
    TORCH_CHECK_WITH(OutOfMemoryError, pjrt_error->code() != pjrt::Error::Code::ResourceExhausted, "[", what,
                     "] the device is out of memory: ", error.what(),
                     ". Free tensors, or use a smaller batch; torch.tpu.memory_stats() says what is held.");
    TORCH_CHECK_NOT_IMPLEMENTED(pjrt_error->code() != pjrt::Error::Code::Unimplemented, "[", what, "] ", error.what());
  }
  TORCH_CHECK(false, "[", what, "] ", error.what());
}

}  // namespace tpupilot::aten
