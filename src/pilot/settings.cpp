#include "pilot/settings.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <sstream>

#include "evidence/digest.h"
#include "pilot/errors.h"

namespace tpupilot::pilot {

using nlohmann::json;
namespace fs = std::filesystem;

const std::vector<Key>& keys() {
  using enum KeyType;
  static const std::vector<Key> table = {
      {"pilot", "gates", Integers, json::array({0, 1}), "gates that `run` asks for", {}, 0},
      {"pilot", "step_timeout", Number, 600.0, "seconds without progress before a worker counts as hung", {}, 0.001},
      {"pilot", "owner", Text, "", "who answers for the migration"},
      {"job", "file", Text, "job.py", "the job file, relative to the pilot file"},
      {"job", "revision", Text, "auto", "auto = VCS commit and dirty flag, or a name"},
      {"job", "checkpoint", Text, "", "a production checkpoint for ckpt.portable"},
      {"job", "steps_per_epoch", Integer, 0, "0 = the pilot cuts its own epochs of 8 steps", {}, 0},
      {"job", "seed", Integer, 0, "seed of both sides", {}, 0},
      {"job", "steps", Integer, 20, "steps of the drift check", {}, 2},
      {"reference", "device", Text, "cpu", "cpu, cuda, cuda:0, xla, ..."},
      {"reference", "python", Text, "", "the old environment's interpreter; empty = this one"},
      {"reference", "autocast", Text, "", "autocast dtype of both sides", {"", "bfloat16", "float16"}},
      {"reference", "evidence", Text, "", "a folder of recorded evidence instead of a run"},
      {"reference", "cost_per_hour", Number, 0.0, "price of the old machine", {}, 0},
      {"candidate", "device", Text, "tpu", "the device that the job is to move to"},
      {"candidate", "python", Text, "", "the new environment's interpreter; empty = this one"},
      {"candidate", "plugin", Text, "auto",
       "auto, cpu, cuda, tpu, the name of a plugin's package, or the path of a PJRT plugin"},
      {"candidate",
       "numerics",
       Text,
       "exact",
       "tpu = rehearse a TPU's default precision: f32 products in one bf16 pass, judged by the rule of bfloat16",
       {"exact", "tpu"}},
      {"candidate", "profile", Text, "torch_tpu==0.2.0",
       "the release that the job will run on; none = this backend only"},
      {"parity", "tolerance", KeyType::Tolerance, "pytorch", "pytorch, or { float32 = [rtol, atol], ... }"},
      {"parity",
       "judge",
       Text,
       "float64",
       "float64 = also accept an error like the reference's own",
       {"float64", "none"}},
      {"parity", "max_drift", Number, 0.01, "mean relative loss error over job.steps", {}, 0},
      {"parity",
       "max_tpu_error",
       Number,
       0.0,
       "largest relative error against float64 of loss and gradients at the job's precision on a TPU; 0 = reported "
       "only",
       {},
       0},
      {"distributed", "mode", Text, "", "the job's own distributed mode", {"", "ddp", "fsdp2", "job"}},
      {"distributed", "world_size", Integer, 2, "workers of gate 2", {}, 1},
      {"distributed", "resume_world_size", Integers, json::array(), "world sizes to resume at", {}, 1},
      {"compile", "warmup_steps", Integer, 5, "steps before the measured window", {}, 0},
      {"compile", "window_steps", Integer, 50, "steps of the measured window", {}, 1},
      {"compile", "checkpoint_every", Integer, 20, "steps between checkpoints in the window", {}, 1},
      {"compile", "max_compile_seconds", Number, 0.0, "0 = no ceiling", {}, 0},
      {"target", "throughput", Number, 0.0, "samples or tokens a second; 0 = unset", {}, 0},
      {"target", "memory", Text, "", "peak device memory, e.g. 15.75 GiB"},
      {"target", "cost_per_chip_hour", Number, 0.0, "price of one chip", {}, 0},
      {"target", "max_cost_per_million", Number, 0.0, "budget for a million samples or tokens", {}, 0},
      {"target", "currency", Text, "USD", "of the prices"},
      {"target", "price_date", Text, "", "when the prices were read"},
      {"target", "chips", Integer, 1, "chips of the target slice", {}, 1},
      {"fit", "slices", Texts, json::array(), "slices to compile for, e.g. v6e-8"},
      {"fit", "plan", Text, "replicate", "how the job is spread", {"replicate", "fsdp", "fsdp+tp", "job"}},
  };
  return table;
}

json keys_json() {
  json rows = json::array();
  for (const Key& key : keys()) {
    rows.push_back({{"section", key.section},
                    {"key", key.name},
                    {"default", key.fallback},
                    {"help", key.help},
                    {"choices", key.choices}});
  }
  return rows;
}

std::string keys_markdown() {
  std::ostringstream out;
  out << "# pilot.toml\n\nMade by `tpupilot keys --markdown`. Every key has a default; an unknown key is an error. "
         "`--set "
         "section.key=value` overrides the file.\n\n| key | default | meaning |\n|---|---|---|\n";
  for (const Key& key : keys()) {
    std::string choices;
    for (std::string_view choice : key.choices) choices += (choices.empty() ? "; one of " : ", ") + json(choice).dump();
    out << "| `" << key.section << "." << key.name << "` | `" << key.fallback.dump() << "` | " << key.help << choices
        << " |\n";
  }
  return out.str();
}

std::string nearest(std::string_view word, const std::vector<std::string_view>& known) {
  size_t best = std::max<size_t>(2, word.size() / 3) + 1;
  std::string found;
  for (std::string_view candidate : known) {
    std::vector<size_t> row(candidate.size() + 1);
    for (size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j < row.size(); ++j) {
        const size_t above = row[j];
        row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (word[i - 1] == candidate[j - 1] ? 0 : 1)});
        diagonal = above;
      }
    }
    if (row.back() < best) {
      best = row.back();
      found = candidate;
    }
  }
  return found;
}

