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

  bool small_programs_inline = false;  // XLA:CPU: Builder::small_elementwise programs are done when Execute returns

  // Quirks, each found by probing the plugin once at start.
  bool atan_by_atan2 = false;  // chlo.atan f64 gives wrong values

  bool cpu() const { return platform == Platform::Cpu; }
};

}  // namespace tpupilot::hlo
