#include "pilot/plan.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "pilot/check.h"
#include "pilot/errors.h"
#include "pilot/fields.h"
#include "pilot/profile.h"
#include "pilot/rerun.h"

namespace tpupilot::pilot {
namespace {

using nlohmann::json;

std::vector<Process> whole_plan(const Settings& settings, const std::string& inject = "") {
  const PlanInput input{settings, "/run", inject};
  std::vector<Process> all = plan_gate(0, input);
  for (const Process& process : plan_gate(1, input)) all.push_back(process);
  return all;
}

TEST(PlanTest, NamesAreUniqueAndWhatIsWaitedForExists) {
  std::set<std::string> names;
  const auto plan = whole_plan(Settings());
  for (const Process& process : plan) {
    for (const Task& task : process.tasks)
      EXPECT_TRUE(names.insert(process.side + "/" + task.name).second) << task.name;
  }
  for (const Process& process : plan) {
    for (const std::string& needed : process.after) EXPECT_TRUE(names.contains(needed)) << needed;
  }
}

TEST(PlanTest, EveryTaskSaysWhatItIs) {
  for (const Process& process : whole_plan(Settings())) {
    for (const Task& task : process.tasks) {
      ASSERT_TRUE(task.request.is_object()) << task.name;
      EXPECT_TRUE(task.request.contains("task")) << task.name;
    }
  }
}

TEST(PlanTest, CustomOperatorsRunOnBothSidesAndInFloat64OnTheReference) {
  std::map<std::string, bool> float64;
  for (const Process& process : whole_plan(Settings())) {
    for (const Task& task : process.tasks) {
      if (task.request["task"] == "custom-ops") float64[process.side] = task.request["float64"];
    }
  }
  EXPECT_EQ(float64, (std::map<std::string, bool>{{"candidate", false}, {"reference", true}}));
}

TEST(PlanTest, AFaultGoesToTheCandidateOnly) {
  for (const Process& process : whole_plan(Settings(), "skip-update")) {
    for (const Task& task : process.tasks) {
      if (task.request["task"] != "run") continue;
      EXPECT_EQ(task.request.contains("fault"), process.side == "candidate") << task.name;
      if (task.name == "fault") {
        EXPECT_EQ(task.request["fault"]["kind"], "drop-gradient");
      }
    }
  }
}

TEST(PlanTest, ResumeIsInMidEpochAndAtItsBorderAfterTheFirstEpoch) {
  Settings settings;
  for (int64_t epoch : {0, 1, 2, 5, 8, 100}) {
    settings.set("job.steps_per_epoch=" + std::to_string(epoch));
    const ResumeSteps steps = resume_steps(settings);
    EXPECT_GE(steps.mid + 1, steps.epoch) << epoch;  // in an epoch >= 1
    EXPECT_EQ((steps.border + 1) % steps.epoch, 0) << epoch;
    EXPECT_GE(steps.end - 1 - std::max(steps.mid, steps.border), 3) << epoch;
    EXPECT_TRUE(steps.epoch == 1 || (steps.mid + 1) % steps.epoch != 0) << epoch;
  }
}

TEST(PlanTest, GatesOfThisReleaseOnly) {
  const Settings settings;
  EXPECT_TRUE(plan_gate(2, {settings, "/run", ""}).empty());
  EXPECT_TRUE(plan_gate(3, {settings, "/run", ""}).empty());
}

TEST(RegistryTest, IdsAreUniqueAndInGateOrder) {
  std::set<std::string_view> ids;
  for (const Check& check : registry()) EXPECT_TRUE(ids.insert(check.id).second) << check.id;
  EXPECT_EQ(ids.size(), registry().size());
  EXPECT_EQ(find_check("par.loss").gate, Gate::OneWorker);
  EXPECT_THROW(find_check("par.lost"), Error);
}

TEST(RegistryTest, TheTableNamesEveryCheckOnce) {
  const std::string table = checks_markdown();
  for (const Check& check : registry()) {
    const std::string cell = "| `" + std::string(check.id) + "` |";
    EXPECT_EQ(table.find(cell), table.rfind(cell));
    EXPECT_NE(table.find(cell), std::string::npos);
  }
}

TEST(FieldsTest, NoNameTwice) {
  const std::set<std::string_view> names(field_names().begin(), field_names().end());
  EXPECT_EQ(names.size(), field_names().size());
  EXPECT_TRUE(is_unknown(json("unknown: why")));
  EXPECT_TRUE(is_unknown(json()));
  EXPECT_FALSE(is_unknown(json("cpu")));
}

TEST(ProfileTest, RangesAreInclusive) {
  const Profile* profile = find_profile("torch_tpu==0.2.0");
  ASSERT_NE(profile, nullptr);
  const auto lacks = [&](const char* python, const char* torch, json cuda = nullptr) {
    return unmet(*profile, {{"python", python}, {"torch", torch}, {"cuda_build", cuda}});
  };
  EXPECT_EQ(lacks("3.11.2", "2.11.0"), "");
  EXPECT_EQ(lacks("3.12", "2.15.1+cpu"), "");
  EXPECT_NE(lacks("3.10.9", "2.13.0"), "");
  EXPECT_NE(lacks("3.11.2", "2.10.9"), "");
  EXPECT_NE(lacks("3.11.2", "2.16.0"), "");
  EXPECT_NE(lacks("3.11.2", "2.13.0", "12.8"), "");
  EXPECT_EQ(find_profile("torch_tpu==9"), nullptr);
}

json manifest_with(const std::vector<std::string>& assignments) {
  Settings settings;
  for (const std::string& assignment : assignments) settings.set(assignment);
  return {{"settings", settings.json()}, {"comparable", {{"candidate.environment_sha256", "a"}}}};
}

TEST(RerunTest, OneVariableMayChange) {
  const Parent parent{manifest_with({}), {{"verdict", "pass"}}, {}};
  EXPECT_NO_THROW(refuse_bad_rerun(parent, manifest_with({})));
  EXPECT_NO_THROW(refuse_bad_rerun(parent, manifest_with({"job.seed=1"})));
  EXPECT_NO_THROW(refuse_bad_rerun(parent, manifest_with({"job.seed=1", "pilot.owner=me"})));
  try {
    refuse_bad_rerun(parent, manifest_with({"job.seed=1", "job.steps=30"}));
    FAIL() << "two variables";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::Usage);
    EXPECT_NE(std::string(error.what()).find("job.seed, job.steps"), std::string::npos);
  }
}

TEST(RerunTest, AStoppedParentIsNotScaledUp) {
  const Parent stopped{manifest_with({"target.chips=4"}), {{"verdict", "stop"}}, {}};
  EXPECT_THROW(refuse_bad_rerun(stopped, manifest_with({"target.chips=8"})), Error);
  EXPECT_NO_THROW(refuse_bad_rerun(stopped, manifest_with({"target.chips=2"})));
  const Parent passed{manifest_with({"target.chips=4"}), {{"verdict", "pass"}}, {}};
  EXPECT_NO_THROW(refuse_bad_rerun(passed, manifest_with({"target.chips=8"})));
}

TEST(RerunTest, AnUnknownLockIsNotADifference) {
  json now = manifest_with({});
  now["comparable"]["candidate.environment_sha256"] = nullptr;
  EXPECT_TRUE(comparable_differences(manifest_with({}), now).empty());
  now["comparable"]["candidate.environment_sha256"] = "b";
  EXPECT_EQ(comparable_differences(manifest_with({}), now).size(), 1u);
}

}  // namespace
}  // namespace tpupilot::pilot
