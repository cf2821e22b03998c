#include "evidence/run_folder.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "evidence/digest.h"
#include "evidence/errors.h"
#include "evidence/write_file.h"

namespace tpupilot::evidence {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

// Files that only grow: the recorded prefix must hold.
bool grows(const std::string& relative) {
  return relative.ends_with("/events.jsonl") || relative.ends_with("/stdout.log") || relative.ends_with("/stderr.log");
}

json read_manifest(const fs::path& folder) {
  std::ifstream in(folder / "manifest.json");
  if (!in) return nullptr;
  return json::parse(in, nullptr, false);
}

// Python writes NaN and Infinity, which JSON does not have: null, for readers that want a number.
std::string without_nan(const std::string& line) {
  std::string text;
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (quoted && line[i] == '\\') {
      text += line[i++];
      if (i < line.size()) text += line[i];
      continue;
    }
    if (line[i] == '"') quoted = !quoted;
    bool replaced = false;
    for (std::string_view word : {"NaN", "-Infinity", "Infinity"}) {
      if (quoted || replaced || line.compare(i, word.size(), word) != 0) continue;
      text += "null";
      i += word.size() - 1;
      replaced = true;
    }
    if (!replaced) text += line[i];
  }
  return text;
}

}  // namespace

std::optional<json> parse_event(const std::string& line) {
  json event = json::parse(without_nan(line), nullptr, false);
  if (!event.is_object() || !event.contains("event") || !event["event"].is_string()) return std::nullopt;
  if (!event.contains("task") || !event["task"].is_string()) event["task"] = "";
  if (!event.contains("attempt") || !event["attempt"].is_number_integer()) event["attempt"] = 1;
  return event;
}

RunFolder::RunFolder(fs::path folder, json draft, const std::string& worker_source)
    : folder_(std::move(folder)), manifest_(std::move(draft)) {
  const json before = read_manifest(folder_);
  if (before.is_object()) {
    if (before.value("finished", true)) {
      throw Error("[run folder] " + folder_.string() +
                  " holds a finished run; nothing is overwritten. Name another folder with --out.");
    }
    if (before.value("config_sha256", "") != manifest_.at("config_sha256").get<std::string>()) {
      throw Error("[run folder] " + folder_.string() +
                  " holds an unfinished run of another job or other settings; name another folder with --out.");
    }
    manifest_ = before;
    taken_up_ = true;
    refuse_damaged_logs();
  } else {
    if (!before.is_null())
      throw Error("[run folder] " + (folder_ / "manifest.json").string() +
                  " is damaged; name another folder with --out.");
    refuse_foreign_files();
  }
  fill(worker_source);
}

// A run may have been killed inside its very first write.
void RunFolder::refuse_foreign_files() const {
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder_, failed)) {
    if (entry.path().filename() == "manifest.json.tmp") continue;
    throw Error("[run folder] " + folder_.string() + " is not empty and holds no run; name another folder with --out.");
  }
}

// The manifest first: with it, whatever is still missing is a run that goes on.
void RunFolder::fill(const std::string& worker_source) {
  std::error_code failed;
  fs::create_directories(folder_, failed);
  if (failed) cannot_write(folder_, failed.value());
  if (!taken_up_) save();
  for (const char* side : {"reference", "candidate"}) {
    for (const char* inside : {"tensors", "checkpoints", "requests", "exports"}) {
      fs::create_directories(folder_ / side / inside, failed);
      if (failed) cannot_write(folder_ / side / inside, failed.value());
    }
  }
  if (manifest_.at("files").contains("worker.py")) return;
  write("worker.py", worker_source);
  add_file("worker.py");
}

// The hash of a file that grows is taken anew with every task, so what was recorded must hold before more is added.
void RunFolder::refuse_damaged_logs() const {
  for (const auto& [name, file] : manifest_.at("files").items()) {
    if (!grows(name)) continue;
    if (const std::string wrong = damage(name); !wrong.empty()) {
      throw Error("[run folder] " + wrong + ": this run cannot go on. Keep " + folder_.string() +
                      " and start again with --fresh or another --out.",
                  Exit::NotJudged);
    }
  }
}

fs::path RunFolder::unfinished(const fs::path& parent, const std::string& config_sha256) {
  fs::path newest;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(parent, failed)) {
    const json manifest = read_manifest(entry.path());
    if (!manifest.is_object() || manifest.value("finished", true) ||
        manifest.value("config_sha256", "") != config_sha256)
      continue;
    if (newest.empty() || newest.filename() < entry.path().filename()) newest = entry.path();
  }
  return newest;
}

std::set<std::string> RunFolder::done() const {
  std::set<std::string> names;
  for (const auto& [name, task] : manifest_.at("tasks").items()) names.insert(name);
  return names;
}

void RunFolder::write(const std::string& relative, const std::string& text) { write_file(folder_ / relative, text); }

void RunFolder::save() { write("manifest.json", manifest_.dump(2) + "\n"); }

void RunFolder::set(const std::string& key, const json& value) {
  manifest_[key] = value;
  save();
}

void RunFolder::add_file(const std::string& relative) {
  const fs::path file = folder_ / relative;
  std::error_code failed;
  const auto bytes = fs::file_size(file, failed);
  if (failed) throw Error("[run folder] " + file.string() + " was just written and is gone.", Exit::Internal);
  manifest_["files"][relative] = {{"sha256", sha256_of_file(file, bytes)}, {"bytes", bytes}};
  verified_.erase(relative);
  save();
}

