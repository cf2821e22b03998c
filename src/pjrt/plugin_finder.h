// Where plugins lie that were installed as Python packages, and what hardware they drive.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tpupilot::pjrt {

enum class Hardware { Processor, NvidiaGpu, Tpu };

struct KnownPlugin {
  std::string_view name;        // also the name of its Python package
  std::string_view short_name;  // "cpu", "cuda", "tpu"; "" if it has none
  std::string_view file;        // below a site-packages folder
  std::string_view install;     // what to type to install it
  Hardware hardware;
};

std::span<const KnownPlugin> known_plugins();

// A known name or short name is looked for in each folder in turn; anything with a '/' or ending in ".so" is a path and
// comes back unchanged. Throws Error (NotFound) that lists the known names, or says what to install. Opens nothing.
std::string find_plugin(std::string_view name_or_path, std::span<const std::string> site_packages);

// Throws Error (FailedPrecondition) in one sentence if the plugin of this path is a known one (told by the name of its
// file) and the machine has no device for it. To be called before the plugin is opened, where it is to run programs:
// without a TPU, libtpu asks the network for one for minutes. A compiler-only use needs no device. `root` is for tests.
void require_hardware(std::string_view plugin, const std::filesystem::path& root = "/");

// What a user may do about a client of this plugin that cannot be made; "" if it is not a known one, or the CPU's.
std::string hardware_advice(std::string_view plugin);

}  // namespace tpupilot::pjrt
