// The judge in chunks and threads against the plain statistics (oracle.h): every figure that is no sum must be the very
// same number, and a sum may differ by rounding only. Across threads not a bit may differ.
#include "numerics/judge_run.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <random>

#include "numerics/comparison.h"
#include "numerics/error.h"
#include "numerics/oracle.h"

namespace tpupilot::numerics {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
const Rule kFloat32{1.3e-6, 1e-5, 2};

template <typename T>
Tensor tensor(const std::string& dtype, const std::vector<T>& values) {
  Tensor made{dtype, {static_cast<int64_t>(values.size())}, {}};
  if (!values.empty()) made.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return made;
}

std::vector<float> narrowed(const std::vector<double>& values) { return {values.begin(), values.end()}; }
std::vector<uint16_t> bfloat16s(const std::vector<double>& values) {
  std::vector<uint16_t> bits;
  for (double value : values)
    bits.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16));
  return bits;
}
// Only what fits: normal numbers of float16.
std::vector<uint16_t> float16s(const std::vector<double>& values) {
  std::vector<uint16_t> bits;
  for (double value : values) {
    const auto wide = std::bit_cast<uint32_t>(static_cast<float>(value));
    const int exponent = static_cast<int>(wide >> 23 & 255) - 112;
    const auto sign = static_cast<uint16_t>(wide >> 16 & 0x8000);
    bits.push_back(exponent < 1 || exponent > 30 ? sign
                                                 : static_cast<uint16_t>(sign | exponent << 10 | (wide >> 13 & 1023)));
  }
  return bits;
}

struct Sides {
  Tensor reference, candidate, exact;
};

using Error64 = std::function<double(size_t, std::mt19937_64&)>;  // a relative error for element i

Sides make(const std::string& dtype, size_t count, const Error64& error, unsigned seed = 7) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> exact(count), reference(count), candidate(count);
  for (size_t i = 0; i < count; ++i) {
    exact[i] = normal(random);
    reference[i] = exact[i] * (1 + error(i, random));
    candidate[i] = exact[i] * (1 + error(i, random));
  }
  const auto side = [&](const std::vector<double>& values) {
    if (dtype == "float64") return tensor(dtype, values);
    if (dtype == "float16") return tensor(dtype, float16s(values));
    if (dtype == "bfloat16") return tensor(dtype, bfloat16s(values));
    return tensor("float32", narrowed(values));
  };
  return {side(reference), side(candidate), tensor("float64", exact)};
}

double like_float32(size_t, std::mt19937_64& random) { return std::normal_distribution<double>(0, 4e-8)(random); }

template <typename T>
void put(Tensor& tensor, size_t at, T value) {
  std::memcpy(tensor.bytes.data() + at * sizeof(T), &value, sizeof value);
}

// Equal, or both NaN, or both of one infinity.
void expect_same(const json& row, const char* key, double expected) {
  EXPECT_TRUE(oracle::same(row.at(key).get<double>(), expected))
      << key << ": " << row.at(key) << " is not " << expected;
}

void expect_sum(const json& row, const char* key, double expected) {
  EXPECT_NEAR(row.at(key).get<double>(), expected, 1e-12 * std::abs(expected)) << key;
}

json judged_with(unsigned threads, const Tensor& reference, const Tensor& candidate, const Tensor* exact,
                 const Rule& rule, Judgement* whole = nullptr) {
  Pair pair{reference.view(), candidate.view(), std::nullopt, rule};
  if (exact) pair.exact = exact->view();
  Judgement judged = judge_pairs({pair}, {}, threads).front();
  if (whole) *whole = judged;
  return judged.row;
}

