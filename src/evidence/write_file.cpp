#include "evidence/write_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "evidence/errors.h"

namespace tpupilot::evidence {

namespace fs = std::filesystem;

namespace {

int write_all(int descriptor, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t wrote = ::write(descriptor, text.data() + at, text.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno;
    at += static_cast<size_t>(wrote);
  }
  return ::fsync(descriptor) == 0 ? 0 : errno;
}

bool is_for_want_of_room(int code) { return code == ENOSPC || code == EDQUOT || code == EFBIG; }

}  // namespace

void cannot_write(const fs::path& file, int code) {
  std::string text = "[write] cannot write " + file.string() + ": " + std::strerror(code);
  if (is_for_want_of_room(code)) {
    std::error_code unknown;
    const auto room = fs::space(file.parent_path(), unknown);
    if (!unknown) text += " (" + std::to_string(room.available) + " bytes are free there)";
    text += ". Free space there (or raise the limit), and give the same command";
  } else {
    text += ". Put that right, and give the same command";
  }
  throw Error(text + ": what had ended is kept and is not repeated.");
}

void write_file(const fs::path& file, const std::string& text) {
  const fs::path temporary = file.string() + ".tmp";
  const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) cannot_write(file, errno);
  int failed = write_all(descriptor, text);
  if (::close(descriptor) != 0 && failed == 0) failed = errno;
  if (failed == 0 && ::rename(temporary.c_str(), file.c_str()) != 0) failed = errno;
  if (failed == 0) return;
  ::unlink(temporary.c_str());
  cannot_write(file, failed);
}

}  // namespace tpupilot::evidence
