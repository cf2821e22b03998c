#include "cache/identity.h"

#include <sys/stat.h>
#include <sys/utsname.h>

#include <fstream>
#include <set>
#include <string_view>

#include "cache/files.h"

namespace tpupilot::cache {
namespace {

constexpr std::string_view kPrefix = "tpupilot plugin digest 1\n";

// "device inode size seconds.nanoseconds path": changes whenever the file does.
std::optional<std::string> stamp(const std::string& path) {
  std::error_code failed;
  const std::filesystem::path file = std::filesystem::canonical(path, failed);
  struct stat info{};
  if (failed || stat(file.c_str(), &info) != 0) return std::nullopt;
  return std::to_string(info.st_dev) + " " + std::to_string(info.st_ino) + " " + std::to_string(info.st_size) + " " +
         std::to_string(info.st_mtim.tv_sec) + "." + std::to_string(info.st_mtim.tv_nsec) + " " + file.string();
}

std::optional<Digest> parse_hex(std::string_view text) {
  Digest digest{};
  if (text.size() != 2 * digest.size()) return std::nullopt;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t value = std::string_view("0123456789abcdef").find(text[i]);
    if (value == std::string_view::npos) return std::nullopt;
    digest[i / 2] = static_cast<unsigned char>(digest[i / 2] << 4 | value);
  }
  return digest;
}

}  // namespace

std::string host_cpu() {
  utsname system{};
  uname(&system);
  std::string text = std::string(system.machine) + "\n";
  // One block per core, all alike but for their numbers and clock: each line once, of the keys that choose code.
  static const std::set<std::string, std::less<>> kKeys = {"vendor_id", "cpu family", "model",           "model name",
                                                           "flags",     "Features",   "CPU implementer", "CPU part"};
  std::ifstream info("/proc/cpuinfo");
  std::set<std::string> lines;
  for (std::string line; std::getline(info, line);) {
    const size_t end = line.find_last_not_of(" \t", line.find(':') == std::string::npos ? 0 : line.find(':') - 1);
    if (end != std::string::npos && kKeys.contains(std::string_view(line).substr(0, end + 1))) lines.insert(line);
  }
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::optional<Digest> plugin_digest(const std::string& path, const std::filesystem::path& folder) {
  const auto before = stamp(path);
  if (!before) return std::nullopt;
  Sha256 name;
  name.add(path);
  const std::filesystem::path note = folder / "plugins" / hex(name.finish());
  const std::string head = std::string(kPrefix) + *before + "\n";
  if (const auto known = read_file(note); known && known->starts_with(head)) {
    if (const auto digest = parse_hex(std::string_view(*known).substr(head.size()))) return digest;
  }
  const auto digest = sha256_of_file(path);
  // A file that changed while it was read is hashed again by the next process; a folder that cannot be written is
  // noticed when the first entry is.
  if (digest && stamp(path) == before) replace_file(note, head + hex(*digest));
  return digest;
}

}  // namespace tpupilot::cache