void agrees(const Tensor& reference, const Tensor& candidate, const Tensor* exact, const Rule& rule) {
  const Expected expected = expect(reference, candidate, exact, rule);
  Judgement judged;
  const json row = judged_with(1, reference, candidate, exact, rule, &judged);
  expect_same(row, "max_abs", expected.max_abs);
  expect_same(row, "max_rel", expected.max_rel);
  expect_same(row, "mismatches", expected.mismatches);
  expect_sum(row, "cosine", expected.cosine);
  EXPECT_EQ(row.at("ulp_p50"), expected.ulp_p50);
  EXPECT_EQ(row.at("ulp_p99"), expected.ulp_p99);
  EXPECT_EQ(row.at("ulp_max"), expected.ulp_max);
  if (exact) {
    expect_sum(row, "rmse_reference", expected.rmse_reference);
    expect_sum(row, "rmse_candidate", expected.rmse_candidate);
    expect_same(row, "p999_reference", expected.p999_reference);
    expect_same(row, "p999_candidate", expected.p999_candidate);
  }
  const json worst = reference.count() > 0 ? json{expected.worst} : json::array();
  EXPECT_EQ(row.at("worst_index"), worst);
  EXPECT_EQ(judged.severity, expected.severity);
  EXPECT_EQ(judged.nonfinite, expected.nonfinite);
  EXPECT_EQ(judged.passed, expected.passed);
  for (unsigned threads : {2U, 3U, 7U})
    EXPECT_EQ(judged_with(threads, reference, candidate, exact, rule).dump(), row.dump()) << threads << " threads";
}

void agrees(const Sides& sides, const Rule& rule = kFloat32) {
  agrees(sides.reference, sides.candidate, &sides.exact, rule);
  agrees(sides.reference, sides.candidate, nullptr, rule);
}

TEST(JudgeRunTest, AgreesAtTheBordersOfVectorsBlocksAndChunks) {
  for (size_t count : {size_t{0}, size_t{1}, size_t{3}, size_t{4}, size_t{5}, size_t{9}, kBlock - 1, kBlock, kBlock + 1,
                       kChunk - 1, kChunk, kChunk + 1, 3 * kChunk + kBlock + 5}) {
    SCOPED_TRACE(count);
    agrees(make("float32", count, like_float32));
  }
}

TEST(JudgeRunTest, AgreesForEveryFloat) {
  for (const char* dtype : {"float64", "float32", "float16", "bfloat16"}) {
    SCOPED_TRACE(dtype);
    agrees(make(dtype, 2 * kChunk + 77,
                [](size_t, std::mt19937_64& random) { return std::normal_distribution<double>(0, 1e-3)(random); }),
           {1e-3, 1e-5, 3});
  }
}

TEST(JudgeRunTest, AgreesForManyTensors) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const auto small = [](size_t, std::mt19937_64& random) {
      return std::normal_distribution<double>(0, 1e-6)(random);
    };
    const Sides wide = make("float64", 3 * kBlock, small, seed), narrow = make("float32", 3 * kBlock, small, seed);
    for (const Rule& rule : {Rule{1e-7, 1e-7, 2}, Rule{1e-5, 1e-5, 2}, Rule{1e-6, 0, 2}, Rule{}}) {
      agrees(wide.reference, wide.candidate, &wide.exact, rule);
      agrees(narrow.reference, narrow.candidate, &narrow.exact, rule);
    }
  }
}

TEST(JudgeRunTest, AgreesOnWholeNumbers) {
  std::mt19937_64 random(3);
  const auto check = [&]<typename T>(const char* dtype, T) {
    SCOPED_TRACE(dtype);
    std::vector<T> left(kChunk + 100), right;
    for (T& value : left) value = static_cast<T>(random());
    right = left;
    agrees(tensor(dtype, left), tensor(dtype, right), nullptr, {});
    right[kChunk + 3] = static_cast<T>(right[kChunk + 3] ^ 1);
    right[700] = static_cast<T>(right[700] ^ 1);  // both are infinitely far off: the first is named
    agrees(tensor(dtype, left), tensor(dtype, right), nullptr, {});
  };
  check("int32", int32_t{});
  check("int16", int16_t{});
  check("int8", int8_t{});
  check("uint8", uint8_t{});
  check("bool", uint8_t{});
}

// In f64 the two are equal.
TEST(JudgeRunTest, SeesOneAmongLargeInt64) {
  const int64_t large = (int64_t{1} << 53) + 1;
  std::vector<int64_t> left(16, large), right(16, large);
  --right[1];
  const json row = judged_with(1, tensor("int64", left), tensor("int64", right), nullptr, {});
  EXPECT_EQ(row.at("verdict"), "stop");
  EXPECT_EQ(row.at("max_abs"), 1.0);
  EXPECT_EQ(row.at("ulp_max"), 1);
  EXPECT_EQ(row.at("worst_index"), json{1});
  const json ends = judged_with(1, tensor<int64_t>("int64", {std::numeric_limits<int64_t>::min()}),
                                tensor<int64_t>("int64", {std::numeric_limits<int64_t>::max()}), nullptr, {});
  EXPECT_EQ(ends.at("ulp_max"), std::numeric_limits<uint64_t>::max());
}

