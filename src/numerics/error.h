// The room's one exception type: a tensor file that is missing, cut short or damaged. Names the file.
#pragma once

#include <stdexcept>

namespace tpupilot::numerics {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tpupilot::numerics
