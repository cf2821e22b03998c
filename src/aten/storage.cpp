#include "aten/storage.h"

#include <ATen/core/Tensor.h>
#include <c10/core/impl/COW.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "aten/counters.h"
#include "aten/element.h"
#include "aten/errors.h"
#include "aten/execute.h"
#include "aten/recorder.h"
#include "aten/runtime.h"
#include "hlo/builder.h"

namespace tpupilot::aten {
namespace {

// ---- zero-copy uploads ----
// The plugin can read host memory in place if it is aligned. That is safe only while nobody writes to it. So the
// source's storage becomes copy-on-write, as torch.lazy_clone makes it: the device's buffer holds one reference, and
// the next writer of the CPU tensor gets memory of its own. Memory that others can write behind torch's back is copied:
// storages shared with NumPy (which torch marks not resizable), foreign memory (no simple data pointer).
constexpr size_t kZeroCopyAlignment = 64;
constexpr size_t kZeroCopyBytes = 64 * 1024;  // below this a copy costs no more than the bookkeeping

bool zero_copy_wanted() {
  static const bool wanted = [] {
    const char* text = std::getenv("TPUPILOT_ZERO_COPY");
    return text == nullptr || std::string(text) != "0";
  }();
  return wanted;
}

std::shared_ptr<void> shared_host_memory(const at::Tensor& source) {
  c10::StorageImpl& storage = *source.storage().unsafeGetStorageImpl();
  const auto address = reinterpret_cast<uintptr_t>(source.const_data_ptr());
  if (!zero_copy_wanted() || source.nbytes() < kZeroCopyBytes || address % kZeroCopyAlignment != 0) return nullptr;
  if (!storage.resizable()) return nullptr;
  c10::intrusive_ptr<c10::StorageImpl> clone = c10::impl::cow::lazy_clone_storage(storage);
  if (!clone) return nullptr;
  return std::make_shared<c10::intrusive_ptr<c10::StorageImpl>>(std::move(clone));
}

// ---- constants for scalar inputs ----
struct ScalarKey {
  uint64_t low = 0, high = 0;
  uint32_t kind = 0;  // element type and device
  bool operator==(const ScalarKey&) const = default;
};
struct ScalarHash {
  size_t operator()(const ScalarKey& k) const {
    return (k.low * 0x9E3779B97F4A7C15ULL) ^ (k.high + k.kind * 0xFF51AFD7ED558CCDULL);
  }
};
class ScalarCache {
 public:
  BufferRef get(const ScalarKey& key) {
    const std::lock_guard lock(mutex_);
    const auto it = buffers_.find(key);
    return it == buffers_.end() ? nullptr : it->second;
  }
  void put(const ScalarKey& key, BufferRef buffer) {
    const std::lock_guard lock(mutex_);
    if (buffers_.size() >= kLimit) buffers_.clear();  // values that never repeat must not pile up
    buffers_.emplace(key, std::move(buffer));
  }

