// _copy_from: every copy with an end on the device. A copy that needs more than moving bytes (another dtype, strides, a
// view) is a program on the device or a copy on the host, whichever side has the data.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_conj.h>
#include <ATen/ops/_copy_from_native.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include "aten/cell.h"
#include "aten/closed_ops.h"
#include "aten/counters.h"
#include "aten/errors.h"
#include "aten/recorder.h"
#include "aten/runtime.h"
#include "aten/storage.h"
#include "layout/layout.h"

namespace tpupilot::aten {
namespace {

bool on_device(const at::Tensor& t) { return t.device().is_privateuseone(); }
bool whole(const at::Tensor& t) { return layout::is_whole(layout_of(t), storage_length(t)); }

// The lazy conjugate and negative bits: fallthrough below brings such tensors here, since core's own fallback for them
// clones, and a clone is a copy. The physical value is read through a plain alias and finished on the destination.
at::Tensor without_bits(const at::Tensor& t) {
  at::Tensor plain = t;
  if (plain.is_conj()) plain = plain.conj();
  if (plain.is_neg()) plain = plain._neg_view();
  return plain;
}

void copy_with_bits(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  const at::Tensor to = without_bits(dst);
  copy_from(without_bits(src), to, non_blocking);
  if (src.is_conj() != dst.is_conj()) to.conj_physical_();
  if (src.is_neg() != dst.is_neg()) to.neg_();
}

void to_device(const at::Tensor& src, const at::Tensor& dst) {
  if (dst.numel() == 0) return;
  if (layout::covers(layout_of(dst), storage_length(dst))) {
    at::Tensor staged = src;
    if (src.scalar_type() != dst.scalar_type() || src.sizes() != dst.sizes() || src.strides() != dst.strides()) {
      staged = at::empty_strided(dst.sizes(), dst.strides(), dst.options().device(c10::kCPU)).copy_(src);
    }
    upload(dst, staged);
    return;
  }
  const at::Tensor staged = at::empty(src.sizes(), src.options().device(dst.device()).dtype(dst.scalar_type()));
  to_device(src, staged);
  copy_on_device(dst, staged);
}

void to_host(const at::Tensor& src, const at::Tensor& dst) {
  if (Recorder* recorder = Recorder::current()) recorder->refuse_read(src, "copying to the host");
  counters().host_syncs.fetch_add(1, std::memory_order_relaxed);
  if (src.numel() == 0) return;
  at::Tensor dense = src;
  if (!whole(src)) {
    dense = at::empty(src.sizes(), src.options().memory_format(c10::MemoryFormat::Contiguous));
    copy_on_device(dense, src);
  }
  if (dst.is_contiguous() && dst.scalar_type() == src.scalar_type() && dst.sizes() == src.sizes()) {
    download_whole(dense, dst.mutable_data_ptr());
    return;
  }
  const at::Tensor staged =
      at::empty(src.sizes(), src.options().device(c10::kCPU).memory_format(c10::MemoryFormat::Contiguous));
  download_whole(dense, staged.mutable_data_ptr());
  dst.copy_(staged);
}

at::Tensor between_devices(const at::Tensor& src, const at::Tensor& dst) {
  const at::Tensor host = at::empty(src.sizes(), src.options().device(c10::kCPU));
  to_host(src, host);
  to_device(host, dst);
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& src, const at::Tensor& dst) {
  if (dst.sizes() != src.sizes()) dst.resize_(src.sizes());
  return copy_from(src, dst, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  const at::Tensor host = at::empty({}, self.options().device(c10::kCPU));
  translated("item", [&] { to_host(self.dim() == 0 ? self : self.reshape({}), host); });
  return host.item();
}

}  // namespace

void copy_on_device(const at::Tensor& dst, const at::Tensor& src) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("tpupilot::copy_", "");
  torch::jit::Stack stack{dst, src};
  op.callBoxedForDispatchKey(c10::DispatchKey::PrivateUse1, stack);
}

at::Tensor copy_from(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  return translated("copy_", [&]() -> at::Tensor {
    if (on_device(src) && src.device() == dst.device()) {
      if (dst.numel() != 0) copy_on_device(dst, src);
    } else if (src.is_conj() || src.is_neg() || dst.is_conj() || dst.is_neg()) {
      copy_with_bits(src, dst, non_blocking);
    } else if (!on_device(src)) {
      to_device(src, dst);
    } else if (!on_device(dst)) {
      to_host(src, dst);
    } else {
      between_devices(src, dst);
    }
    return dst;
  });
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
}
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

}  // namespace tpupilot::aten
