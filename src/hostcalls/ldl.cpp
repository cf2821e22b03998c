// Bunch and Kaufman's factorisation of an indefinite matrix, A = L D L^T (or L D L^H), with diagonal blocks of one and
// two rows ("Some stable methods for calculating inertia and solving symmetric linear systems", 1977). Pivots are
// encoded as LAPACK's ?sytrf does for a lower triangle: p > 0 is a block of one row that was swapped with row p
// (counted from 1); two equal entries -p are a block of two rows, of which the second was swapped with row p.
#include <algorithm>
#include <cmath>
#include <utility>

#include "hostcalls/hostcalls.h"
#include "hostcalls/matrix.h"

namespace tpupilot::hostcalls {
namespace {

using Eigen::Index;
using Pivots = Eigen::VectorX<int32_t>;

template <class T>
constexpr bool kComplex = Eigen::NumTraits<T>::IsComplex != 0;

// How large an element counts when pivots are chosen.
template <class T>
Real<T> weight(const T& x) {
  if constexpr (kComplex<T>)
    return std::abs(x.real()) + std::abs(x.imag());
  else
    return std::abs(x);
}

template <class T>
T conjugate_if(const T& x, bool hermitian) {
  if constexpr (kComplex<T>)
    return hermitian ? std::conj(x) : x;
  else
    return x;
}

template <class T>
class Factorisation {
 public:
  Factorisation(Matrix<T>& a, bool hermitian) : a_(a), n_(a.rows()), hermitian_(hermitian) {}

  // The row (from 1) of the first diagonal block that is exactly zero, else 0.
  int32_t run(Eigen::Map<Pivots> pivots) {
    int32_t info = 0;
    for (Index k = 0; k < n_;) {
      const Pivot p = choose(k);
      if (p.singular && info == 0) info = static_cast<int32_t>(k + 1);
      const Index last = k + p.rows - 1;
      if (!p.singular) {
        swap(last, p.row, k, p.rows);
        p.rows == 1 ? eliminate_one(k) : eliminate_two(k);
      }
      for (Index i = k; i <= last; ++i) pivots(i) = static_cast<int32_t>(p.rows == 1 ? p.row + 1 : -(p.row + 1));
      k = last + 1;
    }
    return info;
  }

 private:
  struct Pivot {
    Index row;       // which row becomes the last one of the block
    Index rows = 1;  // of the block
    bool singular = false;
  };

  Real<T> diagonal_weight(Index i) const {
    return hermitian_ ? std::abs(Eigen::numext::real(a_(i, i))) : weight(a_(i, i));
  }

  // The largest off-diagonal weight of the symmetric matrix's row `i`, among columns from k on.
  Real<T> largest_in_row(Index i, Index k) const {
    Real<T> largest = 0;
    for (Index j = k; j < i; ++j) largest = std::max(largest, weight(a_(i, j)));
    for (Index j = i + 1; j < n_; ++j) largest = std::max(largest, weight(a_(j, i)));
    return largest;
  }

  Pivot choose(Index k) const {
    const Real<T> alpha = (1 + std::sqrt(Real<T>(17))) / 8;  // bounds the growth of elements best
    const Real<T> here = diagonal_weight(k);
    Index row = k;
    Real<T> in_column = 0;
    for (Index i = k + 1; i < n_; ++i) {
      if (weight(a_(i, k)) > in_column) in_column = weight(a_(i, k)), row = i;
    }
    if (std::max(here, in_column) == 0 || std::isnan(here)) return {k, 1, true};
    if (here >= alpha * in_column) return {k};
    const Real<T> in_row = largest_in_row(row, k);
    if (here >= alpha * in_column * (in_column / in_row)) return {k};
    if (diagonal_weight(row) >= alpha * in_row) return {row};
    return {row, 2};
  }

  // Swaps rows and columns `i` and `p` >= i of the trailing matrix, whose block begins at row k.
  void swap(Index i, Index p, Index k, Index rows) {
    if (p == i) return;
    for (Index j = p + 1; j < n_; ++j) std::swap(a_(j, i), a_(j, p));
    for (Index j = i + 1; j < p; ++j) {
      const T old = a_(j, i);
      a_(j, i) = conjugate_if(a_(p, j), hermitian_);
      a_(p, j) = conjugate_if(old, hermitian_);
    }
    a_(p, i) = conjugate_if(a_(p, i), hermitian_);
    std::swap(a_(i, i), a_(p, p));
    if (rows == 2) std::swap(a_(k + 1, k), a_(p, k));
  }

  void make_real(Index i) {
    if (hermitian_) a_(i, i) = Eigen::numext::real(a_(i, i));
  }

  void eliminate_one(Index k) {
    make_real(k);
    const T inverse = T(1) / a_(k, k);
    for (Index j = k + 1; j < n_; ++j) {
      const T factor = inverse * conjugate_if(a_(j, k), hermitian_);
      for (Index i = j; i < n_; ++i) a_(i, j) -= a_(i, k) * factor;
      make_real(j);
    }
    for (Index i = k + 1; i < n_; ++i) a_(i, k) *= inverse;
  }

