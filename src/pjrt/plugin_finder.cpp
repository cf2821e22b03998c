#include "pjrt/plugin_finder.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "pjrt/error.h"

namespace tpupilot::pjrt {
namespace {

constexpr std::array<KnownPlugin, 3> kKnown = {{
    {"xla-cpu-pjrt", "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so", "pip install xla-cpu-pjrt"},
    {"fastatomstruct-xla-cpu", "fastatomstruct_xla_cpu/libpjrt_cpu.so", "pip install fastatomstruct-xla-cpu"},
    {"lammps-jax-pjrt-cpu", "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so",
     "pip install --no-deps lammps-jax-pjrt-cpu"},
}};

}  // namespace

std::span<const KnownPlugin> known_plugins() { return kKnown; }

std::string find_plugin(std::string_view name_or_path, std::span<const std::string> site_packages) {
  if (name_or_path.find('/') != std::string_view::npos || name_or_path.ends_with(".so")) {
    return std::string(name_or_path);
  }
  const std::string_view name = name_or_path == "cpu" ? kKnown[0].name : name_or_path;
  const auto known = std::find_if(kKnown.begin(), kKnown.end(), [&](const auto& k) { return k.name == name; });
  if (known == kKnown.end()) {
    std::string text = "[find_plugin] no plugin is called '" + std::string(name_or_path) + "'. Known: cpu";
    for (const KnownPlugin& k : kKnown) text += ", " + std::string(k.name);
    throw Error(Error::Code::NotFound, text + " (`" + std::string(kKnown[0].install) +
                                           "` installs the first), or give the path of a PJRT plugin's .so file.");
  }
  std::string looked;
  for (const std::string& folder : site_packages) {
    const std::filesystem::path path = std::filesystem::path(folder) / known->file;
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path.string();
    looked += (looked.empty() ? "" : ", ") + folder;
  }
  throw Error(Error::Code::NotFound, "[find_plugin] plugin " + std::string(name) + " is not installed in " +
                                         (looked.empty() ? "any folder: none was given to look in" : looked) + ". `" +
                                         std::string(known->install) + "` installs it.");
}

}  // namespace tpupilot::pjrt
