// What machine code depends on besides the program and its options: the plugin file and the CPU it was made for.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "cache/sha256.h"

namespace tpupilot::cache {

// Architecture and instruction set extensions, as text. XLA compiles for the CPU it runs on.
std::string host_cpu();

// SHA-256 of the plugin file. Hashing one takes half a second, so the result is kept below `folder`, with the file's
// path, inode, size and time of change, and used as long as these are the same. Nothing if the file cannot be read.
std::optional<Digest> plugin_digest(const std::string& path, const std::filesystem::path& folder);

}  // namespace tpupilot::cache
