// The wrapper on the real CPU plugin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>

#include "fake_plugin/testing.h"

namespace tpupilot {
namespace {

using pjrt::Buffer;
using pjrt::Client;
using pjrt::ElementType;
using pjrt::Error;
using pjrt::Executable;
using pjrt::Shape;
using test::add_program;
using test::cpu_client;
using test::error_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kFour[] = {4};

std::shared_ptr<Executable> add4(Client& client, const std::string& type = "f32",
                                 ElementType element = ElementType::F32) {
  return client.compile(add_program("4x" + type), pjrt::eager_options(), {{element, {4}}, {element, {4}}});
}

std::shared_ptr<Buffer> run(const Executable& executable, std::vector<Buffer*> arguments, int device = 0) {
  std::shared_ptr<Buffer> out[1];
  executable.execute(arguments, device, out);
  return out[0];
}

template <class T>
std::vector<T> read(const Buffer& buffer) {
  std::vector<T> values(buffer.byte_size() / sizeof(T));
  buffer.copy_to_host(values.data(), buffer.byte_size());
  return values;
}

template <class T>
void expect_sum(const std::string& text, ElementType type, std::vector<T> x, std::vector<T> sum) {
  SCOPED_TRACE(text);
  const auto client = cpu_client();
  const auto executable = add4(*client, text, type);
  ASSERT_EQ(executable->num_outputs(), 1u);
  EXPECT_TRUE(executable->outputs()[0] == Shape(type, {4}));
  const auto a = client->from_host(x.data(), type, kFour, 0);
  const auto out = run(*executable, {a.get(), a.get()});
  EXPECT_EQ(out->element_type(), type);
  EXPECT_EQ(read<T>(*out), sum);
}

TEST(CpuPlugin, AddsEveryKindOfElement) {
  expect_sum<float>("f32", ElementType::F32, {1, 2, -3, 0.5}, {2, 4, -6, 1});
  expect_sum<double>("f64", ElementType::F64, {1, 2, -3, 0.5}, {2, 4, -6, 1});
  expect_sum<int32_t>("i32", ElementType::S32, {1, 2, -3, 4}, {2, 4, -6, 8});
  expect_sum<int64_t>("i64", ElementType::S64, {1, 2, -3, int64_t{1} << 40}, {2, 4, -6, int64_t{1} << 41});
  expect_sum<uint8_t>("ui8", ElementType::U8, {1, 2, 100, 200}, {2, 4, 200, 144});
  expect_sum<uint16_t>("bf16", ElementType::BF16, {0x3F80, 0x4000, 0, 0xBF80}, {0x4000, 0x4080, 0, 0xC000});
  expect_sum<uint16_t>("f16", ElementType::F16, {0x3C00, 0x4000, 0, 0xBC00}, {0x4000, 0x4400, 0, 0xC000});
  expect_sum<float>("complex<f32>", ElementType::C64, {1, 2, 3, 4, 5, 6, 7, 8}, {2, 4, 6, 8, 10, 12, 14, 16});
}

TEST(CpuPlugin, DescribesItsDevices) {
  const auto client = cpu_client();
  EXPECT_EQ(client->platform_name(), "cpu");
  EXPECT_EQ(client->device_count(), 2);
  ASSERT_EQ(client->devices().size(), 2u);
  EXPECT_NE(client->devices()[0].id, client->devices()[1].id);
  EXPECT_FALSE(client->devices()[0].kind.empty());
}

TEST(CpuPlugin, RunsOnTheDeviceThatIsNamed) {
  const auto client = cpu_client();
  const auto executable = add4(*client);
  const float x[] = {1, 2, 3, 4};
  const auto a = client->from_host(x, ElementType::F32, kFour, 1);
  const auto out = run(*executable, {a.get(), a.get()}, 1);
  EXPECT_EQ(out->device(), 1);
  EXPECT_EQ(read<float>(*out), (std::vector<float>{2, 4, 6, 8}));
  EXPECT_EQ(read<float>(*out->copy_to_device(0)), (std::vector<float>{2, 4, 6, 8}));
  EXPECT_EQ(out->copy_to_device(0)->device(), 0);
  EXPECT_EQ(error_of([&] { client->from_host(x, ElementType::F32, kFour, 2); }).code(), Error::Code::InvalidArgument);
}

TEST(CpuPlugin, ReadsRowMajorWhateverTheProgramDid) {
  const auto client = cpu_client();
  const auto executable = client->compile(
      "module @t { func.func @main(%x: tensor<2x3xf32>) -> tensor<3x2xf32> { %0 = \"stablehlo.transpose\"(%x) "
      "<{permutation = array<i64: 1, 0>}> : (tensor<2x3xf32>) -> tensor<3x2xf32> return %0 : tensor<3x2xf32> } }",
      pjrt::region_options(), {{ElementType::F32, {2, 3}}});
  const float x[] = {1, 2, 3, 4, 5, 6};
  const int64_t dims[] = {2, 3};
  const auto out = run(*executable, {client->from_host(x, ElementType::F32, dims, 0).get()});
  EXPECT_EQ(read<float>(*out), (std::vector<float>{1, 4, 2, 5, 3, 6}));
  ASSERT_NE(out->host_pointer(), nullptr);
  EXPECT_EQ(static_cast<const float*>(out->host_pointer())[1], 4);
}

TEST(CpuPlugin, FlatResultsAreArgumentsOfOneDimension) {
  const auto client = cpu_client();
  pjrt::CompileOptions options = pjrt::eager_options();
  options.flat_results = true;
  const std::string program =
      "module @t { func.func @main(%x: tensor<4xf32>) -> tensor<2x2xf32> { %0 = \"stablehlo.reshape\"(%x) : "
      "(tensor<4xf32>) -> tensor<2x2xf32> %1 = \"stablehlo.transpose\"(%0) <{permutation = array<i64: 1, 0>}> : "
      "(tensor<2x2xf32>) -> tensor<2x2xf32> return %1 : tensor<2x2xf32> } }";
  const auto transpose = client->compile(program, options, {{ElementType::F32, {4}}});
  EXPECT_NE(client->fingerprint(options), client->fingerprint(pjrt::eager_options()));
  EXPECT_TRUE(transpose->outputs()[0] == Shape(ElementType::F32, {4}));
  const float x[] = {1, 2, 3, 4};
  const auto turned = run(*transpose, {client->from_host(x, ElementType::F32, kFour, 0).get()});
  EXPECT_EQ(read<float>(*turned), (std::vector<float>{1, 3, 2, 4}));
  EXPECT_EQ(read<float>(*run(*add4(*client), {turned.get(), turned.get()})), (std::vector<float>{2, 6, 4, 8}));
  EXPECT_EQ(read<float>(*run(*transpose, {turned.get()})), (std::vector<float>{1, 2, 3, 4}));
}

TEST(CpuPlugin, HandlesMoreArgumentsThanFitOnTheStackAndNoElements) {
  const auto client = cpu_client();
  std::string parameters;
  std::string sums;
  for (int i = 0; i < 20; ++i) {
    parameters += (i ? ", %a" : "%a") + std::to_string(i) + ": tensor<f32>";
    if (i > 0) {
      sums += " %s" + std::to_string(i) + " = \"stablehlo.add\"(" + (i == 1 ? "%a0" : "%s" + std::to_string(i - 1)) +
              ", %a" + std::to_string(i) + ") : (tensor<f32>, tensor<f32>) -> tensor<f32>";
    }
  }
  const auto executable = client->compile(
      "module @m { func.func @main(" + parameters + ") -> tensor<f32> {" + sums + " return %s19 : tensor<f32> } }",
      pjrt::test_options(), std::vector<Shape>(20, Shape(ElementType::F32, {})));
  const float one = 1;
  const auto a = client->from_host(&one, ElementType::F32, {}, 0);
  EXPECT_EQ(read<float>(*run(*executable, std::vector<Buffer*>(20, a.get()))), std::vector<float>{20});

  const int64_t empty[] = {0, 3};
  EXPECT_EQ(read<float>(*client->from_host(nullptr, ElementType::F32, empty, 0)).size(), 0u);
}

TEST(CpuPlugin, RefusesWrongArgumentsBeforeThePluginSeesThem) {
  const auto client = cpu_client();
  const auto executable = add4(*client);
  const float x[] = {1, 2, 3, 4};
  const int64_t square[] = {2, 2};
  const auto good = client->from_host(x, ElementType::F32, kFour, 0);
  const auto type = client->from_host(x, ElementType::S32, kFour, 0);
  const auto shape = client->from_host(x, ElementType::F32, square, 0);
  const auto device = client->from_host(x, ElementType::F32, kFour, 1);
  const auto before = client->counters().snapshot().executions;

  const auto refused = [&](std::vector<Buffer*> arguments) {
    const Error error = error_of([&] { run(*executable, arguments); });
    EXPECT_EQ(error.code(), Error::Code::InvalidArgument);
    return std::string(error.what());
  };
  EXPECT_THAT(refused({good.get()}), HasSubstr("takes 2 arguments, got 1"));
  EXPECT_THAT(refused({good.get(), type.get()}), HasSubstr("argument 1 is s32[4], the program takes f32[4]"));
  EXPECT_THAT(refused({shape.get(), good.get()}), HasSubstr("argument 0 is f32[2,2]"));
  EXPECT_THAT(refused({good.get(), device.get()}), HasSubstr("argument 1 lies on device 1"));
  EXPECT_THAT(refused({good.get(), nullptr}), HasSubstr("argument 1 is null"));
  const auto other = Client::create(client->plugin())->from_host(x, ElementType::F32, kFour, 0);
  EXPECT_THAT(refused({other.get(), good.get()}), HasSubstr("belongs to another client"));

  std::shared_ptr<Buffer> two[2];
  Buffer* arguments[] = {good.get(), good.get()};
  EXPECT_THAT(error_of([&] { executable->execute(arguments, 0, two); }).what(), HasSubstr("has 1 outputs"));
  EXPECT_EQ(client->counters().snapshot().executions, before);
}

TEST(CpuPlugin, RefusesElementTypesThatWouldEndTheProcess) {
  const auto client = cpu_client();
  const float x[] = {1, 2, 3, 4};
  for (const ElementType type : {ElementType::INVALID, ElementType::TOKEN, static_cast<ElementType>(99)}) {
    EXPECT_EQ(error_of([&] { client->from_host(x, type, kFour, 0); }).code(), Error::Code::InvalidArgument);
  }
  EXPECT_THAT(error_of([&] { client->from_host(nullptr, ElementType::F32, kFour, 0); }).what(), HasSubstr("no data"));
  const auto buffer = client->from_host(x, ElementType::F32, kFour, 0);
  float small[2];
  EXPECT_THAT(error_of([&] { buffer->copy_to_host(small, sizeof(small)); }).what(), HasSubstr("has 8 bytes"));
}

TEST(CpuPlugin, CompileErrorKeepsTheDiagnostics) {
  const Error error = error_of([] {
    cpu_client()->compile("module @m {\n func.func @main() -> tensor<f32> { nonsense }\n}", pjrt::eager_options(), {});
  });
  EXPECT_NE(error.code(), Error::Code::Ok);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("[compile]"), HasSubstr("nonsense")));
}