 private:
  static constexpr size_t kLimit = 4096;
  std::mutex mutex_;
  std::unordered_map<ScalarKey, BufferRef, ScalarHash> buffers_;
};
ScalarCache& scalar_cache() {
  static auto* cache = new ScalarCache;  // its buffers must not be freed at exit
  return *cache;
}

// The cell's first elements, as many as fit into `length`, followed by zeros.
void change_length(Cell& cell, int64_t length) {
  Runtime& rt = runtime();
  hlo::Builder b(rt.eager_target);
  const hlo::Value old = b.parameter({cell.elem, {cell.length}});
  const int64_t kept = std::min(cell.length, length);
  const hlo::Value prefix = b.slice_dim(old, 0, 0, kept);
  const hlo::Value result =
      kept == length ? prefix : b.pad(prefix, b.zeros({cell.elem, {}}), {0}, {length - kept}, {0});
  const auto executable = compile(b, {result}, rt.eager_options);
  pjrt::Buffer* in[] = {cell.buffer.get()};
  BufferRef out[1];
  static const std::string kResize = "resize_storage";
  execute(*executable, in, cell.device, out, kResize);
  assign(cell, std::move(out[0]), cell.elem, length);
}

}  // namespace

void fill_with_zeros(Cell& cell, hlo::Elem elem, int64_t length) {
  const size_t bytes = static_cast<size_t>(length) * hlo::byte_size(elem);
  const std::unique_ptr<void, decltype(&std::free)> zeros(std::calloc(std::max<size_t>(bytes, 1), 1), &std::free);
  if (!zeros) {
    throw pjrt::Error(
        pjrt::Error::Code::ResourceExhausted,
        "[fill_with_zeros] the host has no " + std::to_string(bytes) + " bytes for a tensor's first values");
  }
  const int64_t dims[] = {length};
  assign(cell, runtime().client->from_host(zeros.get(), pjrt_type_of(elem), dims, cell.device), elem, length);
}

void resize_storage(const c10::Storage& storage, size_t nbytes) {
  c10::StorageImpl& impl = *storage.unsafeGetStorageImpl();
  if (impl.nbytes() == nbytes) return;
  TORCH_CHECK(impl.resizable(), "Trying to resize storage that is not resizable");
  c10::DataPtr data;
  {
    const c10::DeviceIndex before = exchange_device(storage.device().index());
    data = allocator()->allocate(nbytes);
    set_current_device_unchecked(before);
  }
  auto* fresh = static_cast<Cell*>(data.get_context());
  if (const auto* old = static_cast<const Cell*>(impl.data_ptr().get_context());
      old != nullptr && nbytes > 0 && old->buffer) {
    TORCH_CHECK(Recorder::current() == nullptr, "[tpu] a storage cannot be resized inside a compiled region");
    assign(*fresh, old->buffer, old->elem, old->length);
    translated("resize_", [&] { change_length(*fresh, static_cast<int64_t>(nbytes / hlo::byte_size(old->elem))); });
  }
  impl.set_data_ptr_noswap(std::move(data));
  impl.set_nbytes(nbytes);
}

void upload(const at::Tensor& dst, const at::Tensor& source) {
  Runtime& rt = runtime();
  Cell& cell = cell_of(dst);
  const hlo::Elem elem = elem_of(source.scalar_type());
  const int64_t dims[] = {source.numel()};
  BufferRef buffer;
  if (std::shared_ptr<void> memory = shared_host_memory(source)) {
    buffer = rt.client->from_host_zero_copy(source.const_data_ptr(), pjrt_type_of(elem), dims, cell.device,
                                            std::move(memory));
  } else {
    buffer = rt.client->from_host(source.const_data_ptr(), pjrt_type_of(elem), dims, cell.device);
  }
  static const std::string what = "copy to the device";
  note_pending(buffer, cell.device, what);
  assign(cell, std::move(buffer), elem, source.numel());
}

BufferRef scalar_buffer(hlo::Elem elem, const void* bytes, c10::DeviceIndex device) {
  ScalarKey key{0, 0, static_cast<uint32_t>(elem) << 8 | static_cast<uint32_t>(device)};
  const size_t size = hlo::byte_size(elem);
  std::memcpy(&key.low, bytes, std::min<size_t>(size, 8));
  if (size > 8) std::memcpy(&key.high, static_cast<const std::byte*>(bytes) + 8, size - 8);
  if (BufferRef known = scalar_cache().get(key)) return known;
  BufferRef buffer = runtime().client->from_host(bytes, pjrt_type_of(elem), {}, device);
  scalar_cache().put(key, buffer);
  return buffer;
}

void download_whole(const at::Tensor& source, void* dst) {
  const BufferRef buffer = buffer_of(source);
  wait_for(*buffer, source.device().index());
  buffer->copy_to_host(dst, source.nbytes());
}

}  // namespace tpupilot::aten