TEST(JudgeRunTest, AgreesWithNanAndInfAnywhere) {
  for (size_t at : {size_t{0}, size_t{2}, kBlock - 1, kChunk - 1, kChunk, 2 * kChunk + 6}) {
    SCOPED_TRACE(at);
    Sides sides = make("float32", 2 * kChunk + 7, like_float32);
    put(sides.reference, at, static_cast<float>(kInf));
    put(sides.candidate, at, static_cast<float>(kInf));
    agrees(sides);  // on both sides
    put(sides.candidate, at, static_cast<float>(-kInf));
    agrees(sides);  // of the other sign
    put(sides.reference, at, 1.0F);
    put(sides.candidate, at, static_cast<float>(kNan));
    put(sides.candidate, kChunk + 9, static_cast<float>(kNan));
    agrees(sides);  // on one side, twice
    Sides unjudged = make("float32", 2 * kChunk + 7, like_float32);
    put(unjudged.exact, at, kNan);
    agrees(unjudged);  // in the f64 run alone
  }
}

TEST(JudgeRunTest, AgreesOnNothingButNan) {
  const std::vector<float> nan(kChunk + 3, static_cast<float>(kNan));
  agrees({tensor("float32", nan), tensor("float32", nan), tensor("float64", std::vector<double>(nan.size(), 1))});
}

TEST(JudgeRunTest, NamesTheFirstOfEquallyBadElements) {
  for (size_t first : {size_t{1}, kBlock, kChunk + 1}) {
    SCOPED_TRACE(first);
    std::vector<float> reference(4 * kChunk, 1), candidate(4 * kChunk, 1);
    for (size_t at : {first, 2 * kChunk + 3, 3 * kChunk}) candidate[at] = 1.5F;
    agrees({tensor("float32", reference), tensor("float32", candidate),
            tensor("float64", std::vector<double>(reference.size(), 1.0))});
  }
}

TEST(JudgeRunTest, AgreesWhereManyErrorsAreEqual) {
  for (double share : {0.0, 0.0005, 0.001, 0.002, 0.5, 1.0}) {
    SCOPED_TRACE(share);
    const size_t count = 5 * kChunk;
    std::vector<float> reference(count, 1), candidate(count, 1);
    for (size_t i = 0; i < static_cast<size_t>(share * static_cast<double>(count)); ++i)
      candidate[i * 5 / 2 % count] = 1.25F;
    agrees({tensor("float32", reference), tensor("float32", candidate),
            tensor("float64", std::vector<double>(count, 1.0))});
  }
}

TEST(JudgeRunTest, AgreesWhereTheReferenceIsZero) {
  std::vector<float> reference(2 * kChunk), candidate(2 * kChunk);
  std::vector<double> exact(2 * kChunk);
  for (size_t i = 0; i < reference.size(); i += 3) candidate[i] = 1e-9F * static_cast<float>(i % 17);
  agrees({tensor("float32", reference), tensor("float32", candidate), tensor("float64", exact)});
  exact[5] = 1e-300;  // its square is not
  agrees({tensor("float32", reference), tensor("float32", candidate), tensor("float64", exact)});
}

TEST(JudgeRunTest, AgreesAtTheEdgesOfFloat64) {
  std::mt19937_64 random(5);
  std::vector<double> reference, candidate, exact;
  for (size_t i = 0; i < kChunk + 200; ++i) {
    const double tiny = std::ldexp(1.0 + static_cast<double>(random() % 1000), -1074);
    reference.push_back(i % 2 ? tiny : 1e-310);
    candidate.push_back(reference.back() + std::ldexp(static_cast<double>(random() % 5), -1074));
    exact.push_back(reference.back());
  }
  agrees({tensor("float64", reference), tensor("float64", candidate), tensor("float64", exact)}, {1e-7, 0, 2});
}

