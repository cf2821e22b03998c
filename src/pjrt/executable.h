// A compiled program, loaded on the devices of a client.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pjrt/buffer.h"
#include "pjrt/shape.h"

struct PJRT_Executable;
struct PJRT_LoadedExecutable;

namespace tpupilot::pjrt {

struct MemoryStats {  // bytes on the device
  int64_t generated_code = 0;
  int64_t arguments = 0;
  int64_t outputs = 0;
  int64_t aliased = 0;
  int64_t temporaries = 0;
  int64_t peak = 0;
};

// Made by Client; lives in a shared_ptr. Immutable: any thread, several at once.
class Executable {
 public:
  struct Made;  // only this room makes executables
  explicit Executable(Made&& made);
  ~Executable();
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  const std::vector<Shape>& parameters() const { return parameters_; }  // as given to compile()
  size_t num_outputs() const { return outputs_.size(); }
  const std::vector<Shape>& outputs() const { return outputs_; }  // of a bounded dynamic output: the bound

  // Enqueues the program on `device` (an index) and fills `outputs`, which must have num_outputs() places, at once;
  // their values come later. Throws Error, with `outputs` untouched, if the arguments are not parameters() in number,
  // element type, dimensions and device (plugins reinterpret bytes instead), or if the plugin refuses.
  // `keep` lists arguments that must survive although the program's text lets them be donated.
  void execute(std::span<Buffer* const> arguments, int device, std::span<std::shared_ptr<Buffer>> outputs,
               std::span<const int64_t> keep = {}) const;

  // For Client::deserialize of the same plugin file on the same kind of CPU; nothing in it detects damage.
  std::string serialize() const;

  std::optional<MemoryStats> memory_stats() const;  // nothing if the plugin does not say
  std::string fingerprint() const;                  // the plugin's; "" if it has none

 private:
  void check_arguments(std::span<Buffer* const> arguments, int device) const;

  detail::ClientCore* core_;
  PJRT_LoadedExecutable* loaded_;
  PJRT_Executable* handle_;
  bool portable_;
  std::vector<Shape> parameters_;
  std::vector<Shape> outputs_;
};

}  // namespace tpupilot::pjrt