double parse_bytes(const std::string& text) {
  static const std::vector<std::pair<std::string_view, double>> units = {
      {"", 1},         {"B", 1},    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
      {"TiB", 0x1p40}, {"KB", 1e3}, {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
  std::istringstream in(text);
  double amount = 0;
  std::string unit;
  if (in >> amount && amount >= 0) {
    in >> unit;
    for (const auto& [name, size] : units) {
      if (unit == name) return amount * size;
    }
  }
  throw Error("[target.memory] `" + text + "` is not an amount of memory; write for example \"15.75 GiB\".");
}

namespace {

const Key* find_key(std::string_view section, std::string_view name) {
  for (const Key& key : keys()) {
    if (key.section == section && key.name == name) return &key;
  }
  return nullptr;
}

std::vector<std::string_view> names_of(std::string_view section) {
  std::vector<std::string_view> names;
  for (const Key& key : keys()) {
    if (key.section == section) names.push_back(key.name);
  }
  return names;
}

std::vector<std::string_view> sections() {
  std::vector<std::string_view> names;
  for (const Key& key : keys()) {
    if (names.empty() || names.back() != key.section) names.push_back(key.section);
  }
  return names;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& known) {
  if (const std::string near = nearest(word, known); !near.empty()) return "; did you mean `" + near + "`?";
  std::string list;
  for (std::string_view name : known) list += (list.empty() ? "" : ", ") + std::string(name);
  return "; known here: " + list + ".";
}

const char* describe(KeyType type) {
  switch (type) {
    case KeyType::Text:
      return "a text in quotes";
    case KeyType::Integer:
      return "a whole number";
    case KeyType::Number:
      return "a number";
    case KeyType::Integers:
      return "a list of whole numbers";
    case KeyType::Texts:
      return "a list of texts";
    case KeyType::Tolerance:
      return "\"pytorch\" or a table { dtype = [rtol, atol] }";
  }
  return "";
}

std::optional<json> tolerance_value(const toml::node& node) {
  if (auto text = node.value_exact<std::string>())
    return *text == "pytorch" ? std::optional<json>(*text) : std::nullopt;
  const toml::table* table = node.as_table();
  if (!table) return std::nullopt;
  json result = json::object();
  for (const auto& [dtype, pair] : *table) {
    const toml::array* values = pair.as_array();
    if (!values || values->size() != 2 || !values->get(0)->is_number() || !values->get(1)->is_number())
      return std::nullopt;
    const double rtol = *values->get(0)->value<double>(), atol = *values->get(1)->value<double>();
    if (rtol < 0 || atol < 0) return std::nullopt;
    result[std::string(dtype.str())] = {rtol, atol};
  }
  return result;
}

template <typename T>
std::optional<json> list_value(const toml::node& node) {
  const toml::array* values = node.as_array();
  if (!values) return std::nullopt;
  json result = json::array();
  for (const toml::node& value : *values) {
    auto item = value.value_exact<T>();
    if (!item) return std::nullopt;
    result.push_back(*item);
  }
  return result;
}

// The value as JSON, or nothing if the type is wrong. No casts but whole number -> number.
std::optional<json> typed_value(const Key& key, const toml::node& node) {
  switch (key.type) {
    case KeyType::Text:
      if (auto text = node.value_exact<std::string>()) return *text;
      return std::nullopt;
    case KeyType::Integer:
      if (auto number = node.value_exact<int64_t>()) return *number;
      return std::nullopt;
    case KeyType::Number:
      if (node.is_number() && std::isfinite(*node.value<double>())) return *node.value<double>();
      return std::nullopt;
    case KeyType::Integers:
      return list_value<int64_t>(node);
    case KeyType::Texts:
      return list_value<std::string>(node);
    case KeyType::Tolerance:
      return tolerance_value(node);
  }
  return std::nullopt;
}

// What is wrong with a well-typed value; "" if nothing is.
std::string complaint(const Key& key, const json& value) {
  const std::string name = std::string(key.section) + "." + std::string(key.name);
  if (!key.choices.empty() && value.is_string()) {
    const std::string text = value;
    if (std::find(key.choices.begin(), key.choices.end(), text) == key.choices.end()) {
      return "`" + text + "` is not a value of " + name + did_you_mean(text, key.choices);
    }
  }
  const json values = value.is_array() ? value : json::array({value});
  for (const json& item : values) {
    if (item.is_number() && item.get<double>() < key.minimum) {
      std::ostringstream out;
      out << name << " is " << item << ", less than its minimum " << key.minimum << ".";
      return out.str();
    }
    if (key.name == "gates" && item > 3) return "pilot.gates holds " + item.dump() + "; gates are 0, 1, 2 and 3.";
  }
  return "";
}

bool is_toml_value(const std::string& text) {
  try {
    return !toml::parse("x = " + text).empty();
  } catch (const toml::parse_error&) {
    return false;
  }
}

// Names a place in a text and quotes its line.
std::string quote(const std::string& origin, const std::string& text, const toml::source_position& at) {
  std::istringstream lines(text);
  std::string line;
  for (toml::source_index i = 0; i < at.line && std::getline(lines, line);) ++i;
  const std::string number = std::to_string(at.line);
  return origin + ":" + number + ":" + std::to_string(at.column) + ":\n  " + number + " | " + line + "\n  " +
         std::string(number.size() + 3 + (at.column > 0 ? at.column - 1 : 0), ' ') + "^";
}

}  // namespace

// Reads one TOML text into Settings; `origin` is what errors call it.
class PilotFile {
 public:
  PilotFile(std::string origin, std::string text) : origin_(std::move(origin)), text_(std::move(text)) {}

  void read_into(Settings& settings) const {
    toml::table table;
    try {
      table = toml::parse(text_, origin_);
    } catch (const toml::parse_error& error) {
      fail(error.source().begin, std::string(error.description()));
    }
    for (const auto& [section, node] : table) {
      const auto known = sections();
      if (std::find(known.begin(), known.end(), section.str()) == known.end()) {
        fail(section.source().begin,
             "unknown section `" + std::string(section.str()) + "`" + did_you_mean(section.str(), known));
      }
      const toml::table* entries = node.as_table();
      if (!entries)
        fail(section.source().begin,
             "`" + std::string(section.str()) + "` is a section: write [" + std::string(section.str()) + "].");
      for (const auto& [name, value] : *entries) read_key(settings, section.str(), name, value);
    }
  }

 private:
  void read_key(Settings& settings, std::string_view section, const toml::key& name, const toml::node& node) const {
    const Key* key = find_key(section, name.str());
    if (!key) {
      fail(name.source().begin, "unknown key `" + std::string(name.str()) + "` in [" + std::string(section) + "]" +
                                    did_you_mean(name.str(), names_of(section)));
    }
    const auto value = typed_value(*key, node);
    if (!value) {
      fail(node.source().begin,
           "`" + std::string(name.str()) + "` in [" + std::string(section) + "] wants " + describe(key->type) + ".");
    }
    if (const std::string wrong = complaint(*key, *value); !wrong.empty()) fail(node.source().begin, wrong);
    settings.values_[std::string(section)][std::string(name.str())] = *value;
  }

  [[noreturn]] void fail(const toml::source_position& at, const std::string& what) const {
    throw Error("[pilot file] " + what + "\n" + quote(origin_, text_, at));
  }

  std::string origin_, text_;
};

Settings::Settings() {
  for (const Key& key : keys()) values_[std::string(key.section)][std::string(key.name)] = key.fallback;
}

Settings Settings::load(const fs::path& file) {
  Settings settings;
  PilotFile(file.filename().string(), evidence::read_text(file)).read_into(settings);
  return settings;
}

void Settings::set(const std::string& assignment) {
  const size_t equals = assignment.find('=');
  const size_t dot = assignment.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot > equals) {
    throw Error("[--set] `" + assignment + "` is not section.key=value, for example candidate.device=cpu.");
  }
  const std::string section = assignment.substr(0, dot), name = assignment.substr(dot + 1, equals - dot - 1);
  std::string value = assignment.substr(equals + 1);
  const Key* key = find_key(section, name);
  const bool quoted = !value.empty() && (value.front() == '"' || value.front() == '\'');
  if (key && !quoted && (key->type == KeyType::Text || !is_toml_value(value))) value = nlohmann::json(value).dump();
  PilotFile("--set " + section + "." + name, "[" + section + "]\n" + name + " = " + value + "\n").read_into(*this);
}

const json& Settings::value(std::string_view section, std::string_view name) const {
  if (!find_key(section, name)) {
    throw Error("[settings] no key " + std::string(section) + "." + std::string(name) + ".", Exit::Internal);
  }
  return values_.at(std::string(section)).at(std::string(name));
}

std::string Settings::text(std::string_view section, std::string_view name) const { return value(section, name); }
double Settings::number(std::string_view section, std::string_view name) const { return value(section, name); }
int64_t Settings::integer(std::string_view section, std::string_view name) const { return value(section, name); }
std::vector<int64_t> Settings::integers(std::string_view section, std::string_view name) const {
  return value(section, name);
}

Job find_job(const fs::path& path, const std::vector<std::string>& assignments) {
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    throw Error("[job] " + path.string() + " does not exist; give a folder with a pilot.toml, or a job file.");
  Job job;
  const fs::path absolute = fs::canonical(path);
  const bool is_job_file = fs::is_regular_file(absolute) && absolute.extension() == ".py";
  job.folder = fs::is_directory(absolute) ? absolute : absolute.parent_path();
  if (fs::is_regular_file(absolute) && !is_job_file && absolute.extension() != ".toml") {
    throw Error("[job] " + path.string() + " is neither a folder, a .py job file nor a pilot.toml.");
  }
  job.pilot_file = absolute.extension() == ".toml" ? absolute : job.folder / "pilot.toml";
  if (fs::exists(job.pilot_file)) {
    job.settings = Settings::load(job.pilot_file);
  } else {
    job.pilot_file.clear();
  }
  for (const std::string& assignment : assignments) job.settings.set(assignment);
  job.file = is_job_file ? absolute : job.folder / job.settings.text("job", "file");
  if (is_job_file) job.settings.set("job.file=" + absolute.filename().string());
  if (!fs::is_regular_file(job.file)) {
    throw Error("[job] " + job.folder.string() + " has no " + (job.pilot_file.empty() ? "pilot.toml and no " : "") +
                job.settings.text("job", "file") + "; write the job file, or name it with `file` under [job].");
  }
  job.name = job.folder.filename().string();
  return job;
}

}  // namespace tpupilot::pilot
