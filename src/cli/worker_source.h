// python/tpupilot/worker.py as it was when this program was built (cmake/embed.cmake).
#pragma once

#include <string_view>

namespace tpupilot::cli {

std::string_view worker_source();

}  // namespace tpupilot::cli
