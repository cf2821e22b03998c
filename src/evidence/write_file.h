// Whole files, written so that a reader never sees a part of one, and the sentence for a file that cannot be written.
#pragma once

#include <filesystem>
#include <string>

namespace tpupilot::evidence {

// Temporary file beside it, fsync, rename. If that fails, the former file is as it was and nothing is left behind.
// Error (Usage) as cannot_write.
void write_file(const std::filesystem::path& file, const std::string& text);

// Error (Usage): which file, why (`code` is an errno), how much room there is, what to do.
[[noreturn]] void cannot_write(const std::filesystem::path& file, int code);

}  // namespace tpupilot::evidence
