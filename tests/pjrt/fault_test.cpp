// What the wrapper does when a plugin fails: the fake plugin fails on demand and counts what is not given back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_plugin/testing.h"

namespace tpupilot {
namespace {

using pjrt::Buffer;
using pjrt::ElementType;
using pjrt::Error;
using pjrt::Executable;
using test::error_of;
using test::fake_calls;
using test::fake_client;
using test::ScopedVariable;
using ::testing::HasSubstr;

constexpr int64_t kFour[] = {4};
constexpr float kValues[] = {1, 2, 3, 4};
const std::string kTwoOutputs =
    "module @m { func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<2x3xi64>) { fake } }";

class Fault : public ::testing::Test {
 protected:
  void TearDown() override {
    executable_.reset();
    test::expect_no_leaks();
  }
  std::shared_ptr<Buffer> upload() { return client_->from_host(kValues, ElementType::F32, kFour, 0); }
  const Executable& program() {
    if (!executable_) executable_ = client_->compile(kTwoOutputs, pjrt::eager_options(), {{ElementType::F32, {4}}});
    return *executable_;
  }
  void run(Buffer& argument) {
    Buffer* arguments[] = {&argument};
    program().execute(arguments, 0, out_);
  }
  void drop_outputs() { out_[0] = out_[1] = nullptr; }

