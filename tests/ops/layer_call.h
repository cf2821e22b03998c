// One call of a row without torch: arguments by name, results by type, run on the CPU plugin.
#pragma once

#include <map>
#include <optional>
#include <variant>

#include "ops/row.h"
#include "support/array.h"

namespace tpupilot::test {

class LayerCall {
 public:
  explicit LayerCall(std::string overload) : overload_(std::move(overload)) {}

  LayerCall& tensor(const std::string& name, Array value) { return put(name, Tensors{std::move(value)}); }
  LayerCall& tensors(const std::string& name, std::vector<std::optional<Array>> values) {
    return put(name, List{std::move(values)});
  }
  LayerCall& scalar(const std::string& name, double value) { return put(name, Scalar{value, false}); }
  LayerCall& integer_scalar(const std::string& name, int64_t value) {
    return put(name, Scalar{static_cast<double>(value), true});
  }
  LayerCall& set(const std::string& name, int64_t value) { return put(name, value); }
  LayerCall& set(const std::string& name, int value) { return put(name, static_cast<int64_t>(value)); }
  LayerCall& set(const std::string& name, bool value) { return put(name, value); }
  LayerCall& set(const std::string& name, hlo::Dims value) { return put(name, std::move(value)); }
  LayerCall& set(const std::string& name, const char* value) { return put(name, std::string(value)); }
  LayerCall& mask(const std::string& name, std::vector<bool> value) { return put(name, std::move(value)); }
  LayerCall& none(const std::string& name) { return put(name, std::monostate{}); }
  LayerCall& result(hlo::Type type) {
    results_.push_back(std::move(type));
    return *this;
  }
  LayerCall& on(hlo::Target target) {
    target_ = target;
    return *this;
  }
  LayerCall& seed(uint64_t seed) {
    seed_ = seed;
    return *this;
  }

  // Emits the row, compiles, executes. An undefined result is nothing; the others have the types given, as the boxed
  // kernel would convert and broadcast them. Without results given, the row's shape function decides. A call that the
  // program refuses (Context::require) is a std::domain_error.
  std::vector<std::optional<Array>> run() const;
  // The elements of the only result.
  std::vector<double> values() const;

 private:
  friend class LayerContext;
  using Tensors = Array;
  struct List {
    std::vector<std::optional<Array>> values;
  };
  struct Scalar {
    double value;
    bool is_integer;
  };
  using Argument =
      std::variant<std::monostate, Tensors, List, Scalar, int64_t, bool, hlo::Dims, std::string, std::vector<bool>>;

  LayerCall& put(const std::string& name, Argument argument) {
    arguments_[name] = std::move(argument);
    return *this;
  }

  std::string overload_;
  std::map<std::string, Argument, std::less<>> arguments_;
  std::vector<hlo::Type> results_;
  hlo::Target target_;
  uint64_t seed_ = 1;
};

// Row-major values 1, 2, 3, ... brought into [-1, 1] in a fixed, irregular way: numbers without a pattern that hides
// errors.
Array irregular(hlo::Type type, double offset = 0);
Array f32(hlo::Dims dims, const std::vector<double>& values);
Array s64(hlo::Dims dims, const std::vector<double>& values);

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// EXPECTs the elements to be near; NaN equals NaN, and infinities themselves.
void expect_near(const std::vector<double>& actual, const std::vector<double>& expected, double tolerance = 1e-5);

}  // namespace tpupilot::test
