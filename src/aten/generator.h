// The device's random number generator: a Philox seed and a running offset. Both are inputs of the programs that draw,
// so that another seed is never another compile. State as a CPU byte tensor: seed and offset, 8 bytes each, little
// endian.
#pragma once

#include <ATen/core/Generator.h>

namespace tpupilot::aten {

class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(c10::DeviceIndex device);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;  // a new, non-deterministic one
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // {seed, offset} for a program that draws `blocks` 128-bit blocks; moves the offset on. The caller holds mutex_.
  std::pair<uint64_t, uint64_t> reserve(uint64_t blocks);

  static c10::DeviceType device_type() { return c10::kPrivateUse1; }

 private:
  Generator* clone_impl() const override;
  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

const at::Generator& default_generator(c10::DeviceIndex device);

}  // namespace tpupilot::aten
