// torch.autocast("tpu"): which functions are cast, and to what. The lists are core's own, those of its accelerators:
// contractions in the lower precision, norms, losses and sums in f32. Core has no kernel at all under this key for a
// device of its own: what is not listed has to fall through.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace tpupilot::aten {
namespace {

// The lists of core name these without their namespaces.
using at::IntArrayRef, at::Scalar, at::ScalarType, at::Tensor;

at::Tensor refuse_binary_cross_entropy(const Tensor&, const Tensor&, const std::optional<Tensor>&, int64_t) {
  TORCH_CHECK(false,
              "binary_cross_entropy is unsafe under autocast: its input has gone through a sigmoid in the lower "
              "precision. Use binary_cross_entropy_with_logits on the logits instead (BCEWithLogitsLoss for BCELoss).");
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

#define TPUPILOT_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define TPUPILOT_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define TPUPILOT_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define TPUPILOT_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(TPUPILOT_LOWER_PRECISION)
  AT_FORALL_FP32(TPUPILOT_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(TPUPILOT_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(TPUPILOT_PROMOTE)
  m.impl("binary_cross_entropy", TORCH_FN(refuse_binary_cross_entropy));
}

}  // namespace
}  // namespace tpupilot::aten
