// Inside this room only: the C header, and what every call of it needs (slots that may be absent, errors, events).
#pragma once

#include <pjrt_c_api.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "pjrt/error.h"
#include "pjrt/plugin.h"
#include "pjrt/shape.h"

// A zeroed argument structure: an older plugin leaves the tail that it does not know untouched.
// NOLINTBEGIN(bugprone-macro-parentheses): `variable` is declared
#define TPUPILOT_PJRT_ARGS(Call, variable) \
  PJRT_##Call##_Args variable{};           \
  variable.struct_size = PJRT_##Call##_Args_STRUCT_SIZE
// NOLINTEND(bugprone-macro-parentheses)

namespace tpupilot::pjrt::detail {

// A slot lies beyond the end of an older plugin's table, and may be null in any.
template <class Function>
bool has(const PJRT_Api* api, Function* PJRT_Api::* slot) {
  const auto* position = reinterpret_cast<const char*>(&(api->*slot));
  return position + sizeof(Function*) <= reinterpret_cast<const char*>(api) + api->struct_size && api->*slot != nullptr;
}

struct Status {
  Error::Code code = Error::Code::Ok;
  std::string message;

  bool ok() const { return code == Error::Code::Ok; }
};

// Reads and destroys `error`; null is Ok.
Status take(const PJRT_Api* api, PJRT_Error* error);

// Throws Error "[where] message".
[[noreturn]] void raise(const Status& status, const char* where);

// The same for work that needs memory: if there was not enough, the text says for what, and what is in use.
[[noreturn]] void raise(const Status& status, const char* where, std::span<const Shape> needed, int64_t bytes_in_use);

inline void check(const PJRT_Api* api, PJRT_Error* error, const char* where) {
  if (error != nullptr) [[unlikely]] {
    raise(take(api, error), where);
  }
}

// Calls an optional slot: Unimplemented if the plugin lacks it.
template <class Function, class Args>
Status call_optional(const PJRT_Api* api, Function* PJRT_Api::* slot, Args& args) {
  if (!has(api, slot)) {
    return {Error::Code::Unimplemented,
            "the plugin's API (0." + std::to_string(api->pjrt_api_version.minor_version) + ") has no such function"};
  }
  return take(api, (api->*slot)(&args));
}

// Owns one PJRT_Event.
class Event {
 public:
  Event(const PJRT_Api* api, PJRT_Event* handle) : api_(api), handle_(handle) {}
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  Status await() const;
  bool is_ready() const;  // throws Error if the plugin cannot say
  PJRT_Event* handle() const { return handle_; }

 private:
  const PJRT_Api* api_;
  PJRT_Event* handle_;
};

// Destroys a handle through the slot that belongs to its type; for unique_ptr.
struct Destroyer {
  const PJRT_Api* api = nullptr;
  void operator()(PJRT_Buffer* handle) const noexcept;
  void operator()(PJRT_Executable* handle) const noexcept;
  void operator()(PJRT_LoadedExecutable* handle) const noexcept;
};
template <class Handle>
using Owned = std::unique_ptr<Handle, Destroyer>;

Attributes attributes_of(const PJRT_NamedValue* values, size_t count);

}  // namespace tpupilot::pjrt::detail
