// Functions of this process that a program may call: XLA's FFI custom calls (api_version 4), on plugins whose device is
// the host itself.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "pjrt/element.h"

struct XLA_FFI_CallFrame;
struct XLA_FFI_Error;

namespace tpupilot::pjrt {

struct HostArray {  // dense, in the layout that the program asks for
  ElementType type = ElementType::INVALID;
  std::span<const int64_t> dims;
  void* data = nullptr;
};

// One call. Its arrays are the plugin's: valid until the function returns.
struct HostCall {
  std::vector<HostArray> operands;                       // must not be written
  std::vector<HostArray> results;                        // not initialised
  std::map<std::string, int64_t, std::less<>> integers;  // the i64 entries of backend_config

  int64_t integer(std::string_view name) const;  // throws Error (InvalidArgument) if the program does not give it
};

// Fills the results, or throws: pjrt::Error ends the program with its code, any other exception with Internal; either
// way with the exception's text. Called from any thread, several at once.
using HostFunction = void (*)(const HostCall&);
using HostHandler = XLA_FFI_Error* (*)(XLA_FFI_CallFrame*);  // the form in which the plugin knows it

namespace detail {
XLA_FFI_Error* handle(XLA_FFI_CallFrame* frame, HostFunction function) noexcept;
}

// The C function of `function`: the C API has no place for a pointer beside it.
template <HostFunction function>
XLA_FFI_Error* host_handler(XLA_FFI_CallFrame* frame) noexcept {
  return detail::handle(frame, function);
}

}  // namespace tpupilot::pjrt
