// Matrix products: always dot_general on the operands as they are (never a transpose), with what ATen adds to them.
#include "ops/complex.h"

namespace tpupilot::ops {
namespace {

// How the dims of two operands pair up.
struct Pairing {
  Dims lhs_batch, rhs_batch, lhs_contract, rhs_contract;
};

const Pairing kMatrices{{}, {}, {1}, {0}};
const Pairing kBatches{{0}, {0}, {2}, {1}};
const Pairing kSummedBatches{{}, {}, {0, 2}, {0, 1}};
const Pairing kMatrixVector{{}, {}, {1}, {0}};
const Pairing kVectors{{}, {}, {0}, {0}};

Value dot(Context& c, const Value& x, const Value& y, const Pairing& p, std::optional<Elem> result = {}) {
  if (x.elem() == Elem::Pred)
    throw hlo::Error("[" + std::string(c.overload()) + "] \"addmm_impl_cpu_\" not implemented for 'Bool'");
  return c.b.dot_general(x, y, p.lhs_batch, p.rhs_batch, p.lhs_contract, p.rhs_contract, result);
}

Row product(std::vector<std::string_view> overloads, std::string_view second, const Pairing& pairing) {
  return {.overloads = std::move(overloads), .emit = [second, pairing](Context& c) {
            return Values{dot(c, c.tensor("self"), c.tensor(second), pairing)};
          }};
}

// beta self + alpha (x y). The product of f16 and bf16 stays f32 until the sum is made. As in ATen, beta = 0 means that
// self is not looked at: its NaN does not reach the result.
Value added(Context& c, std::string_view first, std::string_view second, const Pairing& pairing) {
  const Elem elem = result_opmath(c);
  Expr value = expr(c, dot(c, c.tensor(first), c.tensor(second), pairing, elem));
  if (!c.is_identity("alpha")) value = value * wide_scalar(c, "alpha");
  const Expr self = wide_like_result(c, "self");
  if (c.is_identity("beta")) return value + self;
  const Expr beta = wide_scalar(c, "beta");
  return value + where(equal(beta, 0), 0, self * beta);
}

Row sum_of_product(std::vector<std::string_view> overloads, std::string_view first, std::string_view second,
                   const Pairing& pairing) {
  return {.overloads = std::move(overloads),
          .emit = [=](Context& c) { return Values{added(c, first, second, pairing)}; },
          .identities = {{"alpha", 1}, {"beta", 1}}};
}

Values addmm_activation(Context& c) {
  const Expr x = expr(c, added(c, "mat1", "mat2", kMatrices));
  if (!c.boolean("use_gelu")) return {maximum(x, 0)};
  return {x * 0.5 * (1 + erf(x * 0.70710678118654752440))};
}

Values vdot(Context& c) {
  Value x = c.tensor("self");
  if (hlo::is_complex(x.elem())) x = conj(expr(c, x));
  return {dot(c, x, c.tensor("other"), kVectors)};
}

}  // namespace

std::vector<Row> matmul_rows() {
  return {
      product({"mm.out"}, "mat2", kMatrices),
      product({"bmm.out"}, "mat2", kBatches),
      product({"dot"}, "tensor", kVectors),
      {.overloads = {"vdot"}, .emit = vdot},
      sum_of_product({"addmm.out"}, "mat1", "mat2", kMatrices),
      sum_of_product({"baddbmm.out"}, "batch1", "batch2", kBatches),
      sum_of_product({"addbmm", "addbmm_", "addbmm.out"}, "batch1", "batch2", kSummedBatches),
      sum_of_product({"addmv.out"}, "mat", "vec", kMatrixVector),
      {.overloads = {"_addmm_activation.out"}, .emit = addmm_activation, .identities = {{"alpha", 1}, {"beta", 1}}},
  };
}

}  // namespace tpupilot::ops
