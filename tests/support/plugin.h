// The CPU plugin that the C++ tests run on: the environment's TPUPILOT_TEST_PLUGIN (a path), else the one of the build.
#pragma once

#include <cstdlib>
#include <string>

namespace tpupilot::test {

inline std::string cpu_plugin() {
  const char* other = std::getenv("TPUPILOT_TEST_PLUGIN");
  return other != nullptr && *other != '\0' ? other : TPUPILOT_TEST_PLUGIN;
}

}  // namespace tpupilot::test
