#include "pilot/run_state.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "evidence/digest.h"
#include "pilot/context.h"
#include "pilot/errors.h"
#include "pilot/families.h"
#include "pilot/sheet.h"
#include "pilot/thresholds.h"

namespace tpupilot::pilot {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class RunStateTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("tpupilot-run-" + std::to_string(::getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  json draft(const std::string& hash = "abc") const {
    return {{"config_sha256", hash},
            {"finished", false},
            {"tasks", json::object()},
            {"files", json::object()},
            {"thresholds", thresholds_of(settings_)},
            {"inject", ""}};
  }
  RunState open(const std::string& hash = "abc") const { return {folder_, draft(hash), "# worker\n"}; }

  void event(const std::string& side, const json& value) const {
    std::ofstream(folder_ / side / "events.jsonl", std::ios::app) << value.dump() << "\n";
  }
  void task(const std::string& side, const std::string& name, int attempt, bool ends,
            const json& between = json::array()) const {
    event(side, {{"event", "task.start"}, {"task", name}, {"attempt", attempt}});
    for (json inner : between) {
      inner["task"] = name;
      inner["attempt"] = attempt;
      event(side, inner);
    }
    if (ends) event(side, {{"event", "task.end"}, {"task", name}, {"attempt", attempt}});
  }

  Settings settings_;
  fs::path folder_;
};

TEST_F(RunStateTest, IsTakenUpUntilItIsFinished) {
  {
    RunState state = open();
    EXPECT_FALSE(state.taken_up());
    task("reference", "base", 1, true);
    state.task_done("reference", "base");
  }
  {
    RunState state = open();
    EXPECT_TRUE(state.taken_up());
    EXPECT_EQ(state.done(), std::set<std::string>{"reference/base"});
    EXPECT_EQ(RunState::unfinished(folder_.parent_path(), "abc"), folder_);
    state.set("finished", true);
  }
  EXPECT_THROW(open(), Error);
  EXPECT_EQ(RunState::unfinished(folder_.parent_path(), "abc"), "");
}

TEST_F(RunStateTest, OtherSettingsAndStrangeFoldersAreRefused) {
  open();
  EXPECT_THROW(open("other"), Error);
  fs::remove_all(folder_);
  fs::create_directories(folder_ / "photos");
  EXPECT_THROW(open(), Error);
  std::ofstream(folder_ / "manifest.json") << "{torn";
  EXPECT_THROW(open(), Error);
}

TEST_F(RunStateTest, ARunThatWasKilledInItsFirstWritesGoesOn) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "manifest.json.tmp") << "{to";
  EXPECT_FALSE(open().taken_up());
  fs::remove(folder_ / "worker.py");  // as if it had been killed before that, with the manifest alone
  fs::remove_all(folder_ / "candidate");
  json manifest = json::parse(evidence::read_text(folder_ / "manifest.json"));
  manifest["files"].erase("worker.py");
  std::ofstream(folder_ / "manifest.json") << manifest;
  EXPECT_TRUE(open().taken_up());
  EXPECT_TRUE(fs::exists(folder_ / "worker.py") && fs::exists(folder_ / "candidate" / "tensors"));
}

TEST_F(RunStateTest, SeesEveryKindOfDamage) {
  RunState state = open();
  std::ofstream(folder_ / "candidate/tensors/a.safetensors") << "evidence";
  state.add_file("candidate/tensors/a.safetensors");
  const auto damage_after = [&](const char* text) {
    std::ofstream(folder_ / "candidate/tensors/a.safetensors") << text;
    return open().damage("candidate/tensors/a.safetensors");
  };
  EXPECT_EQ(damage_after("evidence"), "");
  EXPECT_NE(damage_after("evidencf").find("changed"), std::string::npos);
  EXPECT_NE(damage_after("evidenc").find("cut short: 7 of 8 bytes"), std::string::npos);
  EXPECT_NE(damage_after("evidence+").find("grew"), std::string::npos);
  fs::remove(folder_ / "candidate/tensors/a.safetensors");
  EXPECT_NE(open().damage("candidate/tensors/a.safetensors").find("missing"), std::string::npos);
  EXPECT_NE(open().damage("candidate/tensors/b.safetensors").find("not in the manifest"), std::string::npos);
}

TEST_F(RunStateTest, EventsMayGrowButNotChange) {
  RunState state = open();
  task("reference", "base", 1, true);
  state.task_done("reference", "base");
  task("reference", "repeat", 1, false);
  EXPECT_EQ(open().damage("reference/events.jsonl"), "");
  std::fstream(folder_ / "reference/events.jsonl", std::ios::in | std::ios::out) << "X";
  EXPECT_THROW(open(), Error);
}

