#include "faults.h"

#include <cstdlib>
#include <map>
#include <mutex>

namespace fake {

Live live;

namespace {

struct FakeError : PJRT_Error {
  PJRT_Error_Code code;
  std::string message;
};

struct Calls {
  std::mutex mutex;
  std::map<std::string, long> total;
  std::string fault;  // the FAKE_PJRT_FAIL for which `since` counts
  long since = 0;
};

Calls& all_calls() {
  static Calls c;  // goes when the library is closed
  return c;
}

}  // namespace

const char* variable(const char* name) { return std::getenv(name); }

bool listed(const char* variable_name, const std::string& item) {
  const char* list = variable(variable_name);
  return list != nullptr && ("," + std::string(list) + ",").find("," + item + ",") != std::string::npos;
}

PJRT_Error* error(PJRT_Error_Code code, const std::string& message) {
  auto* e = new FakeError;
  e->vtable = nullptr;
  e->code = code;
  e->message = message;
  ++live.errors;
  return e;
}

PJRT_Error* fault(const std::string& function) {
  if (listed("FAKE_PJRT_UNIMPLEMENTED", function)) {
    return error(PJRT_Error_Code_UNIMPLEMENTED, function + " is not here");
  }
  Calls& c = all_calls();
  const std::lock_guard lock(c.mutex);
  ++c.total[function];
  const char* set = variable("FAKE_PJRT_FAIL");
  const std::string wanted = set == nullptr ? "" : set;
  if (wanted != c.fault) {
    c.fault = wanted;
    c.since = 0;
  }
  if (!wanted.starts_with(function + ":")) return nullptr;
  const std::string rest = wanted.substr(function.size() + 1);
  if (++c.since != std::atol(rest.c_str())) return nullptr;
  const size_t colon = rest.find(':');
  const int code =
      colon == std::string::npos ? PJRT_Error_Code_RESOURCE_EXHAUSTED : std::atoi(rest.c_str() + colon + 1);
  return error(static_cast<PJRT_Error_Code>(code), "fault in " + function);
}

long calls(const std::string& function) {
  Calls& c = all_calls();
  const std::lock_guard lock(c.mutex);
  return c.total[function];
}

}  // namespace fake

extern "C" {

__attribute__((visibility("default"))) long fake_pjrt_live(const char* kind) {
  const std::string k = kind;
  if (k == "buffers") return fake::live.buffers;
  if (k == "events") return fake::live.events;
  if (k == "errors") return fake::live.errors;
  if (k == "executables") return fake::live.executables;
  return -1;
}

__attribute__((visibility("default"))) long fake_pjrt_calls(const char* function) { return fake::calls(function); }
}

void fake_error_destroy(PJRT_Error_Destroy_Args* args) {
  delete static_cast<fake::FakeError*>(args->error);
  --fake::live.errors;
}

void fake_error_message(PJRT_Error_Message_Args* args) {
  const auto* e = static_cast<const fake::FakeError*>(args->error);
  args->message = e->message.data();
  args->message_size = e->message.size();
}

PJRT_Error* fake_error_get_code(PJRT_Error_GetCode_Args* args) {
  args->code = static_cast<const fake::FakeError*>(args->error)->code;
  return nullptr;
}
