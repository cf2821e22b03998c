// The pilot's errors are those of the evidence room: a sentence and the exit code that goes with it.
#pragma once

#include "evidence/errors.h"

namespace tpupilot::pilot {

using evidence::Error;
using evidence::Exit;
using evidence::Interrupted;

}  // namespace tpupilot::pilot