TEST(CpuPlugin, DropsOnlyOptionalOverridesThatItDoesNotKnow) {
  const auto client = Client::create(pjrt::Plugin::load(test::cpu_plugin()));
  pjrt::CompileOptions options = pjrt::eager_options();
  options.set_if_known("xla_no_such_thing_at_all", true);
  const std::string fingerprint = client->fingerprint(options);
  const std::vector<Shape> parameters = {{ElementType::F32, {4}}, {ElementType::F32, {4}}};
  EXPECT_NO_THROW(client->compile(add_program("4xf32"), options, parameters));
  EXPECT_THAT(client->dropped_overrides(), ::testing::Contains("xla_no_such_thing_at_all"));
  EXPECT_EQ(client->fingerprint(options), fingerprint);

  options.set("xla_no_such_thing_either", true);
  const Error error = error_of([&] { client->compile(add_program("4xf32"), options, parameters); });
  EXPECT_EQ(error.code(), Error::Code::InvalidArgument);
  EXPECT_THAT(error.what(), HasSubstr("xla_no_such_thing_either"));
}

TEST(CpuPlugin, PresetsCompileAndKeepNaN) {
  const auto client = cpu_client();
  const float values[] = {1, NAN, 3, 4};
  const auto x = client->from_host(values, ElementType::F32, kFour, 0);
  for (const auto& options : {pjrt::eager_options(), pjrt::region_options(), pjrt::test_options()}) {
    const auto executable = client->compile(
        "module @m { func.func @main(%x: tensor<4xf32>) -> tensor<f32> { %i = \"stablehlo.constant\"() <{value = "
        "dense<0xFF800000> : tensor<f32>}> : () -> tensor<f32> %0 = \"stablehlo.reduce\"(%x, %i) <{dimensions = "
        "array<i64: 0>}> ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>): %m = \"stablehlo.maximum\"(%a, %b) : "
        "(tensor<f32>, tensor<f32>) -> tensor<f32> \"stablehlo.return\"(%m) : (tensor<f32>) -> () }) : "
        "(tensor<4xf32>, tensor<f32>) -> tensor<f32> return %0 : tensor<f32> } }",
        options, {{ElementType::F32, {4}}});
    EXPECT_TRUE(std::isnan(read<float>(*run(*executable, {x.get()}))[0]));
  }
}

