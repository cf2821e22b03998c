#include "numerics/judge.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "numerics/error.h"
#include "numerics/tensor_file.h"
#include "pilot/settings.h"
#include "pilot/thresholds.h"

namespace tpupilot::pilot {
namespace {

using numerics::Judgement;
using numerics::Rule;
using numerics::Tensor;

using nlohmann::json;
namespace fs = std::filesystem;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

template <typename T>
Tensor tensor(const std::string& dtype, const std::vector<T>& values) {
  Tensor made{dtype, {static_cast<int64_t>(values.size())}, {}};
  made.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return made;
}
Tensor f32(const std::vector<float>& values) { return tensor("float32", values); }
Tensor f64(const std::vector<double>& values) { return tensor("float64", values); }

const Rule kFloat32{1.3e-6, 1e-5, 2};

TEST(JudgeTest, EqualTensorsPassByTolerance) {
  const Judgement judged = numerics::judge_tensor(f32({1, -2, 3}), f32({1, -2, 3}), nullptr, kFloat32);
  EXPECT_TRUE(judged.passed);
  EXPECT_EQ(judged.passed_by, "tolerance");
  EXPECT_EQ(judged.row["ulp_max"], 0);
  EXPECT_EQ(judged.row["cosine"], 1.0);
}

TEST(JudgeTest, OneElementOutsideStopsAndIsNamed) {
  Tensor reference = f32({1, 2, 3, 4, 5, 6}), candidate = f32({1, 2, 3, 4, 5.1f, 6});
  reference.shape = candidate.shape = {2, 3};
  const Judgement judged = numerics::judge_tensor(reference, candidate, nullptr, kFloat32);
  EXPECT_FALSE(judged.passed);
  EXPECT_EQ(judged.row["worst_index"], (json{1, 1}));
  EXPECT_NEAR(judged.row["max_abs"].get<double>(), 0.1, 1e-6);
  EXPECT_NEAR(judged.row["mismatches"].get<double>(), 1.0 / 6, 1e-12);
}

// Both are as far from the exact value, on opposite sides: outside the tolerance, and no reason to stop.
TEST(JudgeTest, AnErrorLikeTheReferencesOwnPassesByTheJudge) {
  const Tensor reference = f32({1.001f, 2.001f}), candidate = f32({0.999f, 1.999f}), exact = f64({1, 2});
  EXPECT_FALSE(numerics::judge_tensor(reference, candidate, nullptr, kFloat32).passed);
  const Judgement judged = numerics::judge_tensor(reference, candidate, &exact, kFloat32);
  EXPECT_EQ(judged.passed_by, "judge");
  EXPECT_NEAR(judged.row["rmse_reference"].get<double>(), judged.row["rmse_candidate"].get<double>(), 1e-6);
}

TEST(JudgeTest, AnErrorMoreThanTwiceTheReferencesStops) {
  const Tensor exact = f64({1, 2});
  EXPECT_TRUE(numerics::judge_tensor(f32({1.001f, 2.001f}), f32({1.0019f, 2.0019f}), &exact, kFloat32).passed);
  EXPECT_FALSE(numerics::judge_tensor(f32({1.001f, 2.001f}), f32({1.0021f, 2.0021f}), &exact, kFloat32).passed);
}

TEST(JudgeTest, OneBadElementAmongManyIsSeenInTheTail) {
  std::vector<float> reference(500, 1.001f), candidate(500, 1.001f);
  candidate[77] = 1.01f;
  const Tensor exact = f64(std::vector<double>(500, 1.0));
  EXPECT_FALSE(numerics::judge_tensor(f32(reference), f32(candidate), &exact, kFloat32).passed);
}

TEST(JudgeTest, NonFiniteMustBeAtTheSamePlaces) {
  const float nan = static_cast<float>(kNan), inf = static_cast<float>(kInf);
  const Judgement both = numerics::judge_tensor(f32({1, nan, inf}), f32({1, nan, inf}), nullptr, kFloat32);
  EXPECT_TRUE(both.passed);
  EXPECT_TRUE(both.nonfinite);
  const Tensor exact = f64({1, 1, 1});
  EXPECT_FALSE(numerics::judge_tensor(f32({1, 2}), f32({1, nan}), nullptr, kFloat32).passed);
  EXPECT_FALSE(numerics::judge_tensor(f32({1, nan, 1}), f32({1, 2, 1}), &exact, kFloat32).passed);
  EXPECT_FALSE(numerics::judge_tensor(f32({inf}), f32({-inf}), nullptr, kFloat32).passed);
}

TEST(JudgeTest, WholeNumbersAreExact) {
  const Rule exact = numerics::rule_for(thresholds_of(Settings()), "int64");
  EXPECT_TRUE(
      numerics::judge_tensor(tensor<int64_t>("int64", {5}), tensor<int64_t>("int64", {5}), nullptr, exact).passed);
  EXPECT_FALSE(
      numerics::judge_tensor(tensor<int64_t>("int64", {5}), tensor<int64_t>("int64", {6}), nullptr, exact).passed);
}

TEST(JudgeTest, EmptyTensorsPass) { EXPECT_TRUE(numerics::judge_tensor(f32({}), f32({}), nullptr, kFloat32).passed); }

TEST(RuleTest, ComesFromTheThresholds) {
  Settings settings;
  settings.set("parity.tolerance={ float32 = [1e-3, 1e-4] }");
  const Rule rule = numerics::rule_for(thresholds_of(settings), "float32");
  EXPECT_EQ(rule.rtol, 1e-3);
  EXPECT_EQ(rule.atol, 1e-4);
  EXPECT_EQ(numerics::rule_for(thresholds_of(settings), "bfloat16").factor, 3);
  settings.set("reference.autocast=bfloat16");
  EXPECT_EQ(numerics::rule_for(thresholds_of(settings), "float32").rtol, 1.6e-2);
  settings.set("parity.tolerance={ float23 = [1, 1] }");
  EXPECT_THROW(thresholds_of(settings), std::runtime_error);
}

TEST(TensorTest, ReadsNarrowFloats) {
  const Tensor half = tensor<uint16_t>("float16", {0x3C00, 0xC000, 0x0001, 0x7C00, 0x3555});
  EXPECT_EQ(half.values()[0], 1.0);
  EXPECT_EQ(half.values()[1], -2.0);
  EXPECT_EQ(half.values()[2], std::ldexp(1.0, -24));
  EXPECT_EQ(half.values()[3], kInf);
  EXPECT_NEAR(half.values()[4], 1.0 / 3, 1e-4);
  EXPECT_EQ((tensor<uint16_t>("bfloat16", {0x3F80, 0xC040}).values()), (std::vector<double>{1.0, -3.0}));
}

TEST(TensorTest, OrderCountsUlps) {
  const auto order = f32({-0.0f, 0.0f, 1.0f, std::nextafter(1.0f, 2.0f), -1.0f}).ordered();
  EXPECT_EQ(order[0], order[1]);
  EXPECT_EQ(order[3] - order[2], 1);
  EXPECT_EQ(order[4], -order[2]);
}

class TensorFileTest : public testing::Test {
 protected:
  void SetUp() override { file_ = fs::temp_directory_path() / ("tpupilot-tensors-" + std::to_string(::getpid())); }
  void TearDown() override { fs::remove(file_); }

