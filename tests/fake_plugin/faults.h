// What the fake plugin is told to do wrong, by environment variables that are read anew at every call:
//   FAKE_PJRT_MAJOR, FAKE_PJRT_MINOR   the API version to report
//   FAKE_PJRT_STRUCT_SIZE              the size of the function table to report
//   FAKE_PJRT_NULL_SLOT                functions, with commas between, whose slot in the table is null
//   FAKE_PJRT_UNIMPLEMENTED            functions, with commas between, that return UNIMPLEMENTED
//   FAKE_PJRT_FAIL                     function:n[:code]: its n-th call since this was set fails (code 8)
//   FAKE_PJRT_PARTIAL                  a failing Execute has filled its first output
//   FAKE_PJRT_ASYNC_ERROR              events of outputs carry this code (1: INTERNAL)
//   FAKE_PJRT_NO_LIMIT                 devices do not say how much memory they have
//   FAKE_PJRT_UNKNOWN_OPTION           Compile refuses options that contain this text
//   FAKE_PJRT_UNKNOWN_CLIENT_OPTION    Client_Create refuses an option of this name
// Uploads are copied unless zero copy is asked for and the address is a multiple of 64; Execute's outputs are zeros.
#pragma once

#include <pjrt_c_api.h>

#include <atomic>
#include <string>

namespace fake {

struct Live {
  std::atomic<long> buffers{0};
  std::atomic<long> events{0};
  std::atomic<long> errors{0};
  std::atomic<long> executables{0};
};
extern Live live;

const char* variable(const char* name);  // null if unset
bool listed(const char* variable_name, const std::string& item);
PJRT_Error* error(PJRT_Error_Code code, const std::string& message);

// The fault that is set for this call of `function`, or null. Counts the call.
PJRT_Error* fault(const std::string& function);
long calls(const std::string& function);

}  // namespace fake
