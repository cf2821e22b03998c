// The module's text: ops, regions, parameters, @main.
#include "hlo/builder.h"

#include <charconv>
#include <unordered_set>

#include "hlo/text.h"

namespace tpupilot::hlo {
namespace {

std::string joined_types(const std::vector<Type>& types) {
  std::string text;
  for (const Type& t : types) text += (text.empty() ? "" : ", ") + t.str();
  return text;
}

std::string joined_types(const Values& values) {
  std::string text;
  for (const Value& v : values) text += (text.empty() ? "" : ", ") + v.type.str();
  return text;
}

std::string joined_names(const Values& values) {
  std::string text;
  for (const Value& v : values) text += (text.empty() ? "" : ", ") + v.name;
  return text;
}

// 12 of "%v12#1"; -1 of a parameter.
int number_of(const Value& v) {
  int number = -1;
  if (v.name.starts_with("%v")) std::from_chars(v.name.data() + 2, v.name.data() + v.name.size(), number);
  return number;
}

// Ops that give each element by itself. What is not here (contractions, sorts, loops, calls) may run on other threads.
bool is_elementwise(std::string_view op) {
  static const std::unordered_set<std::string_view> names = {"abs",
                                                             "add",
                                                             "and",
                                                             "atan2",
                                                             "bitcast_convert",
                                                             "broadcast_in_dim",
                                                             "cbrt",
                                                             "ceil",
                                                             "clamp",
                                                             "compare",
                                                             "concatenate",
                                                             "constant",
                                                             "convert",
                                                             "cosine",
                                                             "divide",
                                                             "dynamic_slice",
                                                             "dynamic_update_slice",
                                                             "exponential",
                                                             "exponential_minus_one",
                                                             "floor",
                                                             "imag",
                                                             "iota",
                                                             "is_finite",
                                                             "log",
                                                             "log_plus_one",
                                                             "logistic",
                                                             "maximum",
                                                             "minimum",
                                                             "multiply",
                                                             "negate",
                                                             "not",
                                                             "or",
                                                             "pad",
                                                             "popcnt",
                                                             "power",
                                                             "real",
                                                             "remainder",
                                                             "reshape",
                                                             "reverse",
                                                             "round_nearest_afz",
                                                             "round_nearest_even",
                                                             "rsqrt",
                                                             "select",
                                                             "shift_left",
                                                             "shift_right_arithmetic",
                                                             "shift_right_logical",
                                                             "sign",
                                                             "sine",
                                                             "slice",
                                                             "sqrt",
                                                             "subtract",
                                                             "tanh",
                                                             "transpose",
                                                             "xor"};
  return op.starts_with("stablehlo.") && names.contains(op.substr(op.find('.') + 1));
}

}  // namespace

void Builder::weigh(std::string_view name, const Type& out) {
  if (elements_ > kSmall) return;  // it stays so; and no sum overflows
  elements_ = is_elementwise(name) && out.numel() <= kSmall ? elements_ + out.numel() : kSmall + 1;
}

void Builder::fail(std::string_view op, const std::string& why) const {
  throw Error("[" + std::string(short_name(op)) + "] " + why);
}

void Builder::check_operands(std::string_view op, const Values& in) const {
  for (size_t i = 0; i < in.size(); ++i) {
    if (!in[i]) fail(op, "operand " + std::to_string(i) + " is no value (default-constructed)");
    if (floor_ >= 0 && number_of(in[i]) < floor_) {
      fail(op, "operand " + in[i].name + " comes from outside of a region that may not capture; pass it as an operand");
    }
  }
}

Value Builder::parameter(Type type) {
  if (depth_ > 0) fail("parameter", "called inside a region; declare parameters of @main outside");
  if (type.elem == Elem::Invalid) fail("parameter", "the element type is Invalid");
  parameters_.push_back({"%a" + std::to_string(parameters_.size()), std::move(type)});
  return parameters_.back();
}

void Builder::append(std::string_view name, std::string_view results, const Values& in, const std::string& out_types,
                     std::string_view properties, std::string_view regions, std::string_view attributes) {
  check_operands(name, in);
  body_ << "  ";
  if (!results.empty()) body_ << results << " = ";
  body_ << '"' << name << "\"(" << joined_names(in) << ")";
  if (!properties.empty()) body_ << " <{" << properties << "}>";
  if (!regions.empty()) body_ << " (" << regions << ")";
  if (!attributes.empty()) body_ << " {" << attributes << "}";
  body_ << " : (" << joined_types(in) << ") -> " << out_types << "\n";
}

Value Builder::op(std::string_view name, const Values& in, Type out, std::string_view properties,
                  std::string_view regions, std::string_view attributes) {
  Value result{fresh(), std::move(out)};
  weigh(name, result.type);
  append(name, result.name, in, result.type.str(), properties, regions, attributes);
  ++op_count_;
  return result;
}

Values Builder::ops(std::string_view name, const Values& in, const std::vector<Type>& out, std::string_view properties,
                    std::string_view regions, std::string_view attributes) {
  if (out.size() == 1) return {op(name, in, out[0], properties, regions, attributes)};
  const std::string group = out.empty() ? "" : fresh();
  const std::string results = out.empty() ? "" : group + ":" + std::to_string(out.size());
  append(name, results, in, "(" + joined_types(out) + ")", properties, regions, attributes);
  elements_ = kSmall + 1;
  ++op_count_;
  Values values;
  for (size_t i = 0; i < out.size(); ++i) values.push_back({group + "#" + std::to_string(i), out[i]});
  return values;
}

std::string Builder::nested(bool isolated, const std::function<void()>& body) {
  // Ops that `body` adds go to a stream of their own; what was there comes back however `body` ends.
  struct Swap {
    Builder& b;
    std::ostringstream outer;
    int floor;
    Swap(Builder& builder, bool isolate) : b(builder), floor(builder.floor_) {
      b.body_.swap(outer);
      ++b.depth_;
      if (isolate) b.floor_ = b.next_;
    }
    ~Swap() {
      b.body_.swap(outer);
      --b.depth_;
      b.floor_ = floor;
    }
  } swap(*this, isolated);
  body();
  return body_.str();
}

std::string Builder::region(const std::vector<Type>& arguments, const std::function<Values(const Values&)>& body,
                            bool may_capture) {
  std::string header;
  const std::string text = nested(!arguments.empty() && !may_capture, [&] {
    const Values values = fresh_arguments(arguments);
    for (const Value& v : values) header += (header.empty() ? "^bb0(" : ", ") + v.name + ": " + v.type.str();
    if (!header.empty()) header += "):\n";
    append("stablehlo.return", "", body(values), "()");
  });
  return "{\n" + header + text + "}";
}

Values Builder::apart(const Values& in, const std::function<Values(const Values&)>& body) {
  std::vector<Type> arguments, results;
  for (const Value& v : in) arguments.push_back(v.type);
  std::string header;
  const std::string text = nested(true, [&] {
    const Values values = fresh_arguments(arguments);
    for (const Value& v : values) header += (header.empty() ? "" : ", ") + v.name + ": " + v.type.str();
    const Values returned = body(values);
    for (const Value& v : returned) results.push_back(v.type);
    append("func.return", "", returned, "()");
  });
  const std::string name = "@f" + std::to_string(next_++);
  functions_ += "func.func private " + name + "(" + header + ") -> (" + joined_types(results) + ") {\n" + text + "}\n";
  return ops("func.call", in, results, "callee = " + name, {}, "mhlo.frontend_attributes = {inlineable = \"false\"}");
}

Values Builder::fresh_arguments(const std::vector<Type>& types) {
  Values values;
  for (const Type& t : types) values.push_back({fresh(), t});
  return values;
}

std::string Builder::module(const Values& results) const {
  if (depth_ > 0) fail("module", "called inside a region");
  check_operands("module", results);
  std::string text = "module @m {\nfunc.func @main(";
  for (size_t i = 0; i < parameters_.size(); ++i) {
    text += (i ? ", " : "") + parameters_[i].name + ": " + parameters_[i].type.str();
  }
  text += ") -> (" + joined_types(results) + ") {\n" + body_.str();
  text += "  \"func.return\"(" + joined_names(results) + ") : (" + joined_types(results) + ") -> ()\n}\n" + functions_ +
          "}\n";
  return text;
}

Values Builder::before_flattening(Values results) const {
  for (Value& r : results) {
    if (const auto found = flattened_.find(r.name); found != flattened_.end()) r = found->second;
  }
  return results;
}

std::string array_attribute(const Dims& dims) {
  return dims.empty() ? "array<i64>" : "array<i64: " + joined(dims) + ">";
}

}  // namespace tpupilot::hlo
