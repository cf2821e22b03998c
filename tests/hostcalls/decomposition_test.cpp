// Each decomposition against its definition, for all four types. What is not unique (signs, phases, order) is not
// asked.
#include <gtest/gtest.h>

#include <Eigen/LU>
#include <limits>

#include "hostcalls/support.h"
#include "pjrt/error.h"

namespace tpupilot::hostcalls::test {
namespace {

constexpr double kClose = 200;  // rounding errors; the matrices have up to 40 rows

template <class T>
class Decomposition : public testing::Test {};
using Types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(Decomposition, Types);

template <class T>
void expect_unitary(const Matrix<Wide<T>>& q) {
  EXPECT_LT(distance<T>(q.adjoint() * q, Matrix<Wide<T>>::Identity(q.cols(), q.cols())), kClose);
}

template <class T>
Matrix<Wide<T>> diagonal(const Tensor<T>& values) {
  return read_vector<T>(values.array(), 0).asDiagonal();
}

TYPED_TEST(Decomposition, QrOfTallWideAndBatched) {
  using T = TypeParam;
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{5, 3}, {3, 5}, {4, 4}, {40, 33}, {1, 1}}) {
    const int64_t k = std::min(m, n);
    Tensor<T> a = numbers<T>({2, m, n}), packed({2, m, n}), tau({2, k}), q({2, m, m});
    geqrf({{a.array()}, {packed.array(), tau.array()}, {}});
    orgqr({{packed.array(), tau.array()}, {q.array()}, {}});
    for (int i = 0; i < 2; ++i) {
      Matrix<Wide<T>> r = packed.matrix(i);
      r.template triangularView<Eigen::StrictlyLower>().setZero();
      expect_unitary<T>(q.matrix(i));
      EXPECT_LT(distance<T>(q.matrix(i) * r, a.matrix(i)), kClose);
      for (int64_t d = 0; d < k; ++d) EXPECT_EQ(std::imag(r(d, d)), 0);
    }
  }
}

TYPED_TEST(Decomposition, OrmqrAppliesWhatOrgqrMakes) {
  using T = TypeParam;
  Tensor<T> a = numbers<T>({5, 3}), packed({5, 3}), tau({3}), q({5, 5});
  geqrf({{a.array()}, {packed.array(), tau.array()}, {}});
  orgqr({{packed.array(), tau.array()}, {q.array()}, {}});
  for (const bool left : {true, false}) {
    for (const bool transpose : {true, false}) {
      Tensor<T> c = left ? numbers<T>({5, 2}, 7) : numbers<T>({2, 5}, 7), product(c.dims);
      ormqr({{packed.array(), tau.array(), c.array()}, {product.array()}, {{"left", left}, {"transpose", transpose}}});
      const Matrix<Wide<T>> factor = transpose ? Matrix<Wide<T>>(q.matrix().adjoint()) : q.matrix();
      EXPECT_LT(distance<T>(product.matrix(), left ? factor * c.matrix() : c.matrix() * factor), kClose);
    }
  }
}

TYPED_TEST(Decomposition, EighReadsOneTriangleAndIsAscending) {
  using T = TypeParam;
  for (const bool lower : {true, false}) {
    for (const int64_t n : {1, 6, 40}) {
      Tensor<T> a = numbers<T>({n, n}), vectors({n, n});
      Tensor<Real<T>> values({n}), alone({n});
      eigh({{a.array()}, {values.array(), vectors.array()}, {{"lower", lower}}});
      eigh({{a.array()}, {alone.array()}, {{"lower", lower}}});
      Matrix<Wide<T>> full = lower ? a.matrix() : Matrix<Wide<T>>(a.matrix().adjoint());
      full = full.template selfadjointView<Eigen::Lower>();
      for (int64_t i = 0; i < n; ++i) full(i, i) = std::real(full(i, i));
      const Matrix<Wide<T>> v = vectors.matrix();
      const Matrix<Wide<T>> d = diagonal(values);
      expect_unitary<T>(v);
      EXPECT_LT(distance<T>(v * d * v.adjoint(), full), kClose);
      EXPECT_TRUE(std::is_sorted(values.values.begin(), values.values.end()));
      for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(alone.values[i], values.values[i], 1e-4);
    }
  }
}

TYPED_TEST(Decomposition, SvdThinFullAndValues) {
  using T = TypeParam;
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{5, 3}, {3, 5}, {40, 24}, {20, 30}}) {
    for (const bool full : {false, true}) {
      const int64_t k = std::min(m, n);
      Tensor<T> a = numbers<T>({m, n}), u({m, full ? m : k}), vh({full ? n : k, n});
      Tensor<Real<T>> s({k}), alone({k});
      svd({{a.array()}, {u.array(), s.array(), vh.array()}, {}});
      svd({{a.array()}, {alone.array()}, {}});
      expect_unitary<T>(u.matrix());
      expect_unitary<T>(vh.matrix().adjoint());
      const Matrix<Wide<T>> d = diagonal(s);
      EXPECT_LT(distance<T>(u.matrix().leftCols(k) * d * vh.matrix().topRows(k), a.matrix()), kClose);
      EXPECT_TRUE(std::is_sorted(s.values.rbegin(), s.values.rend()));
      for (int64_t i = 0; i < k; ++i) EXPECT_NEAR(alone.values[i], s.values[i], 1e-4);
    }
  }
}

