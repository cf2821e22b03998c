// Points in a device's queue, which c10's events are handles of. A device has one queue: its streams are names for it.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace tpupilot::aten {

// What a device had still to do at one moment. Holds none of the results. Reached once, on whichever thread finishes
// the last of them; any thread may ask.
class QueuePoint {
 public:
  bool reached() const;
  std::exception_ptr wait() const;                     // until reached; the first error of that work, or null
  std::chrono::steady_clock::time_point time() const;  // when it was reached; call only then
  void when_reached(std::function<void()> then);       // at once, on this thread, if it is reached already

  // Before it can be reached: one more thing to wait for, and its end.
  void open();
  void close(std::exception_ptr error);

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  int open_ = 0;
  bool reached_ = false;
  std::chrono::steady_clock::time_point time_;
  std::exception_ptr error_;
  std::vector<std::function<void()>> then_;
};
using QueuePointRef = std::shared_ptr<QueuePoint>;

// The point behind everything that was enqueued on the device so far. Does not wait. A later point of a device is never
// reached before an earlier one.
QueuePointRef record_point(c10::DeviceIndex device);

// Work that is enqueued on the device from now on counts as coming after the point. Nothing is held up: a program that
// reads results of another waits for them by itself.
void follow_point(c10::DeviceIndex device, const QueuePointRef& point);

void wait_for_points(c10::DeviceIndex device);  // those that the device follows; their errors are their own devices'
bool points_reached(c10::DeviceIndex device);

}  // namespace tpupilot::aten
