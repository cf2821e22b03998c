// Small facts by key that are cheaper to read than to find out again, kept over processes in one append-only file. A
// line of it is
//   <SHA-256 of the key, hex> <first 16 hex digits of the SHA-256 of key digest and note> <note>
// Lines that are torn or damaged are passed over. Many processes may append at once: a line is one write.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace tpupilot::cache {

class NoteStore {
 public:
  // Reads what is there. An empty path keeps notes in memory only. Nothing here throws on an I/O error: a store that
  // cannot write just does not keep.
  explicit NoteStore(std::filesystem::path file, uint64_t limit_bytes = uint64_t{16} << 20);

  std::optional<std::string> find(std::string_view key);
  // `note` may hold no line break. A key that is known keeps its note.
  void keep(std::string_view key, std::string note);

 private:
  void append(const std::string& digest, const std::string& note);

  std::filesystem::path file_;
  uint64_t limit_;
  std::mutex mutex_;
  uint64_t bytes_ = 0;
  std::unordered_map<std::string, std::string> notes_;  // by the key's digest
};

}  // namespace tpupilot::cache
