// The files of data/targets/ as they were when this program was built (cmake/embed.cmake).
#pragma once

#include <string_view>

namespace tpupilot::pilot {

std::string_view torch_tpu_0_2_0();
std::string_view torch_tpu_0_2_0_holes();

}  // namespace tpupilot::pilot
