// Singular values: divide and conquer of the bidiagonal form, Jacobi rotations where the matrix is small.
#include <Eigen/SVD>

#include "hostcalls/hostcalls.h"
#include "hostcalls/matrix.h"

namespace tpupilot::hostcalls {
namespace {

enum class Factors { None, Thin, Full };

template <class T>  // a wide type
struct Decomposition {
  Matrix<T> u, v;  // empty if only the values were asked for
  Vector<Real<T>> s;
  bool converged = true;
};

template <class T>
Decomposition<T> decompose(const Matrix<T>& a, Factors factors) {
  Decomposition<T> found;
  if (a.size() == 0) {  // no singular values; the full factors are still unitary
    found.u = Matrix<T>::Identity(a.rows(), a.rows());
    found.v = Matrix<T>::Identity(a.cols(), a.cols());
    return found;
  }
  unsigned options = 0;
  if (factors == Factors::Thin) options = Eigen::ComputeThinU | Eigen::ComputeThinV;
  if (factors == Factors::Full) options = Eigen::ComputeFullU | Eigen::ComputeFullV;
  const Eigen::BDCSVD<Matrix<T>> solver(a, options);
  found.converged = solver.info() == Eigen::Success;
  if (!found.converged) return found;
  found.s = solver.singularValues();
  if (factors != Factors::None) {
    found.u = solver.matrixU();
    found.v = solver.matrixV();
  }
  return found;
}

Factors factors_of(const HostCall& call) {
  if (call.results.size() == 1) return Factors::None;
  const HostArray& a = call.operands[0];
  const bool full = size(call.results[0], 0) == size(a, 1) && size(call.results[2], 1) == size(a, 0);
  return full ? Factors::Full : Factors::Thin;
}

}  // namespace

void svd(const HostCall& call) {
  const Factors factors = factors_of(call);
  const HostArray& a = call.operands[0];
  const HostArray& s = call.results[factors == Factors::None ? 0 : 1];
  for_type(a, [&]<class T>(T) {
    for (int64_t i = 0; i < batches(a, 2); ++i) {
      const Matrix<Wide<T>> given = read_matrix<T>(a, i);
      if (!given.allFinite())
        fail("linalg.svd", a, i,
             "The algorithm failed to converge because the input matrix contained non-finite values.");
      const Decomposition<Wide<T>> found = decompose(given, factors);
      if (!found.converged)
        fail("linalg.svd", a, i,
             "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated "
             "singular values (error code: " +
                 std::to_string(size(s, 0)) + ").");
      write_vector<Real<T>>(s, i, found.s);
      if (factors == Factors::None) continue;
      write_matrix<T>(call.results[0], i, found.u.leftCols(size(call.results[0], 0)));
      write_matrix<T>(call.results[2], i, found.v.leftCols(size(call.results[2], 1)).adjoint());
    }
  });
}

}  // namespace tpupilot::hostcalls
