#include "ops/layer_call.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/run.h"

namespace tpupilot::test {

using hlo::Elem;
using hlo::Value;

class LayerContext final : public ops::Context {
 public:
  LayerContext(hlo::Builder& b, const LayerCall& call, const ops::Row& row)
      : Context(b, call.overload_), call_(call), row_(row), results_(call.results_) {}

  bool has_argument(std::string_view name) const override { return call_.arguments_.contains(name); }
  bool given(std::string_view name) const override {
    return has_argument(name) && !std::holds_alternative<std::monostate>(argument(name));
  }
  Value tensor(std::string_view name) override { return input(std::string(name), get<Array>(name)); }
  std::vector<std::optional<Value>> tensors(std::string_view name) override {
    std::vector<std::optional<Value>> values;
    for (const auto& array : get<LayerCall::List>(name).values) {
      const std::string key = std::string(name) + std::to_string(values.size());
      values.push_back(array ? std::optional(input(key, *array)) : std::nullopt);
    }
    return values;
  }
  bool is_wrapped_number(std::string_view) const override { return false; }
  Elem default_elem() const override { return Elem::F32; }
  bool is_scalar(std::string_view name) const override {
    return has_argument(name) && std::holds_alternative<LayerCall::Scalar>(argument(name));
  }
  Value scalar(std::string_view name, Elem elem) override {
    const auto& s = get<LayerCall::Scalar>(name);
    return b.convert(input(std::string(name), array({s.is_integer ? Elem::S64 : Elem::F64, {}}, {s.value})), elem);
  }
  hlo::Values integer_inputs(std::string_view name) override {
    hlo::Values values;
    for (const int64_t v : get<hlo::Dims>(name)) {
      const std::string key = std::string(name) + std::to_string(values.size());
      values.push_back(input(key, array({Elem::S64, {}}, {static_cast<double>(v)})));
    }
    return values;
  }
  ops::ScalarKind scalar_kind(std::string_view name) const override {
    return get<LayerCall::Scalar>(name).is_integer ? ops::ScalarKind::Int : ops::ScalarKind::Float;
  }
  bool is_identity(std::string_view name) const override {
    for (const auto& identity : row_.identities) {
      if (identity.name == name) return get<LayerCall::Scalar>(name).value == identity.value;
    }
    return false;
  }
  double constant(std::string_view name) const override { return get<LayerCall::Scalar>(name).value; }
  int64_t integer(std::string_view name) const override { return get<int64_t>(name); }
  bool boolean(std::string_view name) const override { return get<bool>(name); }
  hlo::Dims integers(std::string_view name) const override { return given(name) ? get<hlo::Dims>(name) : hlo::Dims{}; }
  std::string string(std::string_view name) const override { return get<std::string>(name); }
  std::vector<bool> booleans(std::string_view name) const override { return get<std::vector<bool>>(name); }
  std::vector<double> floats(std::string_view name) const override {
    throw hlo::Error("no floats in " + std::string(name));
  }
  size_t result_count() const override { return results_.size(); }
  const hlo::Type& result(size_t i) const override { return results_.at(i); }
  Value random_state() override {
    return input("random state", Array::of({Elem::U64, {2}}, std::vector<uint64_t>{call_.seed_, 0}));
  }

  void set_results(std::vector<hlo::Type> results) { results_ = std::move(results); }
  const std::vector<Array>& inputs() const { return inputs_; }

 private:
  const LayerCall::Argument& argument(std::string_view name) const {
    const auto it = call_.arguments_.find(name);
    if (it == call_.arguments_.end())
      throw hlo::Error("[" + call_.overload_ + "] no argument '" + std::string(name) + "'");
    return it->second;
  }
  template <typename T>
  const T& get(std::string_view name) const {
    const T* value = std::get_if<T>(&argument(name));
    if (value == nullptr) throw hlo::Error("[" + call_.overload_ + "] '" + std::string(name) + "' is of another kind");
    return *value;
  }
  Value input(const std::string& key, const Array& array) {
    Value& known = known_[key];
    if (!known) {
      known = b.parameter(array.type);
      inputs_.push_back(array);
    }
    return known;
  }

  const LayerCall& call_;
  const ops::Row& row_;
  std::vector<hlo::Type> results_;
  std::map<std::string, Value> known_;
  std::vector<Array> inputs_;
};

namespace {

void raise_refusal(const std::vector<ops::Requirement>& requirements, const Array& verdict) {
  std::vector<ops::Refusal> refusals;
  for (const ops::Requirement& r : requirements) refusals.push_back(r.refusal);
  std::vector<int64_t> words;
  for (const double v : doubles(verdict)) words.push_back(static_cast<int64_t>(v));
  if (const auto refusal = ops::first_refusal(refusals, words)) throw std::domain_error(refusal->text);
}

}  // namespace

std::vector<std::optional<Array>> LayerCall::run() const {
  const ops::Row* row = nullptr;
  for (const ops::Row& r : ops::rows()) {
    for (const std::string_view overload : r.overloads) row = overload == overload_ ? &r : row;
  }
  if (row == nullptr) throw std::invalid_argument("[LayerCall] no row serves " + overload_);
  hlo::Builder b(target_);
  LayerContext c(b, *this, *row);
  if (results_.empty()) c.set_results(row->shape(c));
  const hlo::Values values = row->emit(c);
  if (values.size() != c.result_count())
    throw std::logic_error("[LayerCall] " + overload_ + " gave " + std::to_string(values.size()) + " results");
  hlo::Values defined;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i]) continue;
    const hlo::Type& type = c.result(i);
    const Value v = b.convert(values[i], type.elem);
    defined.push_back(v.type.numel() == type.numel() ? b.reshape(v, type.dims) : b.broadcast(v, type.dims));
  }
  if (!c.requirements().empty()) defined.push_back(ops::verdict(b, c.requirements()));
  const std::vector<Array> arrays = evaluate(b, defined, c.inputs());
  if (!c.requirements().empty()) raise_refusal(c.requirements(), arrays.back());
  std::vector<std::optional<Array>> results;
  size_t next = 0;
  for (const Value& v : values) results.push_back(v ? std::optional(arrays[next++]) : std::nullopt);
  return results;
}

std::vector<double> LayerCall::values() const { return doubles(run().at(0).value()); }

Array irregular(hlo::Type type, double offset) {
  std::vector<double> values;
  for (int64_t i = 0; i < type.numel(); ++i)
    values.push_back(std::sin(static_cast<double>(i * i) * 0.7 + static_cast<double>(i) + offset));
  return array(std::move(type), values);
}

Array f32(hlo::Dims dims, const std::vector<double>& values) { return array({Elem::F32, std::move(dims)}, values); }
Array s64(hlo::Dims dims, const std::vector<double>& values) { return array({Elem::S64, std::move(dims)}, values); }

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(actual[i])) << "element " << i << " is " << actual[i] << ", not NaN";
    } else if (std::isinf(expected[i])) {
      EXPECT_EQ(actual[i], expected[i]) << "element " << i;
    } else {
      EXPECT_NEAR(actual[i], expected[i], tolerance * std::max(1.0, std::fabs(expected[i]))) << "element " << i;
    }
  }
}

}  // namespace tpupilot::test
