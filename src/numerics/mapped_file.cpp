#include "numerics/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "numerics/error.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace tpupilot::numerics {

namespace {

size_t page_size() {
  static const auto size = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& file) : name_(file.filename().string()) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status{};
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    if (descriptor >= 0) ::close(descriptor);
    throw Error(name_ + " cannot be read");
  }
  size_ = static_cast<size_t>(status.st_size);
  void* mapped = size_ == 0 ? nullptr : ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor, 0);
  const std::string why = std::strerror(errno);
  ::close(descriptor);
  if (mapped == MAP_FAILED) throw Error(name_ + " cannot be mapped: " + why);
  data_ = static_cast<char*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : name_(std::move(other.name_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

void MappedFile::load(size_t begin, size_t end) const {
  begin -= begin % page_size();
  end = std::min(end, size_);
  if (begin >= end) return;
  while (::madvise(data_ + begin, end - begin, MADV_POPULATE_READ) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno == EINVAL || errno == ENOSYS) return;
    throw Error(name_ + " can no longer be read at bytes " + std::to_string(begin) + " to " + std::to_string(end) +
                " (" + std::strerror(errno) + "): it was cut short after it was opened, or the disk fails");
  }
}

void MappedFile::release(size_t begin, size_t end) const {
  begin = (begin + kWindow - 1) / kWindow * kWindow;
  end -= end % kWindow;
  if (begin < end && end <= size_) ::madvise(data_ + begin, end - begin, MADV_DONTNEED);
}

}  // namespace tpupilot::numerics
