// What the emitters may ask about the plugin that will compile the program. Forms are chosen from this value only:
// no emitter names a plugin.
#pragma once

namespace tpupilot::hlo {

enum class Platform { Cpu, Cuda, Tpu };
// How f32 products are made. Exact: as exactly as the platform can. The others are a TPU's: its matrix unit multiplies
// bf16, so f32 operands are taken in one, two or three bf16 parts (DEFAULT, HIGH, HIGHEST of StableHLO).
enum class Passes { Exact, One, Three, Six };

struct Target {
  Platform platform = Platform::Cpu;
  bool region = false;  // a compiled region of many ops (fusion emitters on), not one eager op

  Passes passes = Passes::Exact;  // of contractions

  bool small_programs_inline = false;  // XLA:CPU: Builder::small_elementwise programs are done when Execute returns

  // Quirks, each found by probing the plugin (src/quirks/).
  // atan2(y, x) of vectors of f64, and chlo.atan with it, gives wrong values where x is a constant.
  bool constant_atan2_is_wrong = false;

  bool cpu() const { return platform == Platform::Cpu; }
};

}  // namespace tpupilot::hlo
