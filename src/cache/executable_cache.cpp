#include "cache/executable_cache.h"

#include "cache/disk_store.h"
#include "cache/identity.h"
#include "cache/sha256.h"

namespace tpupilot::cache {
namespace {

constexpr std::string_view kFormat = "tpupilot executable 1";

}  // namespace

std::string Key::hex() const { return cache::hex(digest); }

ExecutableCache::ExecutableCache(std::shared_ptr<pjrt::Client> client, Settings settings)
    : client_(std::move(client)), settings_(std::move(settings)) {
  if (!settings_.folder.empty()) disk_ = std::make_unique<DiskStore>(settings_);
}

ExecutableCache::~ExecutableCache() = default;

Key ExecutableCache::key(std::string_view program, const pjrt::CompileOptions& options,
                         std::span<const pjrt::Shape> parameters) {
  std::call_once(identity_once_, [&] {
    const std::string& path = client_->plugin().path();
    std::string plugin = path;  // names the plugin well enough inside this process
    if (disk_) {
      if (const auto digest = plugin_digest(path, disk_->folder())) {
        plugin = cache::hex(*digest);
      } else {
        disk_->stop("the plugin file " + path + " cannot be read, so entries cannot be told apart by plugin");
      }
    }
    identity_ = plugin + "\n" + client_->platform_name() + "\n" + client_->platform_version() + "\n" + host_cpu();
  });
  Sha256 hash;
  hash.add_field(kFormat);
  hash.add_field(identity_);
  hash.add_field(client_->fingerprint(options));
  hash.add_field(program);
  for (const pjrt::Shape& parameter : parameters) hash.add_field(parameter.str());
  return {hash.finish()};
}

Entry ExecutableCache::get_or_compile(std::string_view program, const pjrt::CompileOptions& options,
                                      const std::vector<pjrt::Shape>& parameters, std::string_view note) {
  const Key k = key(program, options, parameters);
  std::promise<Entry> promise;
  std::shared_future<Entry> other;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = memory_.find(k); found != memory_.end()) {
      memory_hits_.fetch_add(1, std::memory_order_relaxed);
      return found->second;
    }
    if (const auto found = in_flight_.find(k); found != in_flight_.end()) {
      other = found->second;
    } else {
      in_flight_.emplace(k, promise.get_future().share());
    }
  }
  if (other.valid()) {  // another thread is at it: wait for its result, or its error
    Entry entry = other.get();
    memory_hits_.fetch_add(1, std::memory_order_relaxed);
    return entry;
  }
  try {
    Entry entry = find_or_compile(k, program, options, parameters, note);
    {
      const std::lock_guard lock(mutex_);
      memory_[k] = entry;
      in_flight_.erase(k);
    }
    promise.set_value(entry);
    return entry;
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      in_flight_.erase(k);
    }
    promise.set_exception(std::current_exception());
    throw;
  }
}

Entry ExecutableCache::find_or_compile(const Key& key, std::string_view program, const pjrt::CompileOptions& options,
                                       const std::vector<pjrt::Shape>& parameters, std::string_view note) {
  if (auto stored = from_disk(key, options, parameters)) return *std::move(stored);
  misses_.fetch_add(1, std::memory_order_relaxed);
  Entry entry{client_->compile(program, options, parameters), std::string(note)};
  to_disk(key, entry);
  return entry;
}

std::optional<Entry> ExecutableCache::load(const Key& key, const pjrt::CompileOptions& options,
                                           const std::vector<pjrt::Shape>& parameters) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = memory_.find(key); found != memory_.end()) {
      memory_hits_.fetch_add(1, std::memory_order_relaxed);
      return found->second;
    }
  }
  auto entry = from_disk(key, options, parameters);
  if (entry) {
    const std::lock_guard lock(mutex_);
    memory_[key] = *entry;
  }
  return entry;
}

std::optional<Entry> ExecutableCache::from_disk(const Key& key, const pjrt::CompileOptions& options,
                                                const std::vector<pjrt::Shape>& parameters) {
  if (!disk_) return std::nullopt;
  auto stored = disk_->read(key);
  if (!stored) return std::nullopt;
  try {
    Entry entry{client_->deserialize(stored->executable, options, parameters), std::move(stored->note)};
    disk_->hits.fetch_add(1, std::memory_order_relaxed);
    return entry;
  } catch (const pjrt::Error& error) {
    using Code = pjrt::Error::Code;
    // Forked, or out of memory: that says nothing about the entry.
    if (error.code() == Code::FailedPrecondition || error.code() == Code::ResourceExhausted) throw;
    if (error.code() == Code::Unimplemented) {
      disk_->stop(error.what());
    } else {
      disk_->remove_corrupt(key);
    }
    return std::nullopt;
  }
}

void ExecutableCache::to_disk(const Key& key, const Entry& entry) {
  if (!disk_ || disk_->stopped()) return;
  std::string bytes;
  try {
    bytes = entry.executable->serialize();
  } catch (const pjrt::Error& error) {
    if (error.code() == pjrt::Error::Code::FailedPrecondition) throw;
    disk_->stop(std::string("the plugin cannot serialize programs: ") + error.what());
    return;
  }
  disk_->write(key, entry.note, bytes);
}

void ExecutableCache::store(const Key& key, Entry entry) {
  to_disk(key, entry);
  const std::lock_guard lock(mutex_);
  memory_[key] = std::move(entry);
}

CacheCounters ExecutableCache::counters() const {
  CacheCounters values{.memory_hits = memory_hits_, .misses = misses_};
  if (disk_) {
    values.disk_hits = disk_->hits;
    values.corrupt = disk_->corrupt;
    values.write_failures = disk_->write_failures;
    values.evictions = disk_->evictions;
  }
  return values;
}

void ExecutableCache::forget_memory() {
  const std::lock_guard lock(mutex_);
  memory_.clear();
}

}  // namespace tpupilot::cache