TEST(CpuPlugin, SerializedProgramComesBackTheSame) {
  const auto client = cpu_client();
  const auto executable = add4(*client);
  const auto back = client->deserialize(executable->serialize(), pjrt::eager_options(), executable->parameters());
  const float x[] = {1, 2, 3, 4};
  const auto a = client->from_host(x, ElementType::F32, kFour, 0);
  EXPECT_EQ(read<float>(*run(*back, {a.get(), a.get()})), (std::vector<float>{2, 4, 6, 8}));
  EXPECT_THROW(client->deserialize("rubbish", pjrt::eager_options(), {}), Error);
  const auto stats = executable->memory_stats();
  ASSERT_TRUE(stats.has_value());
  EXPECT_EQ(stats->arguments, 32);
  EXPECT_EQ(stats->outputs, 16);
}

TEST(CpuPlugin, ZeroCopyOnlyWhereTheMemoryIsAligned) {
  const auto client = cpu_client();
  for (const size_t offset : {0, 4, 32}) {
    auto memory = std::shared_ptr<char>(static_cast<char*>(std::aligned_alloc(64, 4096)), std::free);
    auto* values = reinterpret_cast<float*>(memory.get() + offset);
    std::iota(values, values + 4, 1.0f);
    const std::weak_ptr<char> watch = memory;
    auto buffer = client->from_host_zero_copy(values, ElementType::F32, kFour, 0, std::move(memory));
    EXPECT_EQ(buffer->aliases_host(), offset == 0) << offset;
    EXPECT_EQ(buffer->host_pointer() == values, offset == 0) << offset;
    EXPECT_EQ(watch.expired(), offset != 0) << offset;
    EXPECT_EQ(read<float>(*buffer), (std::vector<float>{1, 2, 3, 4}));

    auto out = run(*add4(*client), {buffer.get(), buffer.get()});
    buffer.reset();
    EXPECT_EQ(read<float>(*out), (std::vector<float>{2, 4, 6, 8}));
    out.reset();
    EXPECT_TRUE(watch.expired()) << offset;
  }
}

