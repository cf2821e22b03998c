#include "aten/event.h"

#include <algorithm>
#include <array>
#include <utility>

#include "aten/runtime.h"

namespace tpupilot::aten {

bool QueuePoint::reached() const {
  const std::lock_guard lock(mutex_);
  return reached_;
}

std::exception_ptr QueuePoint::wait() const {
  std::unique_lock lock(mutex_);
  if (!reached_) check_not_forked();  // the threads that would end the wait do not exist in a forked child
  changed_.wait(lock, [this] { return reached_; });
  return error_;
}

std::chrono::steady_clock::time_point QueuePoint::time() const {
  const std::lock_guard lock(mutex_);
  return time_;
}

void QueuePoint::when_reached(std::function<void()> then) {
  {
    const std::lock_guard lock(mutex_);
    if (!reached_) {
      then_.push_back(std::move(then));
      return;
    }
  }
  then();
}

void QueuePoint::open() {
  const std::lock_guard lock(mutex_);
  ++open_;
}

void QueuePoint::close(std::exception_ptr error) {
  std::vector<std::function<void()>> then;
  {
    const std::lock_guard lock(mutex_);
    if (error && !error_) error_ = std::move(error);
    if (--open_ > 0) return;
    reached_ = true;
    time_ = std::chrono::steady_clock::now();
    then.swap(then_);
  }
  changed_.notify_all();
  for (const auto& f : then) f();
}

namespace {

// The points that a device's later work comes after, as long as they are not reached.
class Followed {
 public:
  void add(const QueuePointRef& point) {
    const std::lock_guard lock(mutex_);
    prune();
    if (!point->reached()) points_.push_back(point);
  }
  std::vector<QueuePointRef> replace(const QueuePointRef& point) {
    const std::lock_guard lock(mutex_);
    prune();
    return std::exchange(points_, {point});
  }
  std::vector<QueuePointRef> get() {
    const std::lock_guard lock(mutex_);
    prune();
    return points_;
  }

 private:
  void prune() {
    std::erase_if(points_, [](const QueuePointRef& p) { return p->reached(); });
  }

  std::mutex mutex_;
  std::vector<QueuePointRef> points_;
};

Followed& followed(c10::DeviceIndex device) {
  static auto* all = new std::array<Followed, 64>;
  return all->at(static_cast<size_t>(device));
}

}  // namespace

QueuePointRef record_point(c10::DeviceIndex device) {
  check_not_forked();
  auto point = std::make_shared<QueuePoint>();
  point->open();  // this function's own, so that it is not reached before all are opened
  for (const BufferRef& result : pending_results(device)) {
    point->open();
    result->on_ready([point](std::exception_ptr error) { point->close(std::move(error)); });
  }
  for (const QueuePointRef& earlier : followed(device).replace(point)) {  // it stands for all that it waits for
    point->open();
    earlier->when_reached([point] { point->close(nullptr); });
  }
  point->close(nullptr);
  return point;
}

void follow_point(c10::DeviceIndex device, const QueuePointRef& point) { followed(device).add(point); }

void wait_for_points(c10::DeviceIndex device) {
  for (const QueuePointRef& point : followed(device).get()) point->wait();
}

bool points_reached(c10::DeviceIndex device) { return followed(device).get().empty(); }

}  // namespace tpupilot::aten