TEST_F(RunStateTest, OnlyTheLastAttemptThatEndedCounts) {
  RunState state = open();
  const auto step = [](double loss) { return json::array({{{"event", "step"}, {"step", 0}, {"loss", loss}}}); };
  task("candidate", "base", 1, false, step(1));
  task("candidate", "base", 2, true, step(2));
  task("candidate", "base", 3, false, step(3));
  state.task_done("candidate", "base");
  const Context context(settings_, state);
  ASSERT_EQ(context.all("candidate", "base", "step").size(), 1u);
  EXPECT_EQ(context.need("candidate", "base", "step")["loss"], 2.0);
  EXPECT_THROW(context.need("candidate", "base", "draws"), NotJudgedError);
  EXPECT_THROW(context.all("candidate", "straight", "step"), NotJudgedError);
}

TEST_F(RunStateTest, ATornLineAndNanAreNoReasonToLoseTheRest) {
  open();
  std::ofstream(folder_ / "reference/events.jsonl")
      << R"({"event": "step", "task": "base", "loss": NaN, "why": "NaN \" in text", "range": [-Infinity, Infinity]})"
      << "\n"
      << R"({"event": "st)" << "\n"
      << R"({"event": "task.end", "task": "base"})" << "\n"
      << R"({"event": "torn", "ta)";
  const RunState state = open();
  ASSERT_EQ(state.events("reference").size(), 2u);
  EXPECT_TRUE(state.events("reference")[0]["loss"].is_null());
  EXPECT_EQ(state.events("reference")[0]["why"], "NaN \" in text");
}

TEST_F(RunStateTest, AMustCheckThatIsNotJudgedKeepsItsGateFromPassing) {
  RunState state = open();
  const Context context(settings_, state);
  for (const Check& check : registry()) {
    if (check.gate == Gate::Environment) state.results[std::string(check.id)].verdict = Verdict::Pass;
  }
  EXPECT_EQ(gate_verdict(0, context), Verdict::Pass);
  state.results["env.exclusive"].verdict = Verdict::NotJudged;  // informs only
  EXPECT_EQ(gate_verdict(0, context), Verdict::Pass);
  state.results["env.smoke"].verdict = Verdict::NotJudged;
  EXPECT_EQ(gate_verdict(0, context), Verdict::NotJudged);
  state.results["env.python"].verdict = Verdict::Stop;
  EXPECT_EQ(gate_verdict(0, context), Verdict::Stop);
  EXPECT_EQ(gate_verdict(1, context), Verdict::NotJudged) << "nothing judged is no pass";
  EXPECT_EQ(gate_verdict(2, context), Verdict::NotApplicable);
  EXPECT_EQ(gate_verdict(3, context), Verdict::NotJudged);
}

TEST_F(RunStateTest, WithoutEvidenceEveryCheckRefusesToJudge) {
  RunState state = open();
  const Context context(settings_, state);
  for (const Check& check : registry()) {
    if (!check.judge || check.gate == Gate::Decision || check.id == "par.first-divergence") continue;
    EXPECT_THROW(check.judge(context), NotJudgedError) << check.id;
  }
}

json placement_of(const json& ops, const json& on_cpu, const json& counters) {
  return json::array({{{"event", "ops"}, {"step", 1}, {"ops", ops}, {"cpu_ops_on_device_data", on_cpu}},
                      {{"event", "counters"}, {"counters", counters}}});
}

TEST_F(RunStateTest, PlacementWantsOpsThereAndNoFallback) {
  const json there =
      json::array({{{"op", "aten.mm.default"}, {"device", "tpu:0"}, {"dtype", "float32"}, {"count", 3}}});
  const json here = json::array({{{"op", "aten.mm.default"}, {"device", "cpu"}, {"dtype", "float32"}, {"count", 3}}});
  const json leak = json::array({{{"op", "aten.add.Tensor"}, {"count", 1}}});
  const struct {
    json ops, on_cpu, counters;
    Verdict verdict;
  } cases[] = {{there, json::array(), {{"fallbacks", 0}}, Verdict::Pass},
               {here, json::array(), {{"fallbacks", 0}}, Verdict::Stop},
               {there, leak, {{"fallbacks", 0}}, Verdict::Stop},
               {there, json::array(), {{"fallbacks", 2}}, Verdict::Stop},
               {there, json::array(), nullptr, Verdict::NotJudged}};
  for (const auto& example : cases) {
    fs::remove_all(folder_);
    RunState state = open();
    task("candidate", "placement", 1, true, placement_of(example.ops, example.on_cpu, nullptr));
    task("candidate", "base", 1, true, placement_of(json::array(), json::array(), example.counters));
    state.task_done("candidate", "base");
    const CheckResult result = parity::placement(Context(settings_, state));
    EXPECT_EQ(result.verdict, example.verdict) << result.why;
  }
}

TEST(DigestTest, IsSha256) {
  EXPECT_EQ(evidence::sha256_of(json("")).size(), 64u);
  const fs::path file = fs::temp_directory_path() / ("tpupilot-digest-" + std::to_string(::getpid()));
  std::ofstream(file) << "abcdef";
  EXPECT_EQ(evidence::sha256_of_file(file, 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  fs::remove(file);
  EXPECT_EQ(evidence::sha256_of_file(file), "");
}

}  // namespace
}  // namespace tpupilot::pilot