TEST(CpuPlugin, DonatedInputIsGoneUnlessKept) {
  const auto client = cpu_client();
  const auto executable = client->compile(
      "module @m { func.func @main(%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32> { %0 = "
      "\"stablehlo.negate\"(%x) : (tensor<4xf32>) -> tensor<4xf32> return %0 : tensor<4xf32> } }",
      pjrt::eager_options(), {{ElementType::F32, {4}}});
  const float x[] = {1, 2, 3, 4};
  const auto a = client->from_host(x, ElementType::F32, kFour, 0);
  Buffer* arguments[] = {a.get()};
  std::shared_ptr<Buffer> out[1];
  const int64_t keep[] = {0};
  executable->execute(arguments, 0, out, keep);
  EXPECT_FALSE(a->is_deleted());
  executable->execute(arguments, 0, out);
  EXPECT_TRUE(a->is_deleted());
  EXPECT_EQ(read<float>(*out[0]), (std::vector<float>{-1, -2, -3, -4}));
  EXPECT_THROW(executable->execute(arguments, 0, out), Error);
}

TEST(CpuPlugin, CountsWhatItDoes) {
  const auto client = Client::create(pjrt::Plugin::load(test::cpu_plugin()));
  const auto executable = add4(*client);
  const float x[] = {1, 2, 3, 4};
  auto a = client->from_host(x, ElementType::F32, kFour, 0);
  auto out = run(*executable, {a.get(), a.get()});
  read<float>(*out);
  auto values = client->counters().snapshot();
  EXPECT_EQ(values.compiles, 1);
  EXPECT_GT(values.compile_nanoseconds, 100'000);
  EXPECT_EQ(values.executions, 1);
  EXPECT_EQ(values.h2d_bytes, 16);
  EXPECT_EQ(values.d2h_bytes, 16);
  EXPECT_EQ(values.host_transfers, 2);
  EXPECT_EQ(values.bytes_in_use, 32);
  EXPECT_EQ(values.bytes_peak, 32);
  a.reset();
  out.reset();
  client->counters().reset_peak();
  values = client->counters().snapshot();
  EXPECT_EQ(values.bytes_in_use, 0);
  EXPECT_EQ(values.bytes_peak, 0);
}

TEST(CpuPlugin, ManyThreadsShareEverything) {
  const auto client = cpu_client();
  const auto executable = add4(*client);
  const float x[] = {1, 2, 3, 4};
  const auto a = client->from_host(x, ElementType::F32, kFour, 0);
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) right += read<float>(*run(*executable, {a.get(), a.get()}))[3] == 8;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, 800);
}

