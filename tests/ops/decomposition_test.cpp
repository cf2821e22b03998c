// Decompositions on a plugin whose device is not the host. What they compute: tests/hostcalls/.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/layer_call.h"

namespace tpupilot::test {
namespace {

using hlo::Elem;

TEST(Decomposition, OtherDevicesAreToldWhatToDo) {
  const auto call = [](hlo::Platform platform) {
    return LayerCall("_linalg_eigvals")
        .tensor("self", array({Elem::F32, {1, 1}}, {2}))
        .result({Elem::C64, {1}})
        .on({.platform = platform});
  };
  for (const auto platform : {hlo::Platform::Tpu, hlo::Platform::Cuda}) {
    try {
      call(platform).run();
      FAIL() << "no error";
    } catch (const hlo::Error& error) {
      EXPECT_THAT(error.what(), testing::AllOf(testing::StartsWith("[_linalg_eigvals]"), testing::HasSubstr(".cpu()")));
    }
  }
}

TEST(Decomposition, EmptyMatricesNeedNoHost) {
  const auto found = LayerCall("_linalg_svd.U")
                         .tensor("A", array({Elem::F32, {2, 0}}, {}))
                         .set("full_matrices", true)
                         .set("compute_uv", true)
                         .none("driver")
                         .result({Elem::F32, {2, 2}})
                         .result({Elem::F32, {0}})
                         .result({Elem::F32, {0, 0}})
                         .on({.platform = hlo::Platform::Tpu})
                         .run();
  EXPECT_EQ(doubles(*found[0]), (std::vector<double>{1, 0, 0, 1}));
}

}  // namespace
}  // namespace tpupilot::test
