// Each flag says what the plugin really does, whatever the plugin.
#include "quirks/quirks.h"

#include <gtest/gtest.h>

#include <cmath>

#include "fake_plugin/testing.h"

namespace tpupilot {
namespace {

using pjrt::ElementType;

// What is fast is wrong on some plugin; with the flag's answer the form that is chosen must be right on each.
double largest_error_of_atan(const hlo::Target& target, const pjrt::CompileOptions& options) {
  constexpr int64_t kCount = 1001;
  const std::string t = "tensor<" + std::to_string(kCount) + "xf64>";
  const std::string direct = "%0 = \"chlo.atan\"(%x) : (" + t + ") -> " + t;
  const std::string other = "%one = \"stablehlo.constant\"() <{value = dense<1.0> : " + t + "}> : () -> " + t +
                            " %b = \"stablehlo.optimization_barrier\"(%one) : (" + t + ") -> " + t +
                            " %0 = \"stablehlo.atan2\"(%x, %b) : (" + t + ", " + t + ") -> " + t;
  const std::string program = "module @m { func.func @main(%x: " + t + ") -> " + t + " { " +
                              (target.constant_atan2_is_wrong ? other : direct) + " return %0 : " + t + " } }";
  std::vector<double> x(kCount);
  for (int64_t i = 0; i < kCount; ++i) x[i] = static_cast<double>(i - 500) / 50;
  const auto client = test::cpu_client();
  const auto executable = client->compile(program, options, {{ElementType::F64, {kCount}}});
  const int64_t dims[] = {kCount};
  const auto argument = client->from_host(x.data(), ElementType::F64, dims, 0);
  pjrt::Buffer* arguments[] = {argument.get()};
  std::shared_ptr<pjrt::Buffer> out[1];
  executable->execute(arguments, 0, out);
  std::vector<double> y(kCount);
  out[0]->copy_to_host(y.data(), kCount * sizeof(double));
  double largest = 0;
  for (int64_t i = 0; i < kCount; ++i) largest = std::max(largest, std::abs(y[i] - std::atan(x[i])));
  return largest;
}

TEST(Quirks, TheFormThatTheFlagChoosesIsRight) {
  cache::ExecutableCache executables(test::cpu_client(), {});
  cache::NoteStore notes("");
  for (const auto& options : {pjrt::eager_options(), pjrt::region_options()}) {
    hlo::Target target;
    quirks::probe(target, *test::cpu_client(), executables, options, notes);
    EXPECT_LT(largest_error_of_atan(target, options), 1e-12);
  }
}

TEST(Quirks, AnAnswerIsFoundOnce) {
  const test::TemporaryFolder folder;
  const auto client = test::cpu_client();
  hlo::Target first, second;
  {
    cache::ExecutableCache executables(client, {});
    cache::NoteStore notes(folder.path() / "quirks");
    quirks::probe(first, *client, executables, pjrt::eager_options(), notes);
    EXPECT_EQ(executables.counters().misses, 1);
  }
  cache::ExecutableCache executables(client, {});
  cache::NoteStore notes(folder.path() / "quirks");
  quirks::probe(second, *client, executables, pjrt::eager_options(), notes);
  EXPECT_EQ(executables.counters().misses, 0);
  EXPECT_EQ(first.constant_atan2_is_wrong, second.constant_atan2_is_wrong);
}

// The fake plugin answers zeros to everything, and on demand does not compile.
TEST(Quirks, AWrongAnswerSetsTheFlagAndNoAnswerLeavesIt) {
  const auto client = test::fake_client();
  cache::ExecutableCache executables(client, {});
  for (const bool before : {false, true}) {
    const test::ScopedVariable fail("FAKE_PJRT_UNIMPLEMENTED", "Client_Compile");
    cache::NoteStore notes("");
    hlo::Target target;
    target.constant_atan2_is_wrong = before;
    quirks::probe(target, *client, executables, pjrt::eager_options(), notes);
    EXPECT_EQ(target.constant_atan2_is_wrong, before);
  }
  cache::NoteStore notes("");
  hlo::Target target;
  quirks::probe(target, *client, executables, pjrt::eager_options(), notes);
  EXPECT_TRUE(target.constant_atan2_is_wrong);
}

TEST(Quirks, PlatformsByName) {
  EXPECT_EQ(quirks::platform_of(*test::cpu_client()), hlo::Platform::Cpu);
  EXPECT_EQ(quirks::platform_of(*test::fake_client()), hlo::Platform::Cuda);  // "fake": not known
}

}  // namespace
}  // namespace tpupilot
