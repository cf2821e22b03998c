#include "aten/runtime.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>

#include "aten/errors.h"
#include "aten/event.h"
#include "aten/verdicts.h"
#include "hostcalls/hostcalls.h"
#include "pjrt/host_memory.h"
#include "pjrt/plugin_finder.h"
#include "quirks/quirks.h"

namespace tpupilot::aten {
namespace {

struct Settings {
  std::string plugin = "cpu";
  std::vector<std::string> site_packages;
  int device_count = 1;
};
Settings& settings() {
  static auto* s = new Settings;
  return *s;
}

thread_local c10::DeviceIndex t_device = 0;

struct Holder {
  std::mutex mutex;
  std::atomic<Runtime*> runtime{nullptr};
  pid_t pid = 0;  // of the process that loaded the plugin
};
Holder& holder() {
  static auto* h = new Holder;
  return *h;
}

std::shared_ptr<pjrt::Client> make_client(const std::string& path) {
  pjrt::require_hardware(path);
  const int asked = settings().device_count;
  std::shared_ptr<pjrt::Client> client;
  try {
    client = pjrt::Client::create(pjrt::Plugin::load(path), {.device_count = asked, .asynchronous = false});
  } catch (const pjrt::Error& error) {
    throw pjrt::Error(error.code(), error.what() + pjrt::hardware_advice(path));
  }
  TORCH_CHECK(client->device_count() >= asked, "[tpu] TPUPILOT_DEVICES is ", asked, ", but the plugin ", path, " has ",
              client->device_count(), " device(s). Set it to at most that.");
  return client;
}

std::unique_ptr<Runtime> load() {
  auto rt = std::make_unique<Runtime>();
  rt->client = make_client(pjrt::find_plugin(settings().plugin, settings().site_packages));
  hostcalls::register_all(*rt->client);
  rt->cache = std::make_unique<cache::ExecutableCache>(rt->client);
  const std::filesystem::path& folder = rt->cache->settings().folder;
  rt->meta_notes = std::make_unique<cache::NoteStore>(folder.empty() ? folder : folder / "meta-notes");
  rt->eager_options = pjrt::eager_options();
  rt->region_options = pjrt::region_options();
  const bool xla_cpu = rt->client->platform_name() == "cpu";  // what XLA's CPU client calls itself
  if (xla_cpu) pjrt::keep_freed_memory();
  rt->eager_target.small_programs_inline = xla_cpu;
  rt->eager_options.flat_results = xla_cpu;
  rt->region_target.region = true;
  cache::NoteStore answers(folder.empty() ? folder : folder / "quirks");
  rt->eager_target.platform = rt->region_target.platform = quirks::platform_of(*rt->client);
  quirks::probe(rt->eager_target, *rt->client, *rt->cache, rt->eager_options, answers);
  quirks::probe(rt->region_target, *rt->client, *rt->cache, rt->region_options, answers);
  return rt;
}

// ---- results that are still computed ----
// Strong references, or a result that is dropped early would not be waited for. A program that runs keeps its results'
// memory anyway, and each call lets go of what has become ready.
class Pending {
 public:
  struct Late {
    BufferRef buffer;
    const std::string* what;
  };

  void add(const BufferRef& buffer, const std::string& what) {
    if (buffer->has_values()) return;
    const std::lock_guard lock(mutex_);
    prune();
    late_.push_back({buffer, &what});
  }
  std::vector<Late> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(late_, {});
  }
  std::vector<BufferRef> get() {
    const std::lock_guard lock(mutex_);
    prune();
    std::vector<BufferRef> buffers;
    for (const Late& late : late_) buffers.push_back(late.buffer);
    return buffers;
  }
  bool idle() {
    const std::lock_guard lock(mutex_);
    prune();
    return std::all_of(late_.begin(), late_.end(), [](const Late& l) { return l.buffer->is_ready(); });
  }

 private:
  // A failed result stays: `synchronize` raises for it.
  void prune() {
    std::erase_if(late_, [](const Late& l) { return l.buffer->has_values(); });
  }

  std::mutex mutex_;
  std::vector<Late> late_;
};
Pending& pending(c10::DeviceIndex device) {
  static auto* all = new std::array<Pending, 64>;
  return all->at(device);
}

// Waits for everything that is pending. The first error, with the op whose result it is; nothing if all went well.
std::optional<pjrt::Error> settle(c10::DeviceIndex device) {
  std::optional<pjrt::Error> first;
  for (const Pending::Late& late : pending(device).take()) {
    try {
      late.buffer->wait();
    } catch (const pjrt::Error& error) {
      if (!first) first.emplace(error.code(), "[" + *late.what + "] " + error.what());
    }
  }
  return first;
}

size_t host_memory() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
}

}  // namespace

void configure(std::string plugin, std::vector<std::string> site_packages, int device_count) {
  TORCH_CHECK(!loaded(), "[tpu] the plugin is loaded already; its settings cannot change any more");
  settings() = {std::move(plugin), std::move(site_packages), device_count};
}

