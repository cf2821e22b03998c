// The one exception type of this room.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace tpupilot::pjrt {

// what() reads "[function] what is wrong, with the numbers, and what to do next"; a plugin's own text is kept whole.
class Error : public std::runtime_error {
 public:
  // The numbers are absl's, as in PJRT_Error_Code.
  enum class Code : int {
    Ok = 0,
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
  };

  Error(Code code, const std::string& text) : std::runtime_error(text), code_(code) {}
  Code code() const noexcept { return code_; }

 private:
  Code code_;
};

std::string_view name(Error::Code code);  // "RESOURCE_EXHAUSTED"

}  // namespace tpupilot::pjrt