  std::shared_ptr<pjrt::Client> client_ = fake_client();
  std::shared_ptr<Executable> executable_;
  std::shared_ptr<Buffer> out_[2];
};

TEST_F(Fault, NoFaultNoLeak) {
  const auto x = upload();
  run(*x);
  ASSERT_NE(out_[1], nullptr);
  EXPECT_EQ(out_[1]->shape().str(), "s64[2,3]");
  int64_t values[6] = {9, 9, 9, 9, 9, 9};
  out_[1]->copy_to_host(values, sizeof(values));
  EXPECT_EQ(values[5], 0);
  EXPECT_TRUE(out_[0]->is_ready());
  EXPECT_TRUE(out_[0]->has_values());
  EXPECT_EQ(test::fake_live("buffers"), 3);
  EXPECT_EQ(test::fake_live("events"), 0);
  drop_outputs();
}

TEST_F(Fault, UploadRunsOutOfMemory) {
  const ScopedVariable fail("FAKE_PJRT_FAIL", "Client_BufferFromHostBuffer:2");
  const auto first = upload();
  const Error error = error_of([&] { upload(); });
  EXPECT_EQ(error.code(), Error::Code::ResourceExhausted);
  EXPECT_THAT(error.what(), HasSubstr("[from_host] RESOURCE_EXHAUSTED: fault in"));
  EXPECT_NO_THROW(upload());
  EXPECT_EQ(client_->counters().snapshot().bytes_in_use, 16);
}

TEST_F(Fault, ZeroCopyUploadThatFailsLetsTheMemoryGo) {
  auto memory = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = memory;
  for (const char* fault : {"Client_BufferFromHostBuffer:1", "Event_OnReady:1:13"}) {
    memory = memory ? memory : std::make_shared<int>(0);
    const ScopedVariable fail("FAKE_PJRT_FAIL", fault);
    EXPECT_THROW(client_->from_host_zero_copy(kValues, ElementType::F32, kFour, 0, std::move(memory)), Error) << fault;
    EXPECT_TRUE(watch.expired()) << fault;
  }
}

TEST_F(Fault, ZeroCopyMemoryIsHeldUntilTheBufferDies) {
  alignas(64) static const float aligned[4] = {1, 2, 3, 4};
  auto memory = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = memory;
  auto buffer = client_->from_host_zero_copy(aligned, ElementType::F32, kFour, 0, std::move(memory));
  EXPECT_TRUE(buffer->aliases_host());
  EXPECT_FALSE(watch.expired());
  buffer.reset();
  EXPECT_TRUE(watch.expired());
}

TEST_F(Fault, ExecuteRunsOutOfMemory) {
  const auto x = upload();
  program();
  for (const bool partial : {false, true}) {
    const ScopedVariable some("FAKE_PJRT_PARTIAL", partial ? "1" : nullptr);
    const ScopedVariable fail("FAKE_PJRT_FAIL",
                              partial ? "LoadedExecutable_Execute:1:8" : "LoadedExecutable_Execute:1");
    EXPECT_EQ(error_of([&] { run(*x); }).code(), Error::Code::ResourceExhausted);
    EXPECT_EQ(out_[0], nullptr);
    EXPECT_EQ(test::fake_live("buffers"), 1);  // a filled output was given back
  }
  EXPECT_NO_THROW(run(*x));
  drop_outputs();
}

TEST_F(Fault, AsynchronousErrorShowsWhereTheValuesAreAskedFor) {
  const auto x = upload();
  const ScopedVariable fail("FAKE_PJRT_ASYNC_ERROR", "1");
  run(*x);
  EXPECT_TRUE(out_[0]->is_ready());
  EXPECT_FALSE(out_[0]->has_values());
  float values[4];
  for (int i = 0; i < 2; ++i) {  // again, each time
    EXPECT_EQ(error_of([&] { out_[0]->wait(); }).code(), Error::Code::Internal);
    EXPECT_THAT(error_of([&] { out_[0]->copy_to_host(values, sizeof(values)); }).what(),
                HasSubstr("asynchronous fault"));
    EXPECT_THROW(out_[0]->host_pointer(), Error);
  }
  drop_outputs();
}

TEST_F(Fault, CompileFailsAtEveryStep) {
  for (const char* step : {"Client_Compile", "LoadedExecutable_GetExecutable", "Executable_OutputElementTypes",
                           "Executable_OutputDimensions"}) {
    const ScopedVariable fail("FAKE_PJRT_FAIL", (std::string(step) + ":1:13").c_str());
    EXPECT_EQ(error_of([&] { program(); }).code(), Error::Code::Internal) << step;
    test::expect_no_leaks();
  }
  EXPECT_EQ(client_->counters().snapshot().compiles, 0);
}

TEST_F(Fault, UnknownOverrideIsProbedOnceAndRemembered) {
  const ScopedVariable unknown("FAKE_PJRT_UNKNOWN_OPTION", "xla_cpu_use_fusion_emitters");
  const long before = fake_calls("Client_Compile");
  program();
  EXPECT_THAT(client_->dropped_overrides(), ::testing::ElementsAre("xla_cpu_use_fusion_emitters"));
  const long first = fake_calls("Client_Compile") - before;
  EXPECT_EQ(first, 4);  // refused, two optional overrides alone, accepted
  executable_.reset();
  program();
  EXPECT_EQ(fake_calls("Client_Compile") - before, first + 1);
}

TEST_F(Fault, UnknownOverrideThatMattersIsAnError) {
  const ScopedVariable unknown("FAKE_PJRT_UNKNOWN_OPTION", "xla_cpu_enable_fast_min_max");
  EXPECT_THAT(error_of([&] { program(); }).what(), HasSubstr("xla_cpu_enable_fast_min_max"));
  EXPECT_TRUE(client_->dropped_overrides().empty());
}

TEST_F(Fault, ClientThatDoesNotKnowAsynchronous) {
  const ScopedVariable unknown("FAKE_PJRT_UNKNOWN_CLIENT_OPTION", "asynchronous");
  EXPECT_EQ(pjrt::Client::create(client_->plugin(), {.device_count = 3})->device_count(), 3);
}

TEST_F(Fault, ClientThatKnowsNoOption) {
  const ScopedVariable unknown("FAKE_PJRT_UNKNOWN_CLIENT_OPTION", "asynchronous,cpu_device_count");
  EXPECT_EQ(pjrt::Client::create(client_->plugin(), {.device_count = 3})->device_count(), 1);
}

TEST_F(Fault, ClientThatCannotBeMade) {
  for (const char* fault : {"Client_Create:1:13", "Client_Create:1:9"}) {
    const ScopedVariable fails("FAKE_PJRT_FAIL", fault);
    EXPECT_THAT(error_of([&] { pjrt::Client::create(client_->plugin()); }).what(), HasSubstr("fault in Client_Create"));
  }
}

TEST_F(Fault, DownloadWorksWithoutDataPointers) {
  const auto x = upload();
  for (const char* missing : {"Buffer_IsOnCpu", "Buffer_OpaqueDeviceMemoryDataPointer"}) {
    const ScopedVariable none("FAKE_PJRT_UNIMPLEMENTED", missing);
    const long before = fake_calls("Buffer_ToHostBuffer");
    float values[4] = {};
    x->copy_to_host(values, sizeof(values));
    EXPECT_EQ(values[3], 4) << missing;
    EXPECT_EQ(fake_calls("Buffer_ToHostBuffer"), before + 1) << missing;
    EXPECT_EQ(x->host_pointer(), nullptr) << missing;
  }
  const long before = fake_calls("Buffer_ToHostBuffer");
  float values[4] = {};
  x->copy_to_host(values, sizeof(values));
  EXPECT_EQ(fake_calls("Buffer_ToHostBuffer"), before);
}

TEST_F(Fault, OptionalFunctionsThatAreNotThere) {
  EXPECT_FALSE(program().memory_stats().has_value());
  EXPECT_EQ(program().fingerprint(), "");
  const auto x = upload();
  EXPECT_EQ(error_of([&] { x->copy_to_device(0); }).code(), Error::Code::Unimplemented);
  const ScopedVariable none("FAKE_PJRT_UNIMPLEMENTED", "Executable_Serialize,Executable_DeserializeAndLoad");
  EXPECT_EQ(error_of([&] { program().serialize(); }).code(), Error::Code::Unimplemented);
  EXPECT_EQ(error_of([&] { client_->deserialize("x", {}, {}); }).code(), Error::Code::Unimplemented);
}

TEST_F(Fault, DeviceMemoryAsFarAsThePluginSays) {
  ASSERT_TRUE(client_->device_memory(0).has_value());
  EXPECT_EQ(client_->device_memory(0)->in_use, 1000);
  EXPECT_EQ(client_->device_memory(0)->limit, 5000);
  {
    const ScopedVariable no_limit("FAKE_PJRT_NO_LIMIT", "1");
    EXPECT_FALSE(client_->device_memory(0)->limit.has_value());
  }
  {
    const ScopedVariable none("FAKE_PJRT_UNIMPLEMENTED", "Device_MemoryStats");
    EXPECT_FALSE(client_->device_memory(0).has_value());
  }
  const ScopedVariable fail("FAKE_PJRT_FAIL", "Device_MemoryStats:1:14");
  EXPECT_EQ(error_of([&] { client_->device_memory(0); }).code(), Error::Code::Unavailable);
}

TEST_F(Fault, ContinuationsRunOnceWithTheError) {
  const auto x = upload();
  std::vector<std::string> seen;
  const auto note = [&](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
      seen.emplace_back("ok");
    } catch (const Error& e) {
      seen.emplace_back(e.what());
    }
  };
  x->on_ready(note);
  const ScopedVariable fault("FAKE_PJRT_ASYNC_ERROR", "1");
  run(*x);
  out_[0]->on_ready(note);
  EXPECT_THAT(seen, testing::ElementsAre("ok", HasSubstr("asynchronous fault")));
  const ScopedVariable fail("FAKE_PJRT_FAIL", "Event_OnReady:1:14");
  EXPECT_EQ(error_of([&] { x->on_ready(note); }).code(), Error::Code::Unavailable);
  EXPECT_EQ(seen.size(), 2u);
  drop_outputs();
}

TEST_F(Fault, EventsThatFail) {
  const auto x = upload();
  for (const char* step : {"Buffer_ReadyEvent", "Event_Await"}) {
    const ScopedVariable fail("FAKE_PJRT_FAIL", (std::string(step) + ":1:14").c_str());
    EXPECT_EQ(error_of([&] { x->wait(); }).code(), Error::Code::Unavailable) << step;
  }
  EXPECT_NO_THROW(x->wait());
}

}  // namespace
}  // namespace tpupilot
