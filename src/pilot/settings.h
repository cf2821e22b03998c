// The pilot file: every key, its default and its meaning are one table; the parser, --set, the manifest and the docs
// are made from it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tpupilot::pilot {

enum class KeyType { Text, Integer, Number, Integers, Texts, Tolerance };

struct Key {
  std::string_view section, name;
  KeyType type;
  nlohmann::json fallback;  // the default
  std::string_view help;
  std::vector<std::string_view> choices = {};  // legal texts; empty = any
  double minimum = -1e300;                     // of a number, or of each number of a list
};

const std::vector<Key>& keys();
std::string keys_markdown();  // docs/pilot-file.md
nlohmann::json keys_json();

// A value for every key. Immutable after load() but for set().
class Settings {
 public:
  Settings();  // all defaults

  // The settings of one pilot file. Error (Usage) with file:line:column, the quoted line and a suggestion.
  static Settings load(const std::filesystem::path& file);

  // `section.key=value`; the value is TOML, or bare text where the key wants text. Error (Usage).
  void set(const std::string& assignment);

  std::string text(std::string_view section, std::string_view name) const;
  double number(std::string_view section, std::string_view name) const;
  int64_t integer(std::string_view section, std::string_view name) const;
  std::vector<int64_t> integers(std::string_view section, std::string_view name) const;
  const nlohmann::json& value(std::string_view section, std::string_view name) const;
  const nlohmann::json& json() const { return values_; }  // {section: {key: value}}

 private:
  friend class PilotFile;
  nlohmann::json values_;
};

// Where a job lives: the job file, its folder, and the pilot file beside it (empty if there is none: all defaults).
struct Job {
  std::filesystem::path file, folder, pilot_file;
  std::string name;  // the folder's name; the run folder is runs/<name>/...
  Settings settings;
};

// `path`: a folder with pilot.toml (or job.py), a job file, or a pilot.toml. `assignments`: the --set arguments, in
// order.
Job find_job(const std::filesystem::path& path, const std::vector<std::string>& assignments);

// The word of `known` that is nearest to `word`, or "" if none is near enough to be meant.
std::string nearest(std::string_view word, const std::vector<std::string_view>& known);

// "15.75 GiB", "16 GB", "1024" -> bytes; Error (Usage) otherwise.
double parse_bytes(const std::string& text);

}  // namespace tpupilot::pilot
