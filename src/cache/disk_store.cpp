#include "cache/disk_store.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "cache/files.h"
#include "cache/sha256.h"

namespace tpupilot::cache {
namespace {

constexpr std::array<char, 8> kMagic = {'T', 'P', 'U', 'P', 'E', 'X', 'E', 1};
constexpr size_t kKeyAt = kMagic.size();
constexpr size_t kLengthsAt = kKeyAt + 32;
constexpr size_t kDigestAt = kLengthsAt + 16;
constexpr size_t kHeader = kDigestAt + 32;

void put_length(std::string& out, uint64_t value) {
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t length_at(std::string_view bytes, size_t at) {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return value;
}

Digest digest_of(std::string_view note, std::string_view executable) {
  Sha256 hash;
  hash.add_field(note);
  hash.add_field(executable);
  return hash.finish();
}

std::string encode(const Key& key, std::string_view note, std::string_view executable) {
  const Digest digest = digest_of(note, executable);
  std::string bytes;
  bytes.reserve(kHeader + note.size() + executable.size());
  bytes.append(kMagic.data(), kMagic.size());
  bytes.append(reinterpret_cast<const char*>(key.digest.data()), key.digest.size());
  put_length(bytes, note.size());
  put_length(bytes, executable.size());
  bytes.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  bytes.append(note).append(executable);
  return bytes;
}

std::optional<StoredEntry> decode(const Key& key, std::string_view bytes) {
  if (bytes.size() < kHeader || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0 ||
      std::memcmp(bytes.data() + kKeyAt, key.digest.data(), key.digest.size()) != 0) {
    return std::nullopt;
  }
  const uint64_t note_size = length_at(bytes, kLengthsAt);
  const uint64_t executable_size = length_at(bytes, kLengthsAt + 8);
  const std::string_view body = bytes.substr(kHeader);
  if (note_size > body.size() || executable_size != body.size() - note_size) return std::nullopt;
  const std::string_view note = body.substr(0, note_size);
  const std::string_view executable = body.substr(note_size);
  const Digest digest = digest_of(note, executable);
  if (std::memcmp(bytes.data() + kDigestAt, digest.data(), digest.size()) != 0) return std::nullopt;
  return StoredEntry{std::string(note), std::string(executable)};
}

}  // namespace

DiskStore::DiskStore(const Settings& settings)
    : folder_(settings.folder),
      limit_(settings.limit_bytes),
      period_(static_cast<uint64_t>(std::max(settings.writes_between_checks, 1))),
      // A random start: many short processes, none of which writes a whole period, still check now and then.
      writes_(std::random_device{}() % period_) {}

std::filesystem::path DiskStore::file_of(const Key& key) const {
  const std::string name = key.hex();
  return folder_ / "executables" / name.substr(0, 2) / name;
}

std::optional<StoredEntry> DiskStore::read(const Key& key) {
  if (stopped_) return std::nullopt;
  const auto bytes = read_file(file_of(key), /*touch=*/true);
  if (!bytes) return std::nullopt;
  auto entry = decode(key, *bytes);
  if (!entry) remove_corrupt(key);
  return entry;
}

void DiskStore::remove_corrupt(const Key& key) {
  corrupt.fetch_add(1, std::memory_order_relaxed);
  std::error_code ignored;
  std::filesystem::remove(file_of(key), ignored);
}

void DiskStore::write(const Key& key, std::string_view note, std::string_view executable) {
  if (stopped_ || read_only_) return;
  const std::string bytes = encode(key, note, executable);
  if (bytes.size() > limit_) return;  // it would be evicted at once
  if (const int failed = replace_file(file_of(key), bytes); failed != 0) {
    if (read_only_.exchange(true)) return;
    write_failures.fetch_add(1, std::memory_order_relaxed);
    std::fprintf(stderr,
                 "tpupilot: cannot write %zu bytes to the executable cache in %s: %s. Nothing more is stored by this "
                 "process; free space there, or name another folder in TPUPILOT_CACHE_DIR (\"off\": none).\n",
                 bytes.size(), folder_.c_str(), std::strerror(failed));
    return;
  }
  if ((writes_.fetch_add(1) + 1) % period_ == 0) evict();
}

void DiskStore::stop(const std::string& why) {
  if (stopped_.exchange(true)) return;
  write_failures.fetch_add(1, std::memory_order_relaxed);
  std::fprintf(stderr, "tpupilot: the executable cache in %s is not used by this process: %s\n", folder_.c_str(),
               why.c_str());
}

// Oldest use first, down to nine tenths of the limit. Another process may do the same: a file that is gone is no error.
void DiskStore::evict() {
  namespace fs = std::filesystem;
  const std::unique_lock lock(evict_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;

  struct File {
    fs::file_time_type used;
    uintmax_t bytes;
    fs::path path;
  };
  std::vector<File> files;
  uintmax_t total = 0;
  const auto stale = fs::file_time_type::clock::now() - std::chrono::hours(1);
  std::error_code failed;
  for (fs::recursive_directory_iterator it(folder_ / "executables", failed), end; !failed && it != end;
       it.increment(failed)) {
    std::error_code gone;
    if (!it->is_regular_file(gone) || gone) continue;
    const File file{it->last_write_time(gone), it->file_size(gone), it->path()};
    if (gone) continue;
    if (file.path.filename().string().starts_with(kTemporaryPrefix)) {
      if (file.used < stale) fs::remove(file.path, gone);  // its writer was killed
      continue;
    }
    total += file.bytes;
    files.push_back(file);
  }
  if (total <= limit_) return;
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.used < b.used; });
  for (const File& file : files) {
    if (total <= limit_ / 10 * 9) break;
    std::error_code ignored;
    if (fs::remove(file.path, ignored)) evictions.fetch_add(1, std::memory_order_relaxed);
    total -= file.bytes;
  }
}

}  // namespace tpupilot::cache
