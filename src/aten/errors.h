// How errors of the torch-free rooms reach Python: as torch's own exception types, with the op named.
#pragma once

#include <exception>
#include <string>

namespace tpupilot::aten {

// RESOURCE_EXHAUSTED becomes torch.OutOfMemoryError, UNIMPLEMENTED NotImplementedError, anything else RuntimeError.
[[noreturn]] void raise_for(const std::string& what, const std::exception& error);

// Calls f; errors leave it as torch's.
template <class F>
auto translated(const char* what, F&& f);

}  // namespace tpupilot::aten

#include <c10/util/Exception.h>

namespace tpupilot::aten {
template <class F>
auto translated(const char* what, F&& f) {
  try {
    return f();
  } catch (const c10::Error&) {
    throw;
  } catch (const std::exception& error) {
    raise_for(what, error);
  }
}
}  // namespace tpupilot::aten
