#include "pjrt/c_api.h"

#include <algorithm>

namespace tpupilot::pjrt::detail {

Status take(const PJRT_Api* api, PJRT_Error* error) {
  if (error == nullptr) return {};
  Status status{Error::Code::Unknown, {}};

  TPUPILOT_PJRT_ARGS(Error_GetCode, get);
  get.error = error;
  if (PJRT_Error* second = api->PJRT_Error_GetCode(&get); second != nullptr) {
    TPUPILOT_PJRT_ARGS(Error_Destroy, destroy);
    destroy.error = second;
    api->PJRT_Error_Destroy(&destroy);
  } else if (get.code != PJRT_Error_Code_OK) {
    status.code = static_cast<Error::Code>(get.code);
  }

  TPUPILOT_PJRT_ARGS(Error_Message, message);
  message.error = error;
  api->PJRT_Error_Message(&message);
  if (message.message != nullptr) status.message.assign(message.message, message.message_size);
  // XLA's CPU client calls it INTERNAL when memory runs out inside a computation that it made asynchronous.
  if (status.code == Error::Code::Internal && status.message.find("Out of memory allocating") != std::string::npos)
    status.code = Error::Code::ResourceExhausted;

  TPUPILOT_PJRT_ARGS(Error_Destroy, destroy);
  destroy.error = error;
  api->PJRT_Error_Destroy(&destroy);
  return status;
}

void raise(const Status& status, const char* where) {
  throw Error(status.code, std::string("[") + where + "] " + std::string(name(status.code)) + ": " + status.message);
}

void raise(const Status& status, const char* where, std::span<const Shape> needed, int64_t bytes_in_use) {
  if (status.code != Error::Code::ResourceExhausted) raise(status, where);
  constexpr size_t kMost = 3;
  Status longer = status;
  while (longer.message.ends_with('.')) longer.message.pop_back();
  longer.message += "; needed for";
  for (size_t i = 0; i < std::min(needed.size(), kMost); ++i)
    longer.message += " " + needed[i].str() + " (" + std::to_string(needed[i].byte_size()) + " bytes)";
  if (needed.size() > kMost) longer.message += " and " + std::to_string(needed.size() - kMost) + " more";
  longer.message += ", with " + std::to_string(bytes_in_use) + " bytes in use";
  raise(longer, where);
}

Event::~Event() {
  if (handle_ == nullptr) return;
  TPUPILOT_PJRT_ARGS(Event_Destroy, destroy);
  destroy.event = handle_;
  take(api_, api_->PJRT_Event_Destroy(&destroy));
}

Status Event::await() const {
  if (handle_ == nullptr) return {};
  TPUPILOT_PJRT_ARGS(Event_Await, await);
  await.event = handle_;
  return take(api_, api_->PJRT_Event_Await(&await));
}

bool Event::is_ready() const {
  if (handle_ == nullptr) return true;
  TPUPILOT_PJRT_ARGS(Event_IsReady, ready);
  ready.event = handle_;
  check(api_, api_->PJRT_Event_IsReady(&ready), "is_ready");
  return ready.is_ready;
}

void Destroyer::operator()(PJRT_Buffer* handle) const noexcept {
  TPUPILOT_PJRT_ARGS(Buffer_Destroy, destroy);
  destroy.buffer = handle;
  take(api, api->PJRT_Buffer_Destroy(&destroy));
}

void Destroyer::operator()(PJRT_Executable* handle) const noexcept {
  TPUPILOT_PJRT_ARGS(Executable_Destroy, destroy);
  destroy.executable = handle;
  take(api, api->PJRT_Executable_Destroy(&destroy));
}

void Destroyer::operator()(PJRT_LoadedExecutable* handle) const noexcept {
  TPUPILOT_PJRT_ARGS(LoadedExecutable_Destroy, destroy);
  destroy.executable = handle;
  take(api, api->PJRT_LoadedExecutable_Destroy(&destroy));
}

Attributes attributes_of(const PJRT_NamedValue* values, size_t count) {
  Attributes result;
  for (size_t i = 0; i < count; ++i) {
    const PJRT_NamedValue& v = values[i];
    AttributeValue& value = result[std::string(v.name, v.name_size)];
    switch (v.type) {
      case PJRT_NamedValue_kString:
        value = std::string(v.string_value, v.value_size);
        break;
      case PJRT_NamedValue_kInt64:
        value = v.int64_value;
        break;
      case PJRT_NamedValue_kInt64List:
        value = std::vector<int64_t>(v.int64_array_value, v.int64_array_value + v.value_size);
        break;
      case PJRT_NamedValue_kFloat:
        value = v.float_value;
        break;
      case PJRT_NamedValue_kBool:
        value = v.bool_value;
        break;
    }
  }
  return result;
}

}  // namespace tpupilot::pjrt::detail