  // The block is [[d11, conj(d21)], [d21, d22]]; everything is scaled by |d21| or d21, the largest of it.
  void eliminate_two(Index k) {
    make_real(k);
    make_real(k + 1);
    const T d21 = a_(k + 1, k);
    const T scale = hermitian_ ? T(Eigen::numext::abs(d21)) : d21;
    const T unit = d21 / scale;
    const T d11 = a_(k + 1, k + 1) / scale, d22 = a_(k, k) / scale;
    const T factor = T(1) / (d11 * d22 - T(1)) / scale;
    for (Index j = k + 2; j < n_; ++j) {
      const T first = factor * (d11 * a_(j, k) - unit * a_(j, k + 1));
      const T second = factor * (d22 * a_(j, k + 1) - conjugate_if(unit, hermitian_) * a_(j, k));
      for (Index i = j; i < n_; ++i) {
        a_(i, j) -= a_(i, k) * conjugate_if(first, hermitian_) + a_(i, k + 1) * conjugate_if(second, hermitian_);
      }
      a_(j, k) = first;
      a_(j, k + 1) = second;
      make_real(j);
    }
  }

  Matrix<T>& a_;
  Index n_;
  bool hermitian_;
};

// X of L D L^T X = B, in the place of B.
template <class T>
class Substitution {
 public:
  Substitution(const Matrix<T>& ld, const Eigen::Map<Pivots>& pivots, bool hermitian)
      : ld_(ld), pivots_(pivots), n_(ld.rows()), hermitian_(hermitian) {}

  void run(Matrix<T>& b) const {
    for (Index k = 0; k < n_; k += block(k)) forward(b, k);
    for (Index k = n_; k > 0;) k = backward(b, k - 1);
  }

 private:
  Index block(Index k) const { return pivots_(k) > 0 ? 1 : 2; }
  Index row(Index k) const { return std::abs(pivots_(k)) - 1; }

  void forward(Matrix<T>& b, Index k) const {
    const Index rows = block(k), last = k + rows - 1, below = n_ - last - 1;
    if (row(k) != last) b.row(last).swap(b.row(row(k)));
    b.bottomRows(below).noalias() -= ld_.block(last + 1, k, below, rows) * b.middleRows(k, rows);
    if (rows == 1) {
      b.row(k) /= ld_(k, k);
      return;
    }
    const T d21 = ld_(k + 1, k), d12 = conjugate_if(d21, hermitian_);
    const T d11 = ld_(k, k) / d12, d22 = ld_(k + 1, k + 1) / d21, determinant = d11 * d22 - T(1);
    for (Index j = 0; j < b.cols(); ++j) {
      const T first = b(k, j) / d12, second = b(k + 1, j) / d21;
      b(k, j) = (d22 * first - second) / determinant;
      b(k + 1, j) = (d11 * second - first) / determinant;
    }
  }

  // Undoes the block whose last row is `last`; returns where the block begins.
  Index backward(Matrix<T>& b, Index last) const {
    const Index rows = block(last), k = last - rows + 1, below = n_ - last - 1;
    const Matrix<T> l = ld_.block(last + 1, k, below, rows);
    if (hermitian_) {
      b.middleRows(k, rows).noalias() -= l.adjoint() * b.bottomRows(below);
    } else {
      b.middleRows(k, rows).noalias() -= l.transpose() * b.bottomRows(below);
    }
    if (row(last) != last) b.row(last).swap(b.row(row(last)));
    return k;
  }

  const Matrix<T>& ld_;
  Eigen::Map<Pivots> pivots_;
  Index n_;
  bool hermitian_;
};

void check_pivots(const HostArray& pivots, int64_t i) {
  const auto p = integers(pivots, i);
  for (Index k = 0; k < p.size(); ++k) {
    const bool pair = p(k) < 0 && k + 1 < p.size() && p(k + 1) == p(k);
    const Index last = pair ? k + 1 : k, row = std::abs(static_cast<Index>(p(k))) - 1;
    if (p(k) == 0 || (p(k) < 0 && !pair) || row < last || row >= p.size())
      throw pjrt::Error(pjrt::Error::Code::InvalidArgument,
                        "linalg.ldl_solve: pivots[" + std::to_string(k) + "] = " + std::to_string(p(k)) +
                            " is no pivot of a matrix of " + std::to_string(p.size()) +
                            " rows. Pass what linalg.ldl_factor gave.");
    k = last;
  }
}

}  // namespace

void ldl_factor(const HostCall& call) {
  const bool hermitian = call.integer("hermitian") != 0, check_errors = call.integer("check_errors") != 0;
  const HostArray& a = call.operands[0];
  for_type(a, [&]<class T>(T) {
    for (int64_t i = 0; i < batches(a, 2); ++i) {
      Matrix<Wide<T>> ld = read_matrix<T>(a, i);
      ld.template triangularView<Eigen::StrictlyUpper>().setZero();
      const int32_t info = Factorisation(ld, hermitian).run(integers(call.results[1], i));
      if (info != 0 && check_errors)
        fail("torch.linalg.ldl_factor_ex", a, i,
             "The diagonal block of D at row " + std::to_string(info) + " is zero: the matrix is singular.");
      static_cast<int32_t*>(call.results[2].data)[i] = info;
      write_matrix<T>(call.results[0], i, ld);
    }
  });
}

void ldl_solve(const HostCall& call) {
  const bool hermitian = call.integer("hermitian") != 0;
  const HostArray& a = call.operands[0];
  const HostArray& pivots = call.operands[1];
  for_type(a, [&]<class T>(T) {
    for (int64_t i = 0; i < batches(a, 2); ++i) {
      check_pivots(pivots, i);
      const Matrix<Wide<T>> ld = read_matrix<T>(a, i);
      Matrix<Wide<T>> x = read_matrix<T>(call.operands[2], i);
      Substitution(ld, integers(pivots, i), hermitian).run(x);
      write_matrix<T>(call.results[0], i, x);
    }
  });
}

}  // namespace tpupilot::hostcalls
