// A PJRT plugin: a shared library that exports GetPjrtApi. Loaded once per path and never unloaded, for its threads and
// the objects it hands out have no end that could be waited for.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

struct PJRT_Api;

namespace tpupilot::pjrt {

using AttributeValue = std::variant<std::string, int64_t, std::vector<int64_t>, float, bool>;
using Attributes = std::map<std::string, AttributeValue>;

struct ApiVersion {
  int major = 0;
  int minor = 0;
};

class Plugin {
 public:
  // Opens the library, checks its API version, and initialises it. A second call with the same file returns the same
  // object; a failed call may be repeated. Throws Error: NotFound (no such file), InvalidArgument (not a shared
  // library, or one without GetPjrtApi), Unimplemented (API too old), or the plugin's own.
  // Sets TF_CPP_MIN_LOG_LEVEL=3 before opening, unless it is set. Any thread.
  static const Plugin& load(const std::string& path);

  const std::string& path() const { return path_; }
  ApiVersion api_version() const { return version_; }
  // The plugin's own statement: "xla_version", "stablehlo_current_version", "stablehlo_minimum_version", ...
  const Attributes& attributes() const { return attributes_; }
  // {major, minor, patch} of an attribute such as "stablehlo_current_version"; empty if the plugin does not say.
  std::vector<int64_t> version_attribute(const std::string& name) const;

  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

 private:
  friend class Client;
  Plugin(std::string path, const PJRT_Api* api);

  std::string path_;
  const PJRT_Api* api_;
  ApiVersion version_;
  Attributes attributes_;
};

}  // namespace tpupilot::pjrt
