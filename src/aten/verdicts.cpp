#include "aten/verdicts.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "aten/runtime.h"

namespace tpupilot::aten {
namespace {

struct Unread {
  BufferRef verdict;
  Refusals refusals;

  std::optional<ops::Refusal> read() const {
    std::vector<int64_t> words(2 * refusals->size());
    verdict->copy_to_host(words.data(), words.size() * sizeof(int64_t));
    return ops::first_refusal(*refusals, words);
  }
};

class Verdicts {
 public:
  void add(Unread unread) {
    const std::lock_guard lock(mutex_);
    if (unread_.size() >= next_look_) {  // a loop that never waits must not pile them up
      std::erase_if(unread_, [](const Unread& u) { return u.verdict->has_values() && !u.read(); });
      next_look_ = std::max(kFew, 2 * unread_.size());
    }
    unread_.push_back(std::move(unread));
    any_.store(true, std::memory_order_release);
  }
  std::vector<Unread> take() {
    if (!any_.load(std::memory_order_acquire)) return {};  // most waits find none
    const std::lock_guard lock(mutex_);
    any_.store(false, std::memory_order_relaxed);
    return std::exchange(unread_, {});
  }

 private:
  static constexpr size_t kFew = 64;
  std::atomic<bool> any_{false};
  std::mutex mutex_;
  std::vector<Unread> unread_;
  size_t next_look_ = kFew;
};
Verdicts& verdicts(c10::DeviceIndex device) {
  static auto* all = new std::array<Verdicts, 64>;  // never freed: buffers must not be destroyed at exit
  return all->at(static_cast<size_t>(device));
}

[[noreturn]] void raise(const ops::Refusal& refusal) {
  const char* when =
      debug() ? "" : " (found when the host next waited for the device; TPUPILOT_DEBUG=1 raises in the call itself)";
  TORCH_CHECK_INDEX(refusal.kind != ops::Refusal::Kind::Index, refusal.text, when);
  TORCH_CHECK(false, refusal.text, when);
}

}  // namespace

Refusals refusals_of(const std::vector<ops::Requirement>& requirements) {
  if (requirements.empty()) return nullptr;
  std::vector<ops::Refusal> refusals;
  for (const ops::Requirement& r : requirements) refusals.push_back(r.refusal);
  return std::make_shared<const std::vector<ops::Refusal>>(std::move(refusals));
}

void note_verdict(BufferRef verdict, c10::DeviceIndex device, Refusals refusals) {
  verdicts(device).add({std::move(verdict), std::move(refusals)});
  if (debug()) raise_refusal(device);
}

void raise_refusal(c10::DeviceIndex device) {
  std::optional<ops::Refusal> first;
  for (const Unread& unread : verdicts(device).take()) {
    if (!first) first = unread.read();
  }
  if (first) raise(*first);
}

}  // namespace tpupilot::aten
