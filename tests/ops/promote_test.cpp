// Promotion against torch.result_type, and conversions against what ATen on an x86 CPU gives.
#include "ops/promote.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

#include "support/run.h"

namespace tpupilot::test {
namespace {

using hlo::Elem;
using hlo::Type;
using hlo::Value;
using ops::ScalarKind;

constexpr std::array kElems = {Elem::Pred, Elem::S8,   Elem::S16, Elem::S32, Elem::S64, Elem::U8,
                               Elem::F16,  Elem::BF16, Elem::F32, Elem::F64, Elem::C64, Elem::C128};
constexpr std::string_view kCodes = "bijklBhgfdcC";  // one letter for each of kElems
constexpr std::array kKinds = {ScalarKind::Bool, ScalarKind::Int, ScalarKind::Float, ScalarKind::Complex};

// What torch.result_type (2.13) says: a row for each of kElems, a column for each of kElems or kKinds. "Dims" are
// tensors with dims, "numbers" are Python scalars. complex32 stands as complex64: no program has it.
constexpr std::array<std::string_view, 12> kBothWithDims = {
    "bijklBhgfdcC", "iijkljhgfdcC", "jjjkljhgfdcC", "kkkklkhgfdcC", "llllllhgfdcC", "BjjklBhgfdcC",
    "hhhhhhhffdcC", "ggggggfgfdcC", "fffffffffdcC", "ddddddddddCC", "cccccccccCcC", "CCCCCCCCCCCC"};
constexpr std::array<std::string_view, 12> kDimsAndZeroDims = {
    "bijklBhgfdcC", "iiiiiihgfdcC", "jjjjjjhgfdcC", "kkkkkkhgfdcC", "llllllhgfdcC", "BBBBBBhgfdcC",
    "hhhhhhhhhhcc", "ggggggggggcc", "ffffffffffcc", "ddddddddddCC", "cccccccccccc", "CCCCCCCCCCCC"};
constexpr std::array<std::string_view, 12> kDimsAndNumber = {"blfc", "iifc", "jjfc", "kkfc", "llfc", "BBfc",
                                                             "hhhc", "gggc", "fffc", "dddC", "cccc", "CCCC"};
constexpr std::array<std::string_view, 12> kZeroDimsAndNumber = {"blfc", "iifc", "jjfc", "kkfc", "llfc", "BBfc",
                                                                 "hhhc", "gggc", "fffc", "dddC", "cccc", "CCCC"};

// Two operands, "a" and "b": all that result_type asks for.
class Operands final : public ops::Context {
 public:
  struct Operand {
    std::optional<Value> tensor;
    std::optional<ScalarKind> kind;  // of a Scalar argument, or of a number wrapped as a tensor
  };
  Operands(hlo::Builder& b, Operand x, Operand y, Elem by_default = Elem::F32)
      : Context(b, "test"), operands_{{"a", x}, {"b", y}}, by_default_(by_default) {}

  bool has_argument(std::string_view name) const override { return operands_.contains(name); }
  bool given(std::string_view name) const override { return has_argument(name); }
  Value tensor(std::string_view name) override { return at(name).tensor.value(); }
  bool is_wrapped_number(std::string_view name) const override { return at(name).tensor && at(name).kind; }
  Elem default_elem() const override { return by_default_; }
  bool is_scalar(std::string_view name) const override { return !at(name).tensor; }
  ScalarKind scalar_kind(std::string_view name) const override { return at(name).kind.value(); }

  std::vector<std::optional<Value>> tensors(std::string_view) override { throw unasked(); }
  Value scalar(std::string_view, Elem) override { throw unasked(); }
  hlo::Values integer_inputs(std::string_view) override { throw unasked(); }
  bool is_identity(std::string_view) const override { throw unasked(); }
  double constant(std::string_view) const override { throw unasked(); }
  int64_t integer(std::string_view) const override { throw unasked(); }
  bool boolean(std::string_view) const override { throw unasked(); }
  hlo::Dims integers(std::string_view) const override { throw unasked(); }
  std::string string(std::string_view) const override { throw unasked(); }
  std::vector<bool> booleans(std::string_view) const override { throw unasked(); }
  std::vector<double> floats(std::string_view) const override { throw unasked(); }
  size_t result_count() const override { throw unasked(); }
  const Type& result(size_t) const override { throw unasked(); }
  Value random_state() override { throw unasked(); }