// Errors of the sampled places say nothing about the others, in both directions.
TEST(JudgeRunTest, AgreesWhereTheSampleMisleads) {
  const size_t count = 40 * kChunk;
  for (bool large_at_the_front : {false, true}) {
    SCOPED_TRACE(large_at_the_front);
    agrees(make("float32", count, [&](size_t i, std::mt19937_64& random) {
      const bool sampled = i % ((count - 16) / 63) < 16;
      return std::normal_distribution<double>(0, sampled == large_at_the_front ? 1e-3 : 1e-7)(random);
    }));
  }
}

// As of f32 tensors made by bf16 arithmetic: the bins of distances are coarse there.
TEST(JudgeRunTest, AgreesOnLargeDistances) {
  for (double size : {1e-4, 1e-2, 3.0}) {
    SCOPED_TRACE(size);
    agrees(make("float32", 20 * kChunk + 11,
                [&](size_t, std::mt19937_64& random) { return std::normal_distribution<double>(0, size)(random); }));
  }
}

TEST(JudgeRunTest, AFaultIsTheSameAsAChangedTensor) {
  const Sides sides = make("float32", 2 * kChunk + 9, like_float32);
  const auto in_f64 = [](std::vector<double> values) { return tensor("float64", values); };
  const auto faulty = [&](const Fault& fault) {
    return judge_pairs({Pair{sides.reference.view(), sides.reference.view(), sides.exact.view(), kFloat32, fault}}, {})
        .front()
        .row.dump();
  };
  const auto changed = [&](std::vector<double> values) {
    return judged_with(1, in_f64(sides.reference.values()), in_f64(std::move(values)), &sides.exact, kFloat32).dump();
  };
  std::vector<double> values = sides.reference.values();
  std::rotate(values.begin(), values.begin() + 1, values.end());
  EXPECT_EQ(faulty({1, 1}), changed(values));
  values = sides.reference.values();
  for (double& value : values) value *= 1.01;
  EXPECT_EQ(faulty({1.01, 0}), changed(values));
  EXPECT_EQ(faulty({0, 0}), changed(std::vector<double>(values.size(), 0)));
}

TEST(JudgeRunTest, RefusesSidesThatAreNotAlike) {
  const Tensor three = tensor<float>("float32", {1, 2, 3}), two = tensor<float>("float32", {1, 2});
  EXPECT_THROW(judge_tensor(three, two, nullptr, {}), Error);
  EXPECT_THROW(judge_tensor(three, tensor<double>("float64", {1, 2, 3}), nullptr, {}), Error);
  EXPECT_THROW(judge_tensor(three, three, &two, {}), Error);
}

// Files of several tensors, in another order on each side.
class JudgedFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("tpupilot-judged-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::vector<std::pair<std::string, Tensor>>& tensors) {
    json header = json::object();
    size_t at = 0;
    for (const auto& [key, tensor] : tensors) {
      header[key] = {{"dtype", format_of(tensor.dtype).safetensors},
                     {"shape", tensor.shape},
                     {"data_offsets", {at, at + tensor.bytes.size()}}};
      at += tensor.bytes.size();
    }
    const std::string text = header.dump();
    const uint64_t length = text.size();
    std::ofstream out(folder_ / name, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), 8) << text;
    for (const auto& [key, tensor] : tensors) out << tensor.bytes;
  }

  // A file of float32 zeros that takes no room on the disk.
  void write_sparse(const std::string& name, size_t count) {
    write(name, {});
    const json header = {{"w", {{"dtype", "F32"}, {"shape", {count}}, {"data_offsets", {0, count * 4}}}}};
    const std::string text = header.dump();
    const uint64_t length = text.size();
    std::ofstream(folder_ / name, std::ios::binary).write(reinterpret_cast<const char*>(&length), 8) << text;
    fs::resize_file(folder_ / name, 8 + length + count * 4);
  }

  fs::path folder_;
};