  void write(const std::string& header, const std::string& data) {
    const uint64_t length = header.size();
    std::string text(8, '\0');
    std::memcpy(text.data(), &length, 8);
    std::ofstream(file_, std::ios::binary) << text << header << data;
  }
  std::string error() {
    try {
      numerics::read_tensors(file_);
    } catch (const numerics::Error& error) {
      return error.what();
    }
    return "no error";
  }

  fs::path file_;
};

TEST_F(TensorFileTest, ReadsNamesShapesAndValues) {
  const float values[] = {1, 2, 3, 4};
  write(
      R"({"__metadata__":{"a":"b"},"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"e":{"dtype":"F32","shape":[0],"data_offsets":[16,16]}})",
      std::string(reinterpret_cast<const char*>(values), 16));
  const auto tensors = numerics::read_tensors(file_);
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors.at("w").shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(tensors.at("w").values(), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(tensors.at("e").count(), 0u);
}

TEST_F(TensorFileTest, RefusesWhatIsDamaged) {
  write(R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", "short");
  EXPECT_NE(error().find("cut short"), std::string::npos);
  write(R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,8]}})", std::string(16, 'x'));
  EXPECT_NE(error().find("its shape wants 16"), std::string::npos);
  write(R"({"w":{"dtype":"F31","shape":[4],"data_offsets":[0,16]}})", std::string(16, 'x'));
  EXPECT_NE(error().find("unknown dtype"), std::string::npos);
  write(R"({"w":{"shape":[4]}})", std::string(16, 'x'));
  EXPECT_NE(error(), "no error");
  write("not json", "");
  EXPECT_NE(error().find("no safetensors file"), std::string::npos);
  std::ofstream(file_) << "abc";
  EXPECT_NE(error().find("header is not whole"), std::string::npos);
  std::ofstream(file_, std::ios::binary) << std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) << "{}";
  EXPECT_NE(error().find("header is not whole"), std::string::npos);
  fs::remove(file_);
  EXPECT_NE(error().find("cannot be read"), std::string::npos);
}

}  // namespace
}  // namespace tpupilot::pilot
