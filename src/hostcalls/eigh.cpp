// Eigenvalues and vectors of a symmetric or Hermitian matrix: tridiagonal form, then QR iterations.
#include <Eigen/Eigenvalues>

#include "hostcalls/hostcalls.h"
#include "hostcalls/matrix.h"

namespace tpupilot::hostcalls {

void eigh(const HostCall& call) {
  const bool lower = call.integer("lower") != 0, vectors = call.results.size() > 1;
  const HostArray& a = call.operands[0];
  for_type(a, [&]<class T>(T) {
    if (size(a, 0) == 0) return;
    for (int64_t i = 0; i < batches(a, 2); ++i) {
      Matrix<Wide<T>> triangle = read_matrix<T>(a, i);
      if (!lower) triangle.adjointInPlace();
      triangle.template triangularView<Eigen::StrictlyUpper>().setZero();
      const auto fail_with = [&](int64_t code) {
        fail("linalg.eigh", a, i,
             "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated "
             "eigenvalues (error code: " +
                 std::to_string(code) + ").");
      };
      if (!triangle.allFinite()) fail_with(1);
      const Eigen::SelfAdjointEigenSolver<Matrix<Wide<T>>> solver(
          triangle, vectors ? Eigen::ComputeEigenvectors : Eigen::EigenvaluesOnly);
      if (solver.info() != Eigen::Success) fail_with(size(a, 0));
      write_vector<Real<T>>(call.results[0], i, solver.eigenvalues());
      if (vectors) write_matrix<T>(call.results[1], i, solver.eigenvectors());
    }
  });
}

}  // namespace tpupilot::hostcalls