TEST_F(JudgedFilesTest, EveryByteIsHandedOutOnceInOrder) {
  const Sides a = make("float32", 9 * kChunk + 3, like_float32), b = make("bfloat16", 2 * kChunk, like_float32, 8),
              c = make("float32", 5, like_float32, 9);
  write("reference",
        {{"a", a.reference}, {"b", b.reference}, {"c", c.reference}, {"none", tensor<float>("float32", {})}});
  write("candidate",
        {{"c", c.candidate}, {"none", tensor<float>("float32", {})}, {"b", b.candidate}, {"a", a.candidate}});
  write("exact", {{"b", b.exact}, {"only here", a.exact}, {"a", a.exact}, {"c", c.exact}});
  const TensorFile reference(folder_ / "reference"), candidate(folder_ / "candidate"), exact(folder_ / "exact");
  std::vector<Pair> pairs;
  std::vector<std::string> expected;
  for (const auto& [name, sides] : {std::pair{"b", &b}, {"a", &a}, {"c", &c}}) {
    pairs.push_back({reference.tensors().at(name), candidate.tensors().at(name), exact.tensors().at(name), kFloat32});
    expected.push_back(judged_with(1, sides->reference, sides->candidate, &sides->exact, kFloat32).dump());
  }
  for (unsigned threads : {1U, 2U, 5U}) {
    std::array<std::string, 3> seen;
    const std::vector<const MappedFile*> files = {&reference.file(), &candidate.file(), &exact.file()};
    std::vector<Stream> streams;
    for (size_t i = 0; i < 3; ++i)
      streams.push_back({files[i], [&seen, i](std::string_view bytes) { seen[i] += bytes; }});
    const auto judged = judge_pairs(pairs, streams, threads);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(seen[i] == files[i]->bytes()) << files[i]->name() << ", " << threads << " threads";
      EXPECT_EQ(judged[i].row.dump(), expected[i]);
    }
  }
}

TEST_F(JudgedFilesTest, AFileThatWasCutShortIsAnErrorAndNoSignal) {
  const Tensor values = tensor("float32", std::vector<float>(size_t{8} << 20, 1));
  write("reference", {{"w", values}});
  write("candidate", {{"w", values}});
  const TensorFile reference(folder_ / "reference"), candidate(folder_ / "candidate");
  fs::resize_file(folder_ / "candidate", size_t{5} << 20);
  const Pair pair{reference.tensors().at("w"), candidate.tensors().at("w"), std::nullopt, kFloat32};
  for (bool hashed : {false, true}) {
    const auto sink = hashed ? [](std::string_view) {} : std::function<void(std::string_view)>();
    try {
      judge_pairs({pair}, {{&reference.file(), sink}, {&candidate.file(), sink}}, 2);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("candidate can no longer be read"), std::string::npos) << error.what();
    }
  }
}

TEST_F(JudgedFilesTest, AnErrorOfWhoTakesTheBytesIsPassedOn) {
  write("file", {{"w", tensor("float32", std::vector<float>(size_t{1} << 20, 1))}});
  const TensorFile file(folder_ / "file");
  const Stream stream{&file.file(), [](std::string_view) { throw std::runtime_error("no more"); }};
  EXPECT_THROW(judge_pairs({}, {stream}, 2), std::runtime_error);
}

double resident(const std::string& which) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(which)) return std::stod(line.substr(which.size() + 1)) / 1024;
  }
  return -1;
}

// Memory does not grow with the tensors: neither the judge's own nor what stays mapped of the files.
TEST_F(JudgedFilesTest, AGibibyteTakesAFewMebibytes) {
  constexpr size_t count = size_t{1} << 27;  // 512 MiB a side
  write_sparse("reference", count);
  write_sparse("candidate", count);
  const TensorFile reference(folder_ / "reference"), candidate(folder_ / "candidate");
  const Pair pair{reference.tensors().at("w"), candidate.tensors().at("w"), std::nullopt, kFloat32};
  const double anonymous = resident("RssAnon:"), mapped = resident("RssFile:");
  double most_anonymous = 0, most_mapped = 0;
  const auto watch = [&](std::string_view) {
    most_anonymous = std::max(most_anonymous, resident("RssAnon:") - anonymous);
    most_mapped = std::max(most_mapped, resident("RssFile:") - mapped);
  };
  const auto judged = judge_pairs({pair}, {{&reference.file(), watch}, {&candidate.file()}}, 2);
  EXPECT_TRUE(judged.front().passed);
  ASSERT_GE(anonymous, 0);
  EXPECT_LE(most_anonymous, 64);
  EXPECT_LE(most_mapped, 256);  // a thread that is kept waiting holds windows longer
}

