// Householder QR. A reflector is I - tau v v^H; Eigen's factorisation keeps the conjugate of LAPACK's tau.
#include <Eigen/QR>

#include "hostcalls/hostcalls.h"
#include "hostcalls/matrix.h"

namespace tpupilot::hostcalls {
namespace {

// x becomes Q x, or Q^H x, where Q is made of the first tau.size() columns of `packed`.
template <class T>  // a wide type
void apply(const Matrix<T>& packed, const Vector<T>& tau, bool adjoint, Matrix<T>& x) {
  if (tau.size() == 0 || x.size() == 0) return;
  const Matrix<T> vectors = packed.leftCols(tau.size());
  const auto q = Eigen::householderSequence(vectors, tau);
  if (adjoint) {
    x.applyOnTheLeft(q.adjoint());
  } else {
    x.applyOnTheLeft(q);
  }
}

}  // namespace

void geqrf(const HostCall& call) {
  const HostArray& a = call.operands[0];
  for_type(a, [&]<class T>(T) {
    if (call.results[1].dims.back() == 0) return;
    for (int64_t i = 0; i < batches(a, 2); ++i) {
      const Eigen::HouseholderQR<Matrix<Wide<T>>> qr(read_matrix<T>(a, i));
      write_matrix<T>(call.results[0], i, qr.matrixQR());
      write_vector<T>(call.results[1], i, qr.hCoeffs().conjugate());
    }
  });
}

void orgqr(const HostCall& call) {
  const HostArray& q = call.results[0];
  for_type(q, [&]<class T>(T) {
    for (int64_t i = 0; i < batches(q, 2); ++i) {
      Matrix<Wide<T>> columns = Matrix<Wide<T>>::Identity(size(q, 1), size(q, 0));
      apply(read_matrix<T>(call.operands[0], i), read_vector<T>(call.operands[1], i), false, columns);
      write_matrix<T>(q, i, columns);
    }
  });
}

void ormqr(const HostCall& call) {
  const bool left = call.integer("left") != 0, transpose = call.integer("transpose") != 0;
  const HostArray& c = call.operands[2];
  for_type(c, [&]<class T>(T) {
    for (int64_t i = 0; i < batches(c, 2); ++i) {
      // C Q is the adjoint of Q^H C^H.
      Matrix<Wide<T>> x = read_matrix<T>(c, i);
      if (!left) x.adjointInPlace();
      apply(read_matrix<T>(call.operands[0], i), read_vector<T>(call.operands[1], i), transpose == left, x);
      if (!left) x.adjointInPlace();
      write_matrix<T>(call.results[0], i, x);
    }
  });
}

}  // namespace tpupilot::hostcalls