Runtime& runtime() {
  Holder& h = holder();
  if (Runtime* rt = h.runtime.load(std::memory_order_acquire)) {
    return *rt;
  }
  const std::lock_guard lock(h.mutex);
  if (h.runtime.load() == nullptr) {
    h.runtime =
        translated("initialize", [] { return load(); }).release();  // never destroyed: plugins do not like it at exit
    h.pid = getpid();
  }
  return *h.runtime.load();
}

bool loaded() noexcept { return holder().runtime.load() != nullptr; }
bool in_bad_fork() noexcept { return loaded() && holder().pid != getpid(); }

std::string plugin_path() {
  try {
    return pjrt::find_plugin(settings().plugin, settings().site_packages);
  } catch (const std::exception&) {
    return "";
  }
}

bool available() noexcept {
  try {
    const std::string path = plugin_path();
    if (path.empty() || !std::filesystem::exists(path)) return false;
    pjrt::require_hardware(path);
    return true;
  } catch (...) {
    return false;
  }
}

c10::DeviceIndex device_count() noexcept { return static_cast<c10::DeviceIndex>(settings().device_count); }
c10::DeviceIndex current_device() noexcept { return t_device; }
void set_current_device_unchecked(c10::DeviceIndex index) noexcept { t_device = index; }

void check_device(c10::DeviceIndex index) {
  TORCH_CHECK(index >= 0 && index < device_count(), "[tpu] there is no device tpu:", int{index}, "; ",
              int{device_count()}, " exist(s) (TPUPILOT_DEVICES sets the number)");
}

void set_current_device(c10::DeviceIndex index) {
  check_device(index);
  t_device = index;
}

c10::DeviceIndex exchange_device(c10::DeviceIndex index) {
  const c10::DeviceIndex before = t_device;
  if (index >= 0 && index != before) set_current_device(index);  // -1: leave it
  return before;
}

std::map<std::string, std::string> runtime_description() {
  const pjrt::Client& client = *runtime().client;
  const pjrt::ApiVersion api = client.plugin().api_version();
  return {{"platform_name", client.platform_name()},
          {"platform_version", client.platform_version()},
          {"pjrt_api", std::to_string(api.major) + "." + std::to_string(api.minor)},
          {"device_kind", client.devices().empty() ? "" : client.devices().front().kind}};
}

void add_runtime_counters(std::map<std::string, double>& values) {
  const Runtime& rt = runtime();
  const pjrt::CounterValues c = rt.client->counters().snapshot();
  const cache::CacheCounters k = rt.cache->counters();
  values["compiles"] = static_cast<double>(c.compiles);
  values["compile_seconds"] = static_cast<double>(c.compile_nanoseconds) * 1e-9;
  values["executions"] = static_cast<double>(c.executions);
  values["h2d_bytes"] = static_cast<double>(c.h2d_bytes);
  values["d2h_bytes"] = static_cast<double>(c.d2h_bytes);
  values["zero_copy_uploads"] = static_cast<double>(c.zero_copy_uploads);
  values["disk_hits"] = static_cast<double>(k.disk_hits);
  values["disk_misses"] = static_cast<double>(k.misses);
  values["cache_corrupt"] = static_cast<double>(k.corrupt);
  values["cache_write_failures"] = static_cast<double>(k.write_failures);
}

void note_pending(const BufferRef& buffer, c10::DeviceIndex device, const std::string& what) {
  pending(device).add(buffer, what);
}

void synchronize(c10::DeviceIndex device) {
  check_not_forked();
  const auto error = settle(device);
  wait_for_points(device);
  if (error) throw *error;
  raise_refusal(device);
}

void wait_for(const pjrt::Buffer& buffer, c10::DeviceIndex device) {
  try {
    buffer.wait();
  } catch (const pjrt::Error&) {
    if (const auto first = settle(device)) throw *first;
    throw;
  }
  raise_refusal(device);
}

bool idle(c10::DeviceIndex device) {
  check_not_forked();
  return pending(device).idle() && points_reached(device);
}

std::vector<BufferRef> pending_results(c10::DeviceIndex device) { return pending(device).get(); }

void check_not_forked() {
  TORCH_CHECK(
      !in_bad_fork(),
      "[tpu] this process was forked after the device was initialised; the plugin's threads do "
      "not exist in it. Start workers with the `spawn` method, or use the device for the first time in the child.");
}

std::pair<size_t, size_t> memory_info(c10::DeviceIndex device) {
  if (loaded()) {
    const std::optional<pjrt::DeviceMemory> memory = runtime().client->device_memory(device);
    if (memory && memory->limit) {
      return {static_cast<size_t>(std::max<int64_t>(*memory->limit - memory->in_use, 0)),
              static_cast<size_t>(*memory->limit)};
    }
  }
  const size_t total = host_memory();
  const size_t used = bytes_allocated(device);
  return {total > used ? total - used : 0, total};
}

bool debug() {
  static const bool on = [] {
    const char* text = std::getenv("TPUPILOT_DEBUG");
    return text != nullptr && std::string(text) == "1";
  }();
  return on;
}

}  // namespace tpupilot::aten