void RunFolder::adopt(const fs::path& other, const std::string& side, const std::set<std::string>& without) {
  const json theirs = read_manifest(other);
  if (!theirs.is_object() || !theirs.contains("files") || !theirs.contains("tasks"))
    throw Error("[evidence] " + other.string() + " holds no recorded run (manifest.json is missing or damaged).");
  const auto left_out = [&](const std::string& name) {
    return std::any_of(without.begin(), without.end(),
                       [&](const std::string& task) { return name.starts_with(side + "/checkpoints/" + task + "/"); });
  };
  for (const auto& [name, file] : theirs["files"].items()) {
    if (!name.starts_with(side + "/") || left_out(name)) continue;
    std::error_code failed;
    fs::create_directories((folder_ / name).parent_path(), failed);
    fs::copy_file(other / name, folder_ / name, fs::copy_options::overwrite_existing, failed);
    if (failed == std::errc::no_space_on_device || failed == std::errc::file_too_large)
      cannot_write(folder_ / name, failed.value());
    manifest_["files"][name] = file;
    verified_.erase(name);
    if (const std::string wrong = failed ? name + " cannot be copied: " + failed.message() : damage(name);
        !wrong.empty())
      throw Error("[evidence] " + other.string() + ": " + wrong + "; record it again, or copy the folder again.",
                  Exit::NotJudged);
  }
  for (const auto& [name, task] : theirs["tasks"].items()) {
    if (name.starts_with(side + "/") && !without.contains(name.substr(side.size() + 1)))
      manifest_["tasks"][name] = task;
  }
  save();
}

const std::vector<json>& RunFolder::events(const std::string& side) const {
  Side& known = sides_[side];
  const fs::path file = folder_ / side / "events.jsonl";
  std::error_code failed;
  const auto bytes = fs::file_size(file, failed);
  if (failed || bytes == known.bytes) return known.events;
  std::ifstream in(file, std::ios::binary);
  known.events.clear();
  for (std::string line; std::getline(in, line) && !in.eof();) {
    if (auto event = parse_event(line)) known.events.push_back(std::move(*event));
  }
  known.bytes = bytes;
  return known.events;
}

void RunFolder::task_done(const std::string& side, const std::string& task) {
  json attempt = 1;
  for (const json& event : events(side)) {
    if (event.value("task", "") == task) attempt = event.value("attempt", attempt);
  }
  manifest_["tasks"][side + "/" + task] = {{"state", "done"}, {"attempt", attempt}};
  record_new_files(side);
  save();
}

// Events name every file that a worker has finished; what nobody names may still be in the making.
void RunFolder::record_new_files(const std::string& side) {
  std::set<std::string> names = {side + "/events.jsonl", side + "/stdout.log", side + "/stderr.log"};
  const auto add_folder = [&](const std::string& path) {
    std::error_code failed;
    for (const auto& entry : fs::recursive_directory_iterator(path, failed)) {
      if (entry.is_regular_file(failed)) names.insert(fs::relative(entry.path(), folder_).string());
    }
  };
  for (const json& event : events(side)) {
    const std::string kind = event.value("event", "");
    if (event.contains("file") && event["file"].is_string())
      names.insert(side + "/" + event["file"].get<std::string>());
    if (kind == "checkpoint") add_folder(event.value("path", ""));
    if (kind != "task.start" || !manifest_["tasks"].contains(side + "/" + event.value("task", ""))) continue;
    const json request = event.value("request", json::object());
    if (!request.value("save_to", "").empty()) add_folder(request["save_to"]);
    if (request.value("task", "") == "crash-save") add_folder(request["checkpoint"]);
    if (const std::string exported = request.value("export_torch", ""); !exported.empty()) {
      names.insert(fs::relative(exported, folder_).string());
      add_folder(exported + ".own");
    }
  }
  for (const std::string& name : names) {
    std::error_code failed;
    const auto bytes = fs::file_size(folder_ / name, failed);
    if (failed || (manifest_["files"].contains(name) && !grows(name))) continue;
    manifest_["files"][name] = {{"sha256", sha256_of_file(folder_ / name, bytes)}, {"bytes", bytes}};
    verified_.erase(name);
  }
}

std::optional<std::string> RunFolder::damage_unread(const std::string& relative) const {
  if (const auto known = verified_.find(relative); known != verified_.end()) return known->second;
  const json& files = manifest_.at("files");
  std::error_code failed;
  const auto bytes = fs::file_size(folder_ / relative, failed);
  std::string wrong;
  if (!files.contains(relative)) {
    wrong = relative + " is not in the manifest";
  } else if (failed) {
    wrong = relative + " is missing";
  } else {
    const std::uintmax_t recorded = files[relative].at("bytes");
    if (bytes < recorded)
      wrong = relative + " was cut short: " + std::to_string(bytes) + " of " + std::to_string(recorded) + " bytes";
    else if (bytes > recorded && !grows(relative))
      wrong = relative + " grew after it was recorded";
    else
      return std::nullopt;
  }
  return verified_[relative] = wrong;
}

std::string RunFolder::settle(const std::string& relative, const std::string& sha256) const {
  const bool holds = sha256 == manifest_.at("files").at(relative).at("sha256").get<std::string>();
  return verified_[relative] = holds ? "" : relative + " changed after it was recorded (SHA-256 differs)";
}

std::string RunFolder::damage(const std::string& relative) const {
  if (const auto wrong = damage_unread(relative)) return *wrong;
  return settle(relative, sha256_of_file(folder_ / relative, manifest_.at("files").at(relative).at("bytes")));
}

}  // namespace tpupilot::evidence
