// Compiled programs by key: in memory, then on disk, then from the compiler.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pjrt/client.h"

namespace tpupilot::cache {

class DiskStore;

struct Settings {
  std::filesystem::path folder;              // empty: nothing on disk
  uint64_t limit_bytes = uint64_t{4} << 30;  // of all entries together
  int writes_between_checks = 64;            // how often the total is compared with the limit

  // TPUPILOT_CACHE_DIR ("" or "off": no disk; unset: $XDG_CACHE_HOME/tpupilot or ~/.cache/tpupilot) and
  // TPUPILOT_CACHE_LIMIT (bytes; suffix k, M or G). Throws pjrt::Error (InvalidArgument) on a limit it cannot read.
  static Settings from_environment();
};

struct Key {
  std::array<unsigned char, 32> digest{};  // SHA-256

  std::string hex() const;
  auto operator<=>(const Key&) const = default;
};

struct Entry {
  std::shared_ptr<pjrt::Executable> executable;
  std::string note;  // the caller's, opaque
};

struct CacheCounters {
  int64_t memory_hits = 0;
  int64_t disk_hits = 0;
  int64_t misses = 0;          // compiled, or tried to
  int64_t corrupt = 0;         // entries that were damaged or foreign, and removed
  int64_t write_failures = 0;  // 0 or 1: after the first, nothing more is written
  int64_t evictions = 0;
};

// A cache that cannot write stops writing, says so once on stderr, and goes on: no operation fails for its sake. Many
// processes may share a folder. Any thread; nothing is locked while a program compiles, and two threads that want the
// same program compile it once.
class ExecutableCache {
 public:
  explicit ExecutableCache(std::shared_ptr<pjrt::Client> client, Settings settings = Settings::from_environment());
  ~ExecutableCache();

  // `note` is stored with a program that had to be compiled; what comes back holds the note it was stored with.
  // Throws what Client::compile throws.
  Entry get_or_compile(std::string_view program, const pjrt::CompileOptions& options,
                       const std::vector<pjrt::Shape>& parameters, std::string_view note = {});

  // Of everything that decides the machine code: entry format, plugin file, host CPU, options, program, parameters.
  Key key(std::string_view program, const pjrt::CompileOptions& options, std::span<const pjrt::Shape> parameters);

  // From memory or disk; nothing if it is in neither.
  std::optional<Entry> load(const Key& key, const pjrt::CompileOptions& options,
                            const std::vector<pjrt::Shape>& parameters);
  void store(const Key& key, Entry entry);

  CacheCounters counters() const;
  const Settings& settings() const { return settings_; }
  void forget_memory();  // drops the executables held in memory; the disk keeps them

 private:
  Entry find_or_compile(const Key& key, std::string_view program, const pjrt::CompileOptions& options,
                        const std::vector<pjrt::Shape>& parameters, std::string_view note);
  std::optional<Entry> from_disk(const Key& key, const pjrt::CompileOptions& options,
                                 const std::vector<pjrt::Shape>& parameters);
  void to_disk(const Key& key, const Entry& entry);

  std::shared_ptr<pjrt::Client> client_;
  Settings settings_;
  std::unique_ptr<DiskStore> disk_;  // null: nothing on disk
  std::once_flag identity_once_;
  std::string identity_;  // of plugin and host

  std::mutex mutex_;  // guards the two maps
  std::map<Key, Entry> memory_;
  std::map<Key, std::shared_future<Entry>> in_flight_;
  std::atomic<int64_t> memory_hits_{0};
  std::atomic<int64_t> misses_{0};
};

}  // namespace tpupilot::cache