TEST(KernelsTest, EveryInstructionSetGivesTheSameBits) {
  const Kernels &plain = baseline_kernels(), &best = kernels();
  if (std::string(plain.name) == best.name) GTEST_SKIP() << "this processor, or this build, has one set only";
  for (const Rule& rule : {kFloat32, Rule{1e-9, 0, 2}, Rule{0, 0, 2}}) {
    const Sides sides = make("float32", kBlock, like_float32);
    const auto run = [&](const Kernels& kernels, const Tensor& exact) {
      std::vector<double> tails(2 * (kBlock + kLanes));
      Tally tally;
      tally.rtol = rule.rtol;
      tally.atol = rule.atol;
      tally.reference_threshold = tally.candidate_threshold = 5e-8;
      tally.reference_tail = tails.data();
      tally.candidate_tail = tails.data() + kBlock + kLanes;
      EXPECT_TRUE(kernels.add_finite(
          {Dtype::Float32, sides.reference.bytes.data(), sides.candidate.bytes.data(), exact.bytes.data(), kBlock}, 0,
          tally));
      std::vector<double> all = {tally.max_abs,
                                 tally.max_rel,
                                 tally.severity,
                                 static_cast<double>(tally.worst),
                                 static_cast<double>(tally.mismatches),
                                 static_cast<double>(tally.reference_kept),
                                 static_cast<double>(tally.candidate_kept)};
      for (const Lanes& lanes : {tally.product, tally.reference_squares, tally.candidate_squares,
                                 tally.reference_error_squares, tally.candidate_error_squares})
        all.insert(all.end(), lanes.begin(), lanes.end());
      for (size_t i = 0; i < tally.reference_kept; ++i) all.push_back(tails[i]);
      return all;
    };
    EXPECT_EQ(run(plain, sides.exact), run(best, sides.exact));
  }
}

TEST(KernelsTest, DistancesFallIntoTheirBins) {
  for (const Kernels* set : {&baseline_kernels(), &kernels()}) {
    SCOPED_TRACE(set->name);
    std::vector<int32_t> left, right;
    std::vector<uint64_t> expected(kUlpBins);
    const auto add = [&](uint32_t distance) {
      left.push_back(std::numeric_limits<int32_t>::min());
      right.push_back(static_cast<int32_t>(static_cast<int64_t>(left.back()) + distance));
      ++expected[ulp_bin(distance)];
    };
    for (uint32_t power = 0; power < 32; ++power) {
      for (int64_t near : {-2, -1, 0, 1, 2}) add(static_cast<uint32_t>((int64_t{1} << power) + near));
      add(static_cast<uint32_t>((uint64_t{129} << power >> 7) - 1));
      add(static_cast<uint32_t>(uint64_t{129} << power >> 7));
    }
    add(std::numeric_limits<uint32_t>::max());
    const auto counts = std::make_unique<UlpCounts>();
    set->add_distances(Dtype::Int32, reinterpret_cast<const char*>(left.data()),
                       reinterpret_cast<const char*>(right.data()), left.size(), *counts);
    EXPECT_EQ(counts->largest, std::numeric_limits<uint32_t>::max());
    std::vector<uint64_t> totals(kUlpBins);
    counts->move_to(totals);
    EXPECT_EQ(totals, expected);
  }
}

TEST(KernelsTest, EveryHalfIsWidenedExactly) {
  for (const Kernels* set : {&baseline_kernels(), &kernels()}) {
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const auto half = static_cast<uint16_t>(bits);
      double value = 0;
      set->widen(Dtype::Float16, reinterpret_cast<const char*>(&half), 1, &value);
      const int exponent = half >> 10 & 31, mantissa = half & 1023;
      const double size = exponent == 31 ? (mantissa ? kNan : kInf)
                          : exponent     ? std::ldexp(1024 + mantissa, exponent - 25)
                                         : std::ldexp(mantissa, -24);
      ASSERT_TRUE(oracle::same(value, half >> 15 ? -size : size)) << bits;
    }
  }
}

}  // namespace
}  // namespace tpupilot::numerics
