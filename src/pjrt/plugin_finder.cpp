#include "pjrt/plugin_finder.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "pjrt/error.h"

namespace tpupilot::pjrt {
namespace {

constexpr std::array<KnownPlugin, 5> kKnown = {{
    {"xla-cpu-pjrt", "cpu", "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so", "pip install xla-cpu-pjrt",
     Hardware::Processor},
    {"fastatomstruct-xla-cpu", "", "fastatomstruct_xla_cpu/libpjrt_cpu.so", "pip install fastatomstruct-xla-cpu",
     Hardware::Processor},
    {"lammps-jax-pjrt-cpu", "", "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so",
     "pip install --no-deps lammps-jax-pjrt-cpu", Hardware::Processor},
    {"jax-cuda13-pjrt", "cuda", "jax_plugins/xla_cuda13/xla_cuda_plugin.so", "pip install jax-cuda13-pjrt",
     Hardware::NvidiaGpu},
    {"libtpu", "tpu", "libtpu/libtpu.so", "pip install libtpu", Hardware::Tpu},
}};

std::string known_names() {
  std::string text;
  for (const KnownPlugin& k : kKnown) {
    text += (text.empty() ? "" : ", ") + std::string(k.name);
    if (!k.short_name.empty()) text += " (short: " + std::string(k.short_name) + ")";
  }
  return text;
}

std::string listed(std::span<const std::string> folders) {
  std::string text;
  for (const std::string& folder : folders) text += (text.empty() ? "" : ", ") + folder;
  return text.empty() ? "no folder was given to look in" : "looked in " + text;
}

}  // namespace

std::span<const KnownPlugin> known_plugins() { return kKnown; }

std::string find_plugin(std::string_view name_or_path, std::span<const std::string> site_packages) {
  if (name_or_path.find('/') != std::string_view::npos || name_or_path.ends_with(".so")) {
    return std::string(name_or_path);
  }
  const auto known = std::find_if(kKnown.begin(), kKnown.end(), [&](const KnownPlugin& k) {
    return !name_or_path.empty() && (k.name == name_or_path || k.short_name == name_or_path);
  });
  if (known == kKnown.end()) {
    throw Error(Error::Code::NotFound, "[find_plugin] no plugin is called '" + std::string(name_or_path) +
                                           "'. Known: " + known_names() + ". `" + std::string(kKnown[0].install) +
                                           "` installs the first; or give the path of a PJRT plugin's .so file.");
  }
  for (const std::string& folder : site_packages) {
    const std::filesystem::path path = std::filesystem::path(folder) / known->file;
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path.string();
  }
  throw Error(Error::Code::NotFound, "[find_plugin] the plugin " + std::string(known->name) + " is not installed; `" +
                                         std::string(known->install) + "` installs it (" + listed(site_packages) +
                                         ").");
}

}  // namespace tpupilot::pjrt
