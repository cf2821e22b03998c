// Where plugins lie that were installed as Python packages.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tpupilot::pjrt {

struct KnownPlugin {
  std::string_view name;     // also the name of its Python package
  std::string_view file;     // below a site-packages folder
  std::string_view install;  // what to type to install it
};

std::span<const KnownPlugin> known_plugins();

// A known name ("cpu" is short for "xla-cpu-pjrt") is looked for in each folder in turn; anything with a '/' or ending
// in ".so" is a path and comes back unchanged. Throws Error (NotFound) that lists the known names, or says what to
// install. Opens nothing.
std::string find_plugin(std::string_view name_or_path, std::span<const std::string> site_packages);

}  // namespace tpupilot::pjrt
