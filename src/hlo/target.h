// What the emitters may ask about the plugin that will compile the program. Forms are chosen from this value only:
// no emitter names a plugin.
#pragma once

namespace tpupilot::hlo {

enum class Platform { Cpu, Cuda, Tpu };
enum class Precision { Default, High, Highest };  // of f32 contractions, as StableHLO's precision_config

struct Target {
  Platform platform = Platform::Cpu;
  bool region = false;  // a compiled region of many ops (fusion emitters on), not one eager op

  Precision precision = Precision::Highest;

  // Quirks, each found by probing the plugin (src/quirks/).
  bool atan_by_atan2 = false;  // chlo.atan of a vector of f64 gives wrong values; so does atan2 by a constant

  bool cpu() const { return platform == Platform::Cpu; }
};

}  // namespace tpupilot::hlo
