// The functions as a program on the CPU plugin calls them.
#include "support/plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hostcalls/hostcalls.h"
#include "pjrt/error.h"
#include "support/run.h"

namespace tpupilot::hostcalls {
namespace {

using hlo::Builder;
using hlo::Elem;
using hlo::Type;
using tpupilot::test::array;
using tpupilot::test::doubles;
using tpupilot::test::evaluate;

void make_known() {
  static const auto* client = new auto(pjrt::Client::create(pjrt::Plugin::load(tpupilot::test::cpu_plugin())));
  register_all(**client);
  register_all(**client);  // again is free
}

TEST(Plugin, CallsWithOperandsResultsAndIntegers) {
  make_known();
  Builder b;
  const Type matrix{Elem::F64, {2, 2}};
  const hlo::Value a = b.parameter(matrix);
  const auto upper = b.custom_call("tpupilot.eigh", {a}, {{Elem::F64, {2}}, matrix}, {{"lower", 0}});
  const auto lower = b.custom_call("tpupilot.eigh", {a}, {{Elem::F64, {2}}}, {{"lower", 1}});
  const auto found = evaluate(b, {upper[0], lower[0]}, {array(matrix, {2, 1, 0, 2})});
  EXPECT_THAT(doubles(found[0]), testing::Pointwise(testing::DoubleNear(1e-12), {1, 3}));
  EXPECT_THAT(doubles(found[1]), testing::Pointwise(testing::DoubleNear(1e-12), {2, 2}));
}

TEST(Plugin, OperandsThatAreComputedComeRowByRow) {
  make_known();
  Builder b;
  const Type matrix{Elem::F32, {2, 3}};
  const hlo::Value turned = b.transpose(b.parameter(matrix), {1, 0});
  const Type tall{Elem::F32, {3, 2}};
  const auto qr = b.custom_call("tpupilot.geqrf", {turned}, {tall, {Elem::F32, {2}}});
  const auto found = evaluate(b, {qr[0]}, {array(matrix, {3, 0, 4, 0, 2, 0})});
  // The first column of the transposed matrix is (3, 0, 4).
  EXPECT_NEAR(doubles(found[0])[0], -5, 1e-6);
}

TEST(Plugin, AnErrorEndsTheProgramWithItsText) {
  make_known();
  Builder b;
  const Type matrix{Elem::F32, {1, 1}};
  const auto s = b.custom_call("tpupilot.svd", {b.parameter(matrix)}, {{Elem::F32, {1}}});
  try {
    evaluate(b, s, {array(matrix, {std::numeric_limits<double>::quiet_NaN()})});
    FAIL() << "no error";
  } catch (const pjrt::Error& error) {
    EXPECT_EQ(error.code(), pjrt::Error::Code::OutOfRange);
    EXPECT_THAT(error.what(), testing::EndsWith("linalg.svd: The algorithm failed to converge because the input matrix "
                                                "contained non-finite values."));
  }
}

}  // namespace
}  // namespace tpupilot::hostcalls
