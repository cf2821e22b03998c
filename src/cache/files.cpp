#include "cache/files.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <utility>

namespace tpupilot::cache {
namespace {

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return descriptor_; }
  int close() { return ::close(std::exchange(descriptor_, -1)); }

 private:
  int descriptor_;
};

// A write beyond the process's file size limit sends SIGXFSZ, which ends the process unless blocked. While blocked, the
// write fails with EFBIG like any other; the signal that is then pending for this thread is taken off again.
class NoFileSizeSignal {
 public:
  NoFileSizeSignal() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGXFSZ);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~NoFileSizeSignal() {
    const int kept = errno;
    constexpr timespec kNow{};
    while (!was_pending_ && sigtimedwait(&signals_, nullptr, &kNow) == SIGXFSZ) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = kept;
  }
  NoFileSizeSignal(const NoFileSizeSignal&) = delete;
  NoFileSizeSignal& operator=(const NoFileSizeSignal&) = delete;

 private:
  sigset_t signals_;
  sigset_t before_;
  bool was_pending_;
};

int write_all(int file, std::string_view bytes) {
  const NoFileSizeSignal guard;
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

int make_folders(const std::filesystem::path& folder) {
  if (folder.empty() || mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) return 0;
  if (errno != ENOENT) return errno;
  if (folder.parent_path() == folder) return ENOENT;
  if (const int failed = make_folders(folder.parent_path()); failed != 0) return failed;
  return mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST ? 0 : errno;
}

}  // namespace

std::optional<std::string> read_file(const std::filesystem::path& path, bool touch) {
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return std::nullopt;
  struct stat info{};
  if (fstat(file.get(), &info) != 0) return std::nullopt;
  if (!S_ISREG(info.st_mode)) {
    errno = EISDIR;
    return std::nullopt;
  }
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = read(file.get(), bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;  // it shrank meanwhile; what is missing, the checksum will miss
    have += static_cast<size_t>(got);
  }
  bytes.resize(have);
  // The time of access is often not kept by the file system, so the time of change stands for it. A read-only folder
  // refuses: then nobody evicts either.
  if (touch) futimens(file.get(), nullptr);
  return bytes;
}

int replace_file(const std::filesystem::path& path, std::string_view bytes) {
  static std::atomic<uint64_t> serial{0};
  if (const int failed = make_folders(path.parent_path()); failed != 0) return failed;
  const std::filesystem::path temporary =
      path.parent_path() / (std::string(kTemporaryPrefix) + path.filename().string() + "-" + std::to_string(getpid()) +
                            "-" + std::to_string(serial.fetch_add(1)));
  File file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.get() < 0) return errno;
  int failed = write_all(file.get(), bytes);
  if (file.close() != 0 && failed == 0) failed = errno;
  if (failed == 0 && rename(temporary.c_str(), path.c_str()) != 0) failed = errno;
  if (failed != 0) unlink(temporary.c_str());
  return failed;
}

}  // namespace tpupilot::cache
