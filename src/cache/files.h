// Small file helpers of this room. None throws on an I/O error.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace tpupilot::cache {

// The whole file; nothing, with errno set, if it cannot be read. `touch` marks it as used now.
std::optional<std::string> read_file(const std::filesystem::path& path, bool touch = false);

// Writes to a temporary name in the same folder, then renames: readers see the old file, the new one, or none. Makes
// missing folders, for this user alone. Returns 0 or an errno; nothing is left behind on failure.
int replace_file(const std::filesystem::path& path, std::string_view bytes);

inline constexpr std::string_view kTemporaryPrefix = ".writing-";

}  // namespace tpupilot::cache
