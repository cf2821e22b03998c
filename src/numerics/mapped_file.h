// A file's bytes in the address space, read-only. Pages come in and go out by window, so that a pass over a large file
// keeps little of it mapped.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace tpupilot::numerics {

class MappedFile {
 public:
  static constexpr size_t kWindow = size_t{2} << 20;  // bytes; a huge page of the page cache is mapped as one

  explicit MappedFile(const std::filesystem::path& file);  // Error that names the file if it cannot be read
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  MappedFile& operator=(MappedFile&&) = delete;

  std::string_view bytes() const { return {data_, size_}; }
  const std::string& name() const { return name_; }

  // Maps the pages of [begin, end). Error if the file has meanwhile become shorter or the disk fails: without this, to
  // touch such a page would be a SIGBUS. (A kernel older than 5.14 cannot tell; pages then come in when touched.)
  void load(size_t begin, size_t end) const;
  // Unmaps the windows that lie wholly in [begin, end); to touch one again maps it again.
  void release(size_t begin, size_t end) const;

 private:
  std::string name_;
  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tpupilot::numerics
