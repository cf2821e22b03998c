// Decompositions that StableHLO has no sound form for: QR, eigenvalues, singular values, LDL. Their programs call
// functions of the host (src/hostcalls/), which only a plugin whose device is the host can do.
#include <array>

#include "ops/row.h"

namespace tpupilot::ops {
namespace {

using hlo::Direction;

constexpr std::string_view kRemark =
    "computed on the host by a call from the CPU plugin's program; a TPU plugin has no such path";

using Integers = std::vector<std::pair<std::string_view, int64_t>>;

Values host_call(Context& c, std::string_view name, const Values& in, const std::vector<Type>& out,
                 const Integers& integers = {}) {
  if (!c.b.target().cpu()) {
    throw hlo::Error("[" + std::string(c.overload()) +
                     "] this decomposition runs on the host of a CPU plugin, and this plugin's device is another. "
                     "Compute it on the CPU explicitly: move the tensor with .cpu(), and the result back.");
  }
  const Elem real = hlo::real_of(in[0].elem());
  if (real != Elem::F32 && real != Elem::F64) {
    throw hlo::Error("[" + std::string(c.overload()) + "] not implemented for " + std::string(hlo::name(in[0].elem())) +
                     ", as on the CPU. Convert the matrix to f32, f64, c64 or c128.");
  }
  return c.b.custom_call("tpupilot." + std::string(name), in, out, integers);
}

int64_t rows_of(const Type& t) { return t.dims[t.dims.size() - 2]; }
int64_t cols_of(const Type& t) { return t.dims.back(); }

// `type` with its last dims replaced, as many as are given.
Type ending(Type type, Elem elem, const Dims& last, size_t replaced = 2) {
  type.elem = elem;
  type.dims.resize(type.dims.size() - replaced);
  type.dims.insert(type.dims.end(), last.begin(), last.end());
  return type;
}

Value is_upper(Builder& b, const Type& type) {  // Pred: on the diagonal or above it
  const Type index{Elem::S64, type.dims};
  return b.compare(Direction::LE, b.iota(index, type.rank() - 2), b.iota(index, type.rank() - 1));
}

Value eye(Builder& b, const Type& type) {
  const Type index{Elem::S64, type.dims};
  const Value diagonal = b.compare(Direction::EQ, b.iota(index, type.rank() - 2), b.iota(index, type.rank() - 1));
  return b.convert(diagonal, type.elem);
}

// ---- QR ----
struct Packed {
  Value reflectors, tau;
};

Packed factored(Context& c, const Value& a) {
  const int64_t k = std::min(rows_of(a.type), cols_of(a.type));
  const Type tau = ending(a.type, a.elem(), {k});
  if (a.type.numel() == 0) return {a, c.b.zeros(tau)};
  const Values found = host_call(c, "geqrf", {a}, {a.type, tau});
  return {found[0], found[1]};
}

Values geqrf(Context& c) {
  const Packed p = factored(c, c.tensor("self"));
  return {p.reflectors, p.tau};
}

std::vector<Type> geqrf_shape(Context& c) {
  const Type a = c.tensor("self").type;
  if (a.rank() < 2) {
    throw hlo::Error("torch.geqrf: input must have at least 2 dimensions.");
  }
  return {a, ending(a, a.elem, {std::min(rows_of(a), cols_of(a))})};
}

// The first columns of the product of the reflectors.
Value product_of(Context& c, const Packed& p, const Type& type) {
  if (type.numel() == 0) return c.b.zeros(type);
  if (p.tau.type.numel() == 0) return eye(c.b, type);
  return host_call(c, "orgqr", {p.reflectors, p.tau}, {type})[0];
}

Values qr(Context& c) {
  Builder& b = c.b;
  const Value a = c.tensor("A");
  const Packed p = factored(c, a);
  const Type& r = c.result(1);
  const Value top = b.slice_dim(p.reflectors, a.rank() - 2, 0, rows_of(r));
  const Value upper = b.select(is_upper(b, top.type), top, b.zeros(top.type));
  const bool wants_q = c.string("mode") != "r";
  return {wants_q ? product_of(c, p, c.result(0)) : b.zeros(c.result(0)), upper};
}

Values householder_product(Context& c) { return {product_of(c, {c.tensor("input"), c.tensor("tau")}, c.result(0))}; }

Values ormqr(Context& c) {
  const Value vectors = c.tensor("self"), tau = c.tensor("input2"), other = c.tensor("input3");
  if (other.type.numel() == 0 || tau.type.numel() == 0) return {other};
  return host_call(c, "ormqr", {vectors, tau, other}, {other.type},
                   {{"left", c.boolean("left")}, {"transpose", c.boolean("transpose")}});
}

// ---- eigenvalues and singular values ----
Values eigh(Context& c) {
  const Value a = c.tensor("A");
  const std::string triangle = c.string("UPLO");
  const Integers lower = {{"lower", triangle == "L" || triangle == "l"}};
  if (a.type.numel() == 0) return {c.b.zeros(c.result(0)), c.b.zeros(c.result(1))};
  if (c.boolean("compute_v")) return host_call(c, "eigh", {a}, {c.result(0), c.result(1)}, lower);
  return {host_call(c, "eigh", {a}, {c.result(0)}, lower)[0], c.b.zeros(c.result(1))};
}

Values svd(Context& c) {
  Builder& b = c.b;
  if (c.given("driver")) {
    throw hlo::Error(
        "[torch.linalg.svd] driver= chooses among the solvers of CUDA; this device has one. Leave it out.");
  }
  const Value a = c.tensor("A");
  const Type &u = c.result(0), &s = c.result(1), &vh = c.result(2);
  if (!c.boolean("compute_uv")) {
    const Value values = a.type.numel() == 0 ? b.zeros(s) : host_call(c, "svd", {a}, {s})[0];
    return {b.zeros(u), values, b.zeros(vh)};
  }
  if (a.type.numel() > 0) return host_call(c, "svd", {a}, {u, s, vh});
  const auto unitary = [&](const Type& t) { return t.numel() == 0 ? b.zeros(t) : eye(b, t); };
  return {unitary(u), b.zeros(s), unitary(vh)};
}

Values eig(Context& c) {
  const Value a = c.tensor("self");
  if (a.type.numel() == 0) return {c.b.zeros(c.result(0)), c.b.zeros(c.result(1))};
  return host_call(c, "eig", {a},
                   {c.result(0).with(hlo::complex_of(a.elem())), c.result(1).with(hlo::complex_of(a.elem()))});
}

Values eigvals(Context& c) {
  const Value a = c.tensor("self");
  if (a.type.numel() == 0) return {c.b.zeros(c.result(0))};
  return host_call(c, "eig", {a}, {c.result(0).with(hlo::complex_of(a.elem()))});
}

// ---- LDL ----
Values ldl_factor(Context& c) {
  const Value a = c.tensor("self");
  const Type pivots = c.result(1).with(Elem::S32), info = c.result(2).with(Elem::S32);
  if (a.type.numel() == 0) return {a, c.b.zeros(pivots), c.b.zeros(info)};
  return host_call(c, "ldl_factor", {a}, {a.type, pivots, info},
                   {{"hermitian", c.boolean("hermitian")}, {"check_errors", c.boolean("check_errors")}});
}

Values ldl_solve(Context& c) {
  const Type& x = c.result(0);
  if (x.numel() == 0) return {c.b.zeros(x)};
  const int64_t n = rows_of(x);
  const Value ld = c.tensor("LD"), pivots = c.tensor("pivots");
  return host_call(c, "ldl_solve",
                   {c.b.broadcast(ld, ending(x, ld.elem(), {n, n}).dims),
                    c.b.convert(c.b.broadcast(pivots, ending(x, pivots.elem(), {n}).dims), Elem::S32),
                    c.tensor_as("B", ld.elem(), x.dims)},
                   {x.with(ld.elem())}, {{"hermitian", c.boolean("hermitian")}});
}

}  // namespace

std::vector<Row> decomposition_rows() {
  std::vector<Row> rows = {
      {.overloads = {"geqrf", "geqrf.a"}, .emit = geqrf, .shape = geqrf_shape, .column_major = {0}},
      {.overloads = {"linalg_qr.out"}, .emit = qr},
      {.overloads = {"linalg_householder_product", "linalg_householder_product.out"}, .emit = householder_product},
      {.overloads = {"ormqr", "ormqr.out"}, .emit = ormqr},
      {.overloads = {"_linalg_eigh.eigenvalues"}, .emit = eigh},
      {.overloads = {"_linalg_svd.U"}, .emit = svd},
      {.overloads = {"linalg_eig", "linalg_eig.out"}, .emit = eig},
      {.overloads = {"_linalg_eigvals", "linalg_eigvals.out"}, .emit = eigvals},
      {.overloads = {"linalg_ldl_factor_ex.out"}, .emit = ldl_factor},
      {.overloads = {"linalg_ldl_solve.out"}, .emit = ldl_solve},
  };
  for (Row& row : rows) row.remark = kRemark;
  return rows;
}

}  // namespace tpupilot::ops
