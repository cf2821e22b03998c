#include "cache/note_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <sstream>

#include "cache/files.h"
#include "cache/sha256.h"

namespace tpupilot::cache {
namespace {

constexpr size_t kDigest = 64, kCheck = 16;

std::string digest_of(std::string_view key) {
  Sha256 hash;
  hash.add(key);
  return hex(hash.finish());
}

std::string check_of(const std::string& digest, std::string_view note) {
  Sha256 hash;
  hash.add_field(digest);
  hash.add_field(note);
  return hex(hash.finish()).substr(0, kCheck);
}

}  // namespace

NoteStore::NoteStore(std::filesystem::path file, uint64_t limit_bytes) : file_(std::move(file)), limit_(limit_bytes) {
  if (file_.empty()) return;
  const std::optional<std::string> bytes = read_file(file_);
  if (!bytes) return;
  bytes_ = bytes->size();
  std::istringstream lines(*bytes);
  std::string line;
  while (std::getline(lines, line)) {
    if (line.size() < kDigest + kCheck + 2) continue;
    const std::string digest = line.substr(0, kDigest);
    std::string note = line.substr(kDigest + kCheck + 2);
    if (line.substr(kDigest + 1, kCheck) == check_of(digest, note)) notes_.emplace(digest, std::move(note));
  }
}

std::optional<std::string> NoteStore::find(std::string_view key) {
  const std::string digest = digest_of(key);
  const std::lock_guard lock(mutex_);
  const auto it = notes_.find(digest);
  return it == notes_.end() ? std::nullopt : std::optional(it->second);
}

void NoteStore::keep(std::string_view key, std::string note) {
  const std::string digest = digest_of(key);
  const std::lock_guard lock(mutex_);
  const auto [it, fresh] = notes_.emplace(digest, std::move(note));
  if (fresh) append(digest, it->second);
}

void NoteStore::append(const std::string& digest, const std::string& note) {
  const std::string line = digest + " " + check_of(digest, note) + " " + note + "\n";
  if (file_.empty() || bytes_ + line.size() > limit_) return;
  std::error_code ignored;
  std::filesystem::create_directories(file_.parent_path(), ignored);
  const int fd = open(file_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return;
  if (write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size())) bytes_ += line.size();
  close(fd);
}

}  // namespace tpupilot::cache
