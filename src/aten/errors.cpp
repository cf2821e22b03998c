#include "aten/errors.h"

#include <c10/util/Exception.h>

#include <new>
#include <stdexcept>
#include <string_view>

#include "pjrt/error.h"

namespace tpupilot::aten {

namespace {

// Host memory that the device's own work needs: staging, and on CPU plugins all there is.
bool is_host_out_of_memory(const std::exception& error) {
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
         dynamic_cast<const std::length_error*>(&error) != nullptr;
}

// What a decomposition (src/hostcalls/) says about its matrix, which is what torch says on the CPU, without what the
// plugin puts before it.
std::string_view said_on_the_host(const pjrt::Error& error) {
  const std::string_view text = error.what();
  const bool may_be =
      error.code() == pjrt::Error::Code::OutOfRange || error.code() == pjrt::Error::Code::InvalidArgument;
  const size_t name = may_be ? text.find("linalg.") : text.npos;
  if (name == text.npos) return {};
  return text.substr(name >= 6 && text.substr(name - 6, 6) == "torch." ? name - 6 : name);
}

}  // namespace

void raise_for(const std::string& what, const std::exception& error) {
  TORCH_CHECK_WITH(OutOfMemoryError, !is_host_out_of_memory(error), "[", what, "] the host is out of memory (",
                   error.what(), "). Free tensors, or use a smaller batch.");
  if (const auto* pjrt_error = dynamic_cast<const pjrt::Error*>(&error)) {
    TORCH_CHECK_WITH(OutOfMemoryError, pjrt_error->code() != pjrt::Error::Code::ResourceExhausted, "[", what,
                     "] the device is out of memory: ", error.what(),
                     ". Free tensors, or use a smaller batch; torch.tpu.memory_stats() says what is held.");
    if (const std::string_view text = said_on_the_host(*pjrt_error); !text.empty()) {
      TORCH_CHECK_LINALG(pjrt_error->code() != pjrt::Error::Code::OutOfRange, text);
      TORCH_CHECK(false, text);
    }
    TORCH_CHECK_NOT_IMPLEMENTED(pjrt_error->code() != pjrt::Error::Code::Unimplemented, "[", what, "] ", error.what());
  }
  TORCH_CHECK(false, "[", what, "] ", error.what());
}

}  // namespace tpupilot::aten