TYPED_TEST(Decomposition, EigHoldsAndIsNormalised) {
  using T = TypeParam;
  using C = Complex<T>;
  for (const int64_t n : {1, 2, 7, 30}) {
    Tensor<T> a = numbers<T>({n, n});
    Tensor<C> values({n}), vectors({n, n}), alone({n});
    eig({{a.array()}, {values.array(), vectors.array()}, {}});
    eig({{a.array()}, {alone.array()}, {}});
    const Matrix<Wide<C>> v = vectors.matrix();
    EXPECT_LT(distance<C>(a.matrix().template cast<Wide<C>>() * v, v * diagonal(values)), kClose);
    for (int64_t j = 0; j < n; ++j) {
      Eigen::Index largest = 0;
      v.col(j).cwiseAbs2().maxCoeff(&largest);
      EXPECT_NEAR(v.col(j).norm(), 1, 1e-5);
      EXPECT_EQ(v(largest, j).imag(), 0);
    }
  }
}

TYPED_TEST(Decomposition, EigOfADefectiveMatrixIsFinite) {
  using T = TypeParam;
  using C = Complex<T>;
  Tensor<T> a({2, 2}, {T(1), T(1), T(0), T(1)});
  Tensor<C> values({2}), vectors({2, 2});
  eig({{a.array()}, {values.array(), vectors.array()}, {}});
  EXPECT_TRUE(vectors.matrix().allFinite());
  EXPECT_NEAR(std::abs(vectors.values[1]), 1, 1e-5);  // both vectors are the one that there is
}

template <class T>
Matrix<Wide<T>> symmetric(int64_t n, bool hermitian) {
  const Matrix<Wide<T>> a = numbers<T>({n, n}, 3).matrix();
  return hermitian ? Matrix<Wide<T>>(a + a.adjoint()) : Matrix<Wide<T>>(a + a.transpose());
}

TYPED_TEST(Decomposition, LdlSolves) {
  using T = TypeParam;
  for (const bool hermitian : {false, true}) {
    for (const int64_t n : {1, 2, 5, 30}) {
      const Matrix<Wide<T>> a = symmetric<T>(n, hermitian);
      Tensor<T> given = from<T>(a), ld({n, n}), b = numbers<T>({n, 3}, 5), x({n, 3});
      Tensor<int32_t> pivots({n}), info({1});
      ldl_factor({{given.array()},
                  {ld.array(), pivots.array(), {pjrt::ElementType::S32, {}, info.values.data()}},
                  {{"hermitian", hermitian}, {"check_errors", 1}}});
      ldl_solve({{ld.array(), pivots.array(), b.array()}, {x.array()}, {{"hermitian", hermitian}}});
      EXPECT_EQ(info.values[0], 0);
      EXPECT_LT(distance<T>(a * x.matrix(), b.matrix()), 20 * kClose) << n << " rows, hermitian " << hermitian;
    }
  }
}

TEST(Ldl, PivotsAreEncodedAsLapackDoes) {
  Tensor<double> a({2, 2}, {0, 1, 1, 0}), ld({2, 2}), zero({2, 2}, {0, 0, 0, 0});
  Tensor<int32_t> pivots({2}), info({1});
  const auto factor = [&](Tensor<double>& from, bool check) {
    ldl_factor({{from.array()},
                {ld.array(), pivots.array(), {pjrt::ElementType::S32, {}, info.values.data()}},
                {{"hermitian", 0}, {"check_errors", check}}});
  };
  factor(a, true);
  EXPECT_EQ(pivots.values, (std::vector<int32_t>{-2, -2}));
  EXPECT_EQ(ld.values, (std::vector<double>{0, 0, 1, 0}));
  factor(zero, false);
  EXPECT_EQ(pivots.values, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(info.values[0], 1);
  EXPECT_THROW(factor(zero, true), pjrt::Error);
}

TEST(Ldl, SolveRefusesPivotsThatAreNone) {
  Tensor<double> ld({2, 2}, {1, 0, 0, 1}), b({2, 1}, {1, 1}), x({2, 1});
  for (const std::vector<int32_t>& wrong : {std::vector<int32_t>{0, 0}, {3, 2}, {1, -2}, {1, 1}, {-3, -3}}) {
    Tensor<int32_t> pivots({2}, wrong);
    EXPECT_THROW(ldl_solve({{ld.array(), pivots.array(), b.array()}, {x.array()}, {{"hermitian", 0}}}), pjrt::Error);
  }
}

TEST(Errors, NameTheFunctionAndThePlaceInTheBatch) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Tensor<double> a({2, 1, 1}, {1, nan}), values({2, 1}), vectors({2, 1, 1});
  const auto text = [&](auto function, HostCall call) -> std::string {
    try {
      function(call);
    } catch (const pjrt::Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(text(eigh, {{a.array()}, {values.array(), vectors.array()}, {{"lower", 1}}})
                .find("linalg.eigh: (Batch element 1): The algorithm failed to converge"),
            0u);
  EXPECT_EQ(text(svd, {{a.array()}, {values.array()}, {}}),
            "linalg.svd: (Batch element 1): The algorithm failed to converge because the input matrix contained "
            "non-finite values.");
  EXPECT_EQ(text(eigh, {{a.array()}, {values.array()}, {}}),
            "[HostCall::integer] the program gives no integer 'lower' in backend_config");
  Tensor<int32_t> integers({1, 1}, {1});
  EXPECT_NE(text(svd, {{integers.array()}, {values.array()}, {}}).find("a matrix of s32"), std::string::npos);
}

}  // namespace
}  // namespace tpupilot::hostcalls::test
