#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "hostcalls/hostcalls.h"

namespace tpupilot::hostcalls {
namespace {

constexpr std::pair<const char*, pjrt::HostHandler> kHandlers[] = {
    {"tpupilot.geqrf", pjrt::host_handler<geqrf>},
    {"tpupilot.orgqr", pjrt::host_handler<orgqr>},
    {"tpupilot.ormqr", pjrt::host_handler<ormqr>},
    {"tpupilot.eigh", pjrt::host_handler<eigh>},
    {"tpupilot.svd", pjrt::host_handler<svd>},
    {"tpupilot.eig", pjrt::host_handler<eig>},
    {"tpupilot.ldl_factor", pjrt::host_handler<ldl_factor>},
    {"tpupilot.ldl_solve", pjrt::host_handler<ldl_solve>},
};

struct Registered {
  std::mutex mutex;
  std::set<const pjrt::Plugin*> plugins;
};
Registered& registered() {
  static auto* r = new Registered;
  return *r;
}

}  // namespace

void register_all(pjrt::Client& client) {
  if (client.platform_name() != "cpu") return;
  const std::lock_guard lock(registered().mutex);
  if (!registered().plugins.insert(&client.plugin()).second) return;
  for (const auto& [target, handler] : kHandlers) client.register_host_call(target, handler);
}

}  // namespace tpupilot::hostcalls
