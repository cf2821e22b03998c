#include "pilot/revision.h"

#include <array>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

namespace tpupilot::pilot {

namespace {

// Output of `git -C folder arguments`, without the last newline; nothing if it failed.
std::optional<std::string> git(const std::filesystem::path& folder, const std::string& arguments) {
  std::string quoted = "'";
  for (char c : folder.string()) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  const std::string command = "git -C " + quoted + "' " + arguments + " 2>/dev/null";
  FILE* pipe = popen(command.c_str(), "r");  // NOLINT(bugprone-command-processor): the folder is quoted
  if (!pipe) return std::nullopt;
  std::string text;
  std::array<char, 4096> buffer;
  while (size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) text.append(buffer.data(), n);
  if (pclose(pipe) != 0) return std::nullopt;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

nlohmann::json vcs_revision(const std::filesystem::path& folder) {
  const auto commit = git(folder, "rev-parse HEAD");
  if (!commit) return nullptr;
  const auto changes = git(folder, "status --porcelain -- .");
  return {{"vcs", "git"}, {"commit", *commit}, {"dirty", !changes || !changes->empty()}};
}

}  // namespace tpupilot::pilot
