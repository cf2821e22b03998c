// A device buffer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "pjrt/shape.h"

struct PJRT_Buffer;

namespace tpupilot::pjrt {

namespace detail {
struct ClientCore;
}

// Owns one PJRT_Buffer; lives in a shared_ptr, made by Client and Executable. Its contents never change (unless a
// program takes it as a donation). It may not hold values yet: the program that writes it may still run, and that
// program's error shows in wait(), copy_to_host() and in the wait() of what was computed from it. Any thread.
// Destroying it waits for nothing: running programs keep the memory until they are done.
class Buffer {
 public:
  struct Made;  // only this room makes buffers
  explicit Buffer(Made&& made) noexcept;
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  const Shape& shape() const { return shape_; }
  ElementType element_type() const { return shape_.element_type(); }
  std::span<const int64_t> dims() const { return shape_.dims(); }
  size_t byte_size() const { return shape_.byte_size(); }  // of its dense row-major host copy
  int device() const { return device_; }                   // index into the client's devices

  // Until the values are there. Throws the error of the program that should have made them.
  void wait() const;
  bool is_ready() const;                                                         // true also if wait() would throw
  bool has_values() const;                                                       // ready, and wait() would not throw
  void assume_values() const { ready_.store(true, std::memory_order_release); }  // the caller knows that they are there
  bool is_deleted() const;                                                       // donated to a program

  // Waits, then copies the values, dense and row-major. `bytes` must be byte_size().
  void copy_to_host(void* out, size_t bytes) const;

  // The values' address if the device is the host's CPU, else null. Waits first; valid while this object lives.
  // Row-major as long as no program asks for another layout of its results.
  const void* host_pointer() const;

  // Made by from_host_zero_copy, and really reading the caller's memory.
  bool aliases_host() const { return aliases_host_; }

  std::shared_ptr<Buffer> copy_to_device(int device) const;

 private:
  friend class Executable;
  friend class Client;

  bool readable_in_place() const;
  void* data_pointer() const;

  detail::ClientCore* core_;
  PJRT_Buffer* handle_;
  int device_;
  bool aliases_host_;
  mutable std::atomic<bool> ready_{false};  // seen ready without error
  Shape shape_;
};

}  // namespace tpupilot::pjrt
