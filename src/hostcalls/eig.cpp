// Eigenvalues and vectors of a general matrix, from its Schur form. The order is that of the Schur form's diagonal.
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <limits>

#include "hostcalls/hostcalls.h"
#include "hostcalls/matrix.h"

namespace tpupilot::hostcalls {
namespace {

template <class C>
struct Pairs {
  Vector<C> values;
  Matrix<C> vectors;
  bool converged = false;
};

// Each column gets norm 1 and the phase that makes its largest component real and positive: LAPACK's ?geev.
template <class C>
void normalise(Matrix<C>& vectors) {
  using R = Real<C>;
  for (Eigen::Index j = 0; j < vectors.cols(); ++j) {
    auto column = vectors.col(j);
    column /= column.stableNorm();
    if (column.imag().isZero(0)) continue;  // real vectors keep their sign
    Eigen::Index largest = 0;
    column.cwiseAbs2().maxCoeff(&largest);
    const C value = column(largest);
    column *= std::conj(value) / std::abs(value);
    column(largest) = R(column(largest).real());
  }
}

// Vectors of an upper triangular matrix by back substitution; equal eigenvalues are taken apart by a rounding error, so
// that a defective matrix gives parallel vectors and no infinities.
template <class C>
Matrix<C> triangular_vectors(const Matrix<C>& t) {
  using R = Real<C>;
  const Eigen::Index n = t.rows();
  const R smallest = std::max(Eigen::NumTraits<R>::epsilon() * t.cwiseAbs().maxCoeff(), std::numeric_limits<R>::min());
  Matrix<C> x = Matrix<C>::Identity(n, n);
  for (Eigen::Index k = 0; k < n; ++k) {
    for (Eigen::Index i = k; i-- > 0;) {
      const C sum = t(i, k) + (t.row(i).segment(i + 1, k - i - 1) * x.col(k).segment(i + 1, k - i - 1)).value();
      C gap = t(i, i) - t(k, k);
      if (std::abs(gap) < smallest) gap = smallest;
      x(i, k) = -sum / gap;
    }
  }
  return x;
}

template <class R>
Pairs<std::complex<R>> solve(const Matrix<R>& a, bool vectors) {
  const Eigen::EigenSolver<Matrix<R>> solver(a, vectors);
  Pairs<std::complex<R>> found;
  found.converged = solver.info() == Eigen::Success;
  if (!found.converged) return found;
  found.values = solver.eigenvalues();
  if (vectors) found.vectors = solver.eigenvectors();
  return found;
}

template <class R>
Pairs<std::complex<R>> solve(const Matrix<std::complex<R>>& a, bool vectors) {
  using C = std::complex<R>;
  const Eigen::ComplexSchur<Matrix<C>> schur(a, vectors);
  Pairs<C> found;
  found.converged = schur.info() == Eigen::Success;
  if (!found.converged) return found;
  found.values = schur.matrixT().diagonal();
  if (vectors) found.vectors = schur.matrixU() * triangular_vectors<C>(schur.matrixT());
  return found;
}

}  // namespace

void eig(const HostCall& call) {
  const bool vectors = call.results.size() > 1;
  const HostArray& a = call.operands[0];
  for_type(a, [&]<class T>(T) {
    if (size(a, 0) == 0) return;
    for (int64_t i = 0; i < batches(a, 2); ++i) {
      const Matrix<Wide<T>> given = read_matrix<T>(a, i);
      if (!given.allFinite())
        throw pjrt::Error(pjrt::Error::Code::InvalidArgument,
                          "torch.linalg.eig: input tensor should not contain infs or NaNs.");
      auto found = solve(given, vectors);
      if (!found.converged)
        fail("linalg.eig", a, i,
             "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated "
             "eigenvalues (error code: " +
                 std::to_string(size(a, 0)) + ").");
      write_vector<Complex<T>>(call.results[0], i, found.values);
      if (!vectors) continue;
      normalise(found.vectors);
      write_matrix<Complex<T>>(call.results[1], i, found.vectors);
    }
  });
}

}  // namespace tpupilot::hostcalls