// The child reports through its exit status; an alarm ends it if it hangs, which is what a plugin does there.
TEST(CpuPlugin, ForkedChildIsRefused) {
  const auto client = cpu_client();
  const auto executable = add4(*client);
  const float x[] = {1, 2, 3, 4};
  auto a = client->from_host(x, ElementType::F32, kFour, 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    int refused = 0;
    const auto must_refuse = [&](auto&& call) {
      try {
        call();
      } catch (const Error& error) {
        refused += error.code() == Error::Code::FailedPrecondition && std::strstr(error.what(), "spawn") != nullptr;
      }
    };
    float out[4];
    must_refuse([&] { run(*executable, {a.get(), a.get()}); });
    must_refuse([&] { client->from_host(x, ElementType::F32, kFour, 0); });
    must_refuse([&] { client->compile("", {}, {}); });
    must_refuse([&] { a->copy_to_host(out, sizeof(out)); });
    must_refuse([&] { executable->serialize(); });
    must_refuse([&] { a->on_ready([](std::exception_ptr) {}); });
    must_refuse([&] { client->device_memory(0); });
    must_refuse([&] { Client::create(client->plugin()); });
    a.reset();  // enters nothing
    _exit(refused == 8 && client->forked() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_FALSE(client->forked());
  EXPECT_EQ(read<float>(*run(*executable, {a.get(), a.get()}))[0], 2);
}

}  // namespace
}  // namespace tpupilot
