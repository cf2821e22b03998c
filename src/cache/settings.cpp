#include <cstdlib>
#include <limits>

#include "cache/executable_cache.h"

namespace tpupilot::cache {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

uint64_t parse_bytes(const std::string& text) {
  size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
  const std::string suffix = text.substr(digits);
  int shift = -1;
  if (suffix.empty()) shift = 0;
  if (suffix == "k" || suffix == "K") shift = 10;
  if (suffix == "m" || suffix == "M") shift = 20;
  if (suffix == "g" || suffix == "G") shift = 30;
  uint64_t value = 0;
  bool fits = digits > 0 && shift >= 0;
  for (size_t i = 0; fits && i < digits; ++i) {
    fits = !__builtin_mul_overflow(value, uint64_t{10}, &value) &&
           !__builtin_add_overflow(value, static_cast<uint64_t>(text[i] - '0'), &value);
  }
  if (!fits || (shift > 0 && value > (std::numeric_limits<uint64_t>::max() >> shift))) {
    throw pjrt::Error(pjrt::Error::Code::InvalidArgument,
                      "[Settings::from_environment] TPUPILOT_CACHE_LIMIT is '" + text +
                          "'; give a number of bytes, with k, M or G after it if you like: 500M");
  }
  return value << shift;
}

}  // namespace

Settings Settings::from_environment() {
  Settings settings;
  if (const auto limit = variable("TPUPILOT_CACHE_LIMIT")) settings.limit_bytes = parse_bytes(*limit);
  if (const auto folder = variable("TPUPILOT_CACHE_DIR")) {
    if (!folder->empty() && *folder != "off") settings.folder = *folder;
    return settings;
  }
  // As the XDG base directory specification has it: a relative path there is not valid.
  if (const auto base = variable("XDG_CACHE_HOME"); base && base->starts_with('/')) {
    settings.folder = std::filesystem::path(*base) / "tpupilot";
  } else if (const auto home = variable("HOME"); home && !home->empty()) {
    settings.folder = std::filesystem::path(*home) / ".cache" / "tpupilot";
  }
  return settings;
}

}  // namespace tpupilot::cache
