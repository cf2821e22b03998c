// Whether this machine has what a known plugin drives, seen from outside: device files and the PCI bus.
#include <algorithm>
#include <fstream>

#include "pjrt/error.h"
#include "pjrt/plugin_finder.h"

namespace tpupilot::pjrt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kElse = "; TPUPILOT_PLUGIN=cpu rehearses on this machine's processor";

// The names of a folder's entries; none if it cannot be read.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    names.push_back(it->path().filename().string());
  }
  return names;
}

bool numbered(std::string_view name, std::string_view prefix) {  // accel0, accel1, ...
  return name.size() > prefix.size() && name.starts_with(prefix) &&
         name.find_first_not_of("0123456789", prefix.size()) == std::string_view::npos;
}

bool has_numbered(const fs::path& folder, std::string_view prefix) {
  const auto names = names_in(folder);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return numbered(name, prefix); });
}

bool on_pci_bus(const fs::path& root, std::string_view vendor) {
  const fs::path bus = root / "sys/bus/pci/devices";
  const auto names = names_in(bus);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    std::string found;
    std::ifstream(bus / name / "vendor") >> found;
    return found == vendor;
  });
}

// Chips are /dev/accel<n> (the kernel's other accelerators lie in a folder /dev/accel), or on newer generations
// /dev/vfio/<n>, which any device may be: then the PCI bus must show one of Google's.
bool has_tpu(const fs::path& root) {
  if (has_numbered(root / "dev", "accel")) return true;
  return has_numbered(root / "dev/vfio", "") && on_pci_bus(root, "0x1ae0");
}

// /dev/nvmap: a GPU on the processor's own chip; /dev/dxg: that of a Windows host, in its Linux subsystem.
bool has_nvidia_gpu(const fs::path& root) {
  std::error_code ignored;
  return has_numbered(root / "dev", "nvidia") || fs::exists(root / "dev/nvmap", ignored) ||
         fs::exists(root / "dev/dxg", ignored);
}

const KnownPlugin* known_by_file(std::string_view plugin) {
  const std::string name = fs::path(plugin).filename().string();
  const auto all = known_plugins();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const KnownPlugin& k) { return fs::path(k.file).filename() == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

void require_hardware(std::string_view plugin, const fs::path& root) {
  const KnownPlugin* known = known_by_file(plugin);
  if (known == nullptr) return;
  std::string missing;
  if (known->hardware == Hardware::Tpu && !has_tpu(root)) missing = "a TPU (no /dev/accel0 or /dev/vfio/0)";
  if (known->hardware == Hardware::NvidiaGpu && !has_nvidia_gpu(root)) {
    missing = "an NVIDIA GPU with its driver (no /dev/nvidia0)";
  }
  if (missing.empty()) return;
  throw Error(Error::Code::FailedPrecondition,
              "[require_hardware] the plugin " + std::string(known->name) + " needs " + missing +
                  ", which this machine does not have: run on one that does" + std::string(kElse) + ".");
}

std::string hardware_advice(std::string_view plugin) {
  const KnownPlugin* known = known_by_file(plugin);
  const Hardware hardware = known == nullptr ? Hardware::Processor : known->hardware;
  switch (hardware) {
    case Hardware::NvidiaGpu:
      return " The plugin needs an NVIDIA GPU that `nvidia-smi` lists, a driver for CUDA 13, and NVIDIA's libraries "
             "(`pip install 'jax-cuda13-plugin[with-cuda]'` brings them)" +
             std::string(kElse) + ".";
    case Hardware::Tpu:
      return " The plugin needs a TPU that no other process holds" + std::string(kElse) + ".";
    case Hardware::Processor:
      break;
  }
  return "";
}

}  // namespace tpupilot::pjrt
