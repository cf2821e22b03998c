// A run on disk: folder, manifest, events. The only place that writes evidence files on the pilot's side; the formats
// are docs/worker-protocol.md.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tpupilot::evidence {

// One line of events.jsonl: an object with at least event, task and attempt of the right types; nothing if it is torn.
std::optional<nlohmann::json> parse_event(const std::string& line);

class RunFolder {
 public:
  // Takes up `folder`, or makes it. `draft` is a manifest without tasks and files; its config_sha256 must be that of an
  // unfinished run that is taken up. Error (Usage) if the folder holds something else.
  RunFolder(std::filesystem::path folder, nlohmann::json draft, const std::string& worker_source);

  // The newest unfinished run folder below `parent` with that config_sha256, or "".
  static std::filesystem::path unfinished(const std::filesystem::path& parent, const std::string& config_sha256);

  const std::filesystem::path& folder() const { return folder_; }
  const nlohmann::json& manifest() const { return manifest_; }
  std::filesystem::path worker() const { return folder_ / "worker.py"; }
  bool taken_up() const { return taken_up_; }

  // side/task of every task that ended (or was killed on purpose).
  std::set<std::string> done() const;
  // Records the task and the hashes of all files that the side has written since, and saves the manifest.
  void task_done(const std::string& side, const std::string& task);
  // Records files that the pilot itself wrote (relative to the run folder).
  void add_file(const std::string& relative);
  // Copies a side from another run folder, file by file with its recorded hash, and takes its tasks for done; but not
  // the tasks in `without`, nor the checkpoints of their names. Error (NotJudged) if a file is not as it was recorded.
  void adopt(const std::filesystem::path& other, const std::string& side, const std::set<std::string>& without);
  void set(const std::string& key, const nlohmann::json& value);     // of the manifest; saved at once
  void write(const std::string& relative, const std::string& text);  // write_file()

  // All events of a side in file order, read again if the file grew. A torn last line is left out.
  const std::vector<nlohmann::json>& events(const std::string& side) const;
  // "" if the file is as the manifest recorded it, else what is wrong with it.
  std::string damage(const std::string& relative) const;
  // The same in two halves, for who reads the bytes anyway: nothing if only the hash can tell, which `settle` then
  // gets.
  std::optional<std::string> damage_unread(const std::string& relative) const;
  std::string settle(const std::string& relative, const std::string& sha256) const;

 private:
  void save();
  void refuse_damaged_logs() const;
  void refuse_foreign_files() const;
  void fill(const std::string& worker_source);
  void record_new_files(const std::string& side);

  std::filesystem::path folder_;
  nlohmann::json manifest_;
  bool taken_up_ = false;
  struct Side {
    std::uintmax_t bytes = 0;
    std::vector<nlohmann::json> events;
  };
  mutable std::map<std::string, Side> sides_;
  mutable std::map<std::string, std::string> verified_;  // damage() of a file, by name; read once a run
};

}  // namespace tpupilot::evidence
