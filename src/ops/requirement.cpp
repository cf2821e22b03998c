#include "ops/requirement.h"

namespace tpupilot::ops {
namespace {

using hlo::Builder;
using hlo::Elem;
using hlo::Value;

// Two elements, as in a verdict.
Value finding(Builder& b, const Requirement& r) {
  const int64_t n = r.ok.type.numel();
  if (n == 0) return b.zeros({Elem::S64, {2}});
  const Value ok = b.reshape(r.ok, {n});
  if (!r.offender) {
    const Value broken = b.convert(b.logical_not(b.all(ok, {0})), Elem::S64);
    return b.concatenate({b.reshape(broken, {1}), b.zeros({Elem::S64, {1}})}, 0);
  }
  const Value place = b.iota({Elem::S64, {n}}, 0), end = b.constant_int(n, {Elem::S64, {}});
  const Value first = b.amin(b.select(ok, b.broadcast(end, {n}), place), {0});
  const Value is_broken = b.compare(hlo::Direction::LT, first, end);
  const Value broken = b.select(is_broken, b.add(first, b.constant_int(1, first.type)), b.zeros(first.type));
  const Value value = b.dynamic_slice(b.reshape(b.convert(r.offender, Elem::S64), {n}), {first}, {1});
  return b.concatenate({b.reshape(broken, {1}), value}, 0);
}

}  // namespace

Value verdict(Builder& b, const std::vector<Requirement>& requirements) {
  hlo::Values findings;
  for (const Requirement& r : requirements) findings.push_back(finding(b, r));
  return findings.size() == 1 ? findings[0] : b.concatenate(findings, 0);
}

namespace {

void replace(std::string& text, std::string_view name, int64_t value) {
  if (const size_t at = text.find(name); at != std::string::npos) text.replace(at, name.size(), std::to_string(value));
}

}  // namespace

std::optional<Refusal> first_refusal(std::span<const Refusal> refusals, std::span<const int64_t> verdict) {
  for (size_t i = 0; i < refusals.size(); ++i) {
    if (verdict[2 * i] == 0) continue;
    Refusal refusal = refusals[i];
    replace(refusal.text, "{at}", verdict[2 * i] - 1);
    replace(refusal.text, "{}", verdict[2 * i + 1]);
    return refusal;
  }
  return std::nullopt;
}

}  // namespace tpupilot::ops
