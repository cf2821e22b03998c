#include "pjrt/compile_options.h"

#include <string_view>

#include "pjrt/error.h"

namespace tpupilot::pjrt {
namespace {

// Protocol buffer wire format: a tag is (field << 3 | wire type); wire type 0 = varint, 2 = length and bytes.
void put_varint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

void put_number(std::string& out, int field, int64_t value) {
  put_varint(out, static_cast<uint64_t>(field) << 3);
  put_varint(out, static_cast<uint64_t>(value));
}

void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_varint(out, (static_cast<uint64_t>(field) << 3) | 2);
  put_varint(out, bytes.size());
  out.append(bytes);
}

// ExecutableBuildOptionsProto. Zero counts abort some plugins, and an absent field is zero: so all are written.
std::string build_options() {
  std::string out;
  put_number(out, 1, -1);                         // device_ordinal: none
  put_number(out, 4, 1);                          // num_replicas
  put_number(out, 5, 1);                          // num_partitions
  put_bytes(out, 12, std::string_view("\0", 1));  // allow_spmd_sharding_propagation_to_output: [false]
  put_bytes(out, 18, std::string_view("\0", 1));  // allow_spmd_sharding_propagation_to_parameters: [false]
  put_number(out, 23, 1);                         // process_count
  return out;
}

// OptionOverrideProto: a oneof, so a false or an empty value is written too.
std::string override_bytes(const OverrideValue& value) {
  std::string out;
  if (const auto* text = std::get_if<std::string>(&value)) put_bytes(out, 1, *text);
  if (const auto* flag = std::get_if<bool>(&value)) put_number(out, 2, *flag ? 1 : 0);
  if (const auto* number = std::get_if<int64_t>(&value)) put_number(out, 3, *number);
  return out;
}

CompileOptions with_parity() {
  CompileOptions options;
  options.set("xla_cpu_enable_fast_min_max", false);  // the fast forms drop NaN
  options.set("xla_allow_excess_precision", false);
  return options;
}

}  // namespace

void CompileOptions::set_optimization_level(int level) {
  if (level < 0 || level > 3) {
    throw Error(Error::Code::InvalidArgument,
                "[set_optimization_level] level " + std::to_string(level) + " is not in 0..3");
  }
  set("xla_backend_optimization_level", static_cast<int64_t>(level));
}

std::string serialize(const CompileOptions& options, const std::set<std::string>& without) {
  std::string out;
  put_bytes(out, 3, build_options());
  if (options.portable) put_number(out, 4, 1);
  for (const auto& [name, override] : options.overrides) {
    if (without.contains(name)) continue;
    std::string entry;
    put_bytes(entry, 1, name);
    put_bytes(entry, 2, override_bytes(override.value));
    put_bytes(out, 7, entry);
  }
  return out;
}

CompileOptions eager_options() {
  CompileOptions options = with_parity();
  options.set_optimization_level(1);
  // The reductions of XLA's YNN fusions drop NaN; a plugin that does not know the option has none.
  options.set_if_known("xla_cpu_experimental_ynn_fusion_type", "");
  // Half of the compile time of a program of one op, for a loss at run time that only large transposes show.
  options.set_if_known("xla_cpu_use_fusion_emitters", false);
  return options;
}

CompileOptions region_options() {
  CompileOptions options = with_parity();
  options.set_optimization_level(3);
  // Of the YNN fusions only the contractions: they are faster and keep NaN.
  options.set_if_known("xla_cpu_experimental_ynn_fusion_type",
                       "LIBRARY_FUSION_TYPE_DOT,LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT");
  return options;
}

CompileOptions test_options() {
  CompileOptions options = eager_options();
  options.set_optimization_level(0);
  return options;
}

}  // namespace tpupilot::pjrt
