#include "pjrt/host_memory.h"

#include <cstdlib>
#include <limits>
#include <string_view>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace tpupilot::pjrt {

#ifdef __GLIBC__
namespace {

bool set_by_user() {
  const char* tunables = std::getenv("GLIBC_TUNABLES");
  return std::getenv("MALLOC_TRIM_THRESHOLD_") != nullptr || std::getenv("MALLOC_MMAP_THRESHOLD_") != nullptr ||
         (tunables != nullptr && std::string_view(tunables).find("glibc.malloc.") != std::string_view::npos);
}

}  // namespace

void keep_freed_memory() {
  if (set_by_user()) return;
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest that mallopt takes
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}
void return_freed_memory() { malloc_trim(0); }
#else
void keep_freed_memory() {}
void return_freed_memory() {}
#endif

}  // namespace tpupilot::pjrt
