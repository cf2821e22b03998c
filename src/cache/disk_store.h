// Inside this room: entries as files. An entry is
//   8 bytes   magic "TPUPEXE" and the format's number
//   32 bytes  the key it was stored under
//   8, 8      lengths of note and executable, little-endian
//   32 bytes  SHA-256 of note and executable
//   ...       note, executable
// in <folder>/executables/<first two hex digits of the key>/<key>. Format 1; another layout is another number.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "cache/executable_cache.h"

namespace tpupilot::cache {

struct StoredEntry {
  std::string note;
  std::string executable;
};

// Many processes may use one folder. Any thread. Throws nothing on I/O errors.
class DiskStore {
 public:
  explicit DiskStore(const Settings& settings);

  // Nothing if there is none, or none that is whole: that one is removed and counted.
  std::optional<StoredEntry> read(const Key& key);
  void write(const Key& key, std::string_view note, std::string_view executable);
  void remove_corrupt(const Key& key);  // whole, but the plugin refuses it

  // Stops using the folder, says so once on stderr, and counts a write failure.
  void stop(const std::string& why);
  bool stopped() const { return stopped_; }
  const std::filesystem::path& folder() const { return folder_; }

  std::atomic<int64_t> hits{0};
  std::atomic<int64_t> corrupt{0};
  std::atomic<int64_t> write_failures{0};
  std::atomic<int64_t> evictions{0};

 private:
  std::filesystem::path file_of(const Key& key) const;
  void evict();

  std::filesystem::path folder_;
  uint64_t limit_;
  uint64_t period_;
  std::atomic<uint64_t> writes_;
  std::atomic<bool> stopped_{false};  // neither read nor written
  std::atomic<bool> read_only_{false};
  std::mutex evict_mutex_;  // one eviction at a time in this process
};

}  // namespace tpupilot::cache