 private:
  static std::logic_error unasked() { return std::logic_error("[Operands] result_type asked for more than operands"); }
  const Operand& at(std::string_view name) const { return operands_.find(name)->second; }
  std::map<std::string, Operand, std::less<>> operands_;
  Elem by_default_;
};

char code(Elem e) { return kCodes[std::find(kElems.begin(), kElems.end(), e) - kElems.begin()]; }

using Table = std::array<std::string_view, 12>;

// The table as result_type gives it, the right-hand operands made by `right` from a column's number.
template <typename Right>
std::vector<std::string> results(const hlo::Dims& left, size_t columns, Right right) {
  std::vector<std::string> rows;
  for (const Elem elem : kElems) {
    std::string row, swapped;
    for (size_t i = 0; i < columns; ++i) {
      hlo::Builder b;
      const Operands::Operand x{b.parameter({elem, left}), {}}, y = right(b, i);
      Operands c(b, x, y);
      row += code(ops::result_type(c, "a", "b"));
      swapped += code(ops::result_type(c, "b", "a"));
    }
    EXPECT_EQ(row, swapped) << "the order of the operands matters for " << hlo::name(elem);
    rows.push_back(row);
  }
  return rows;
}

void expect_table(const std::vector<std::string>& actual, const Table& expected) {
  for (size_t i = 0; i < kElems.size(); ++i) EXPECT_EQ(actual[i], expected[i]) << "row of " << hlo::name(kElems[i]);
}

TEST(ResultType, TensorsWithDims) {
  expect_table(results({2}, 12, [](auto& b, size_t i) { return Operands::Operand{b.parameter({kElems[i], {2}}), {}}; }),
               kBothWithDims);
}

TEST(ResultType, ZeroDimTensorsOfOneClassPromoteLikeTensors) {
  expect_table(results({}, 12, [](auto& b, size_t i) { return Operands::Operand{b.parameter({kElems[i], {}}), {}}; }),
               kBothWithDims);
}

TEST(ResultType, ZeroDimTensorsYieldToTensorsWithDims) {
  expect_table(results({2}, 12, [](auto& b, size_t i) { return Operands::Operand{b.parameter({kElems[i], {}}), {}}; }),
               kDimsAndZeroDims);
}

TEST(ResultType, ScalarArgumentsYieldToTensors) {
  const auto scalar = [](auto&, size_t i) { return Operands::Operand{{}, kKinds[i]}; };
  expect_table(results({2}, 4, scalar), kDimsAndNumber);
  expect_table(results({}, 4, scalar), kZeroDimsAndNumber);
}

TEST(ResultType, WrappedNumbersAreNumbersWhateverTheirTensor) {
  const auto wrapped = [](auto& b, size_t i) {
    constexpr std::array kWrapped = {Elem::Pred, Elem::S64, Elem::F64, Elem::C128};
    return Operands::Operand{b.parameter({kWrapped[i], {}}), kKinds[i]};
  };
  expect_table(results({2}, 4, wrapped), kDimsAndNumber);
  expect_table(results({}, 4, wrapped), kZeroDimsAndNumber);
}

TEST(ResultType, TheDefaultDtypeDecidesForIntegersWithNumbers) {
  for (const Elem by_default : {Elem::F32, Elem::F64, Elem::BF16}) {
    hlo::Builder b;
    const Operands::Operand integers{b.parameter({Elem::S64, {2}}), {}};
    Operands real(b, integers, {{}, ScalarKind::Float}, by_default);
    EXPECT_EQ(ops::result_type(real, "a", "b"), by_default);
    Operands complex(b, integers, {b.parameter({Elem::C128, {}}), ScalarKind::Complex}, by_default);
    EXPECT_EQ(ops::result_type(complex, "a", "b"), by_default == Elem::F64 ? Elem::C128 : Elem::C64);
  }
}

TEST(ConvertLikeAten, FloatsToIntegersAndBool) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const Array x = array({Elem::F32, {9}}, {2.9, -2.9, 0.0, -0.0, 0.1, nan, inf, -inf, 3e9});
  hlo::Builder b;
  const Value v = b.parameter(x.type);
  const auto to = [&](Elem e) { return ops::convert_like_aten(b, v, e); };
  const auto out = evaluate(b, {to(Elem::S32), to(Elem::S64), to(Elem::Pred), to(Elem::U8)}, {x});
  const double least32 = -2147483648.0, least64 = -9223372036854775808.0;
  EXPECT_EQ(doubles(out[0]), (std::vector<double>{2, -2, 0, 0, 0, least32, least32, least32, least32}));
  EXPECT_EQ(doubles(out[1]), (std::vector<double>{2, -2, 0, 0, 0, least64, least64, least64, 3e9}));
  EXPECT_EQ(doubles(out[2]), (std::vector<double>{1, 1, 0, 0, 1, 1, 1, 1, 1}));
  EXPECT_EQ(doubles(out[3]), (std::vector<double>{2, 254, 0, 0, 0, 0, 0, 0, 0}));  // the low bits of the S64
}

TEST(ConvertLikeAten, ComplexNumbersLoseTheirImaginaryPartAndAreTrueWithEither) {
  const Array x = Array::of<std::complex<float>>({Elem::C64, {3}}, {{1.5F, 2}, {0, 1}, {0, 0}});
  hlo::Builder b;
  const Value v = b.parameter(x.type);
  const auto out =
      evaluate(b, {ops::convert_like_aten(b, v, Elem::F64), ops::convert_like_aten(b, v, Elem::Pred)}, {x});
  EXPECT_EQ(doubles(out[0]), (std::vector<double>{1.5, 0, 0}));
  EXPECT_EQ(doubles(out[1]), (std::vector<double>{1, 1, 0}));
}

TEST(ConvertLikeAten, IntegersWrapAndNarrowFloatsRoundToEven) {
  const Array x = array({Elem::S32, {3}}, {257, -1, 300});
  const Array y = array({Elem::F32, {2}}, {1.00390625, 1.01171875});  // halfway between neighbours in bf16
  hlo::Builder b;
  const Value v = b.parameter(x.type), w = b.parameter(y.type);
  const auto out =
      evaluate(b, {ops::convert_like_aten(b, v, Elem::U8), ops::convert_like_aten(b, w, Elem::BF16)}, {x, y});
  EXPECT_EQ(doubles(out[0]), (std::vector<double>{1, 255, 44}));
  EXPECT_EQ(doubles(out[1]), (std::vector<double>{1, 1.015625}));
}

}  // namespace
}  // namespace tpupilot::test
