// linalg_lstsq: on the closed list because whether there are residuals depends on the rank, which is data. Composed of
// the device's own decompositions. `gels` is a QR factorisation, the other drivers the singular values, of which those
// up to rcond times the largest count as zero (gelsy, which estimates the rank from a pivoted QR in LAPACK, too).
#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <limits>

#include "aten/closed_ops.h"

namespace tpupilot::aten {
namespace {

struct Problem {
  at::Tensor a, b;  // [.., m, n], [.., m, k]
  bool vector = false;
  std::string driver;
  double rcond = 0;

  int64_t m() const { return a.size(-2); }
  int64_t n() const { return a.size(-1); }
};

struct Solution {
  at::Tensor x, rank, singular_values;
};

double epsilon(at::ScalarType type) {
  return c10::toRealValueType(type) == at::kFloat ? std::numeric_limits<float>::epsilon()
                                                  : std::numeric_limits<double>::epsilon();
}

Problem checked(const at::Tensor& a, const at::Tensor& b, std::optional<double> rcond,
                std::optional<std::string_view> driver) {
  TORCH_CHECK(a.dim() >= 2, "torch.linalg.lstsq: input must have at least 2 dimensions.");
  TORCH_CHECK(b.dim() >= 1, "torch.linalg.lstsq: other must have at least 1 dimension.");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(),
              "torch.linalg.lstsq: Expected input and other to have the same dtype, but got input's dtype ",
              a.scalar_type(), " and other's dtype ", b.scalar_type());
  const int64_t missing = a.dim() - b.dim();
  TORCH_CHECK(missing == 0 || missing == 1,
              "torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) "
              "<= 1");
  Problem p{a, missing == 1 ? b.unsqueeze(-1) : b, missing == 1, std::string(driver.value_or("gelsy")), 0};
  TORCH_CHECK(p.m() == p.b.size(-2), "torch.linalg.lstsq: input.size(-2) should match other.size(",
              missing == 1 ? "-1)" : "-2)");
  TORCH_CHECK(p.driver == "gels" || p.driver == "gelsy" || p.driver == "gelsd" || p.driver == "gelss",
              "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)");
  p.rcond = rcond.value_or(epsilon(a.scalar_type()) * static_cast<double>(std::max(p.m(), p.n())));
  return p;
}

Solution by_qr(const Problem& p) {
  const bool tall = p.m() >= p.n();
  const auto [q, r] = at::linalg_qr(tall ? p.a : p.a.mH(), "reduced");
  const at::Tensor diagonal = r.diagonal(0, -2, -1);
  TORCH_CHECK_LINALG(!diagonal.eq(0).any().item<bool>(),
                     "torch.linalg.lstsq: The least squares solution could not be computed because the input matrix "
                     "does not have full rank.");
  if (tall) return {at::linalg_solve_triangular(r, q.mH().matmul(p.b), /*upper=*/true), {}, {}};
  return {q.matmul(at::linalg_solve_triangular(r.mH(), p.b, /*upper=*/false)), {}, {}};
}

Solution by_singular_values(const Problem& p) {
  const auto [u, s, vh] = at::linalg_svd(p.a, /*full_matrices=*/false);
  const at::Tensor largest = s.narrow(-1, 0, std::min<int64_t>(s.size(-1), 1));
  const at::Tensor counts = s.gt(largest.mul(p.rcond));
  const at::Tensor inverse = at::where(counts, s.reciprocal(), 0);
  const at::Tensor x = vh.mH().matmul(inverse.unsqueeze(-1).mul(u.mH().matmul(p.b)));
  return {x, counts.sum(-1), s};
}

// Sums of squares over the rows, where the problem is overdetermined and of full rank; else nothing.
at::Tensor residuals_of(const Problem& p, const Solution& found) {
  const auto real = p.b.options().dtype(c10::toRealValueType(p.b.scalar_type()));
  const bool computed =
      p.m() > p.n() && p.driver != "gelsy" && (p.driver == "gels" || found.rank.eq(p.n()).all().item<bool>());
  if (!computed) return at::empty({0}, real);
  return p.b.sub(p.a.matmul(found.x)).abs().square().sum(-2);
}

void give(const at::Tensor& value, at::Tensor& out) {
  resize_output(out, value.sizes());
  out.copy_(value);
}

// A new solution lies as LAPACK leaves it: column by column, each as long as the longer side of the matrix.
void give_solution(const Problem& p, const at::Tensor& x, at::Tensor& out) {
  if (out.numel() == 0 && x.numel() > 0) {
    const int64_t column = std::max(p.m(), p.n());
    auto whole = x.mT().sizes().vec();
    whole.back() = column;
    out.resize_(whole);
    out.as_strided_(x.sizes(), [&] {
      auto strides = out.strides().vec();
      std::swap(strides[strides.size() - 1], strides[strides.size() - 2]);
      return strides;
    }());
    out.copy_(x);
    if (p.vector) out.squeeze_(-1);
    return;
  }
  give(p.vector ? x.squeeze(-1) : x, out);
}

std::tuple<at::Tensor&, at::Tensor&, at::Tensor&, at::Tensor&> lstsq_out(
    const at::Tensor& self, const at::Tensor& b, std::optional<double> rcond, std::optional<std::string_view> driver,
    at::Tensor& solution, at::Tensor& residuals, at::Tensor& rank, at::Tensor& singular_values) {
  const Problem p = checked(self, b, rcond, driver);
  const Solution found = p.driver == "gels" ? by_qr(p) : by_singular_values(p);
  give(residuals_of(p, found), residuals);
  if (p.driver != "gels") give(found.rank, rank);
  if (p.driver == "gelsd" || p.driver == "gelss") give(found.singular_values, singular_values);
  give_solution(p, found.x, solution);
  return {solution, residuals, rank, singular_values};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("linalg_lstsq.out", TORCH_FN(lstsq_out)); }

}  // namespace tpupilot::aten
