#include "aten/generator.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <cstring>

#include "aten/runtime.h"

namespace tpupilot::aten {
namespace {
constexpr int64_t kStateBytes = 2 * sizeof(uint64_t);
}

Generator::Generator(c10::DeviceIndex device)
    : GeneratorImpl({c10::kPrivateUse1, device}, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

void Generator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}
void Generator::set_offset(uint64_t offset) { offset_ = offset; }
uint64_t Generator::get_offset() const { return offset_; }
uint64_t Generator::current_seed() const { return seed_; }

uint64_t Generator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void Generator::set_state(const c10::TensorImpl& state) {
  TORCH_CHECK(state.device().is_cpu() && state.dtype() == caffe2::TypeMeta::Make<uint8_t>() && state.is_contiguous(),
              "[Generator.set_state] the state must be a contiguous uint8 tensor on the CPU");
  TORCH_CHECK(state.numel() == kStateBytes, "[Generator.set_state] the state of a tpu generator has ", kStateBytes,
              " bytes, this one has ", state.numel(), "; was it taken from a generator of another device?");
  uint64_t words[2];
  std::memcpy(words, state.data(), kStateBytes);
  seed_ = words[0];
  offset_ = words[1];
}

c10::intrusive_ptr<c10::TensorImpl> Generator::get_state() const {
  at::Tensor state(at::detail::empty_cpu({kStateBytes}, c10::kByte));
  const uint64_t words[2] = {seed_, offset_};
  std::memcpy(state.mutable_data_ptr(), words, kStateBytes);
  return state.getIntrusivePtr();
}

std::pair<uint64_t, uint64_t> Generator::reserve(uint64_t blocks) {
  const uint64_t offset = offset_;
  offset_ += blocks;
  return {seed_, offset};
}

Generator* Generator::clone_impl() const {
  auto* copy = new Generator(device().index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static const auto* generators = [] {
    auto* all = new std::vector<at::Generator>;
    for (c10::DeviceIndex i = 0; i < device_count(); ++i) all->push_back(at::make_generator<Generator>(i));
    return all;
  }();
  const c10::DeviceIndex index = device < 0 ? current_device() : device;
  TORCH_CHECK(index < static_cast<c10::DeviceIndex>(generators->size()), "[tpu] there is no device ", int{index}, "; ",
              generators->size(), " exist(s) (TPUPILOT_DEVICES sets the number)");
  return (*generators)[index];
}

}  // namespace tpupilot::aten
