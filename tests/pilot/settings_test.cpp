#include "pilot/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "pilot/errors.h"

namespace tpupilot::pilot {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class PilotFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("tpupilot-settings-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Settings load(const std::string& text) {
    std::ofstream(folder_ / "pilot.toml") << text;
    return Settings::load(folder_ / "pilot.toml");
  }

  std::string message(const std::string& text) {
    try {
      load(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::Usage);
      return error.what();
    }
    return "no error";
  }

  fs::path folder_;
};

TEST_F(PilotFileTest, AnEmptyFileIsAllDefaults) {
  const Settings settings = load("");
  EXPECT_EQ(settings.json(), Settings().json());
  EXPECT_EQ(settings.text("candidate", "device"), "tpu");
  EXPECT_EQ(settings.integers("pilot", "gates"), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(settings.number("parity", "max_drift"), 0.01);
}

TEST_F(PilotFileTest, ReadsEveryType) {
  const Settings settings = load(
      "[pilot]\ngates = [0]\nstep_timeout = 5\n[parity]\ntolerance = { float32 = [1e-3, 1e-4] }\n"
      "[fit]\nslices = [\"v6e-8\"]\n[candidate]\ndevice = 'cpu'\n");
  EXPECT_EQ(settings.integers("pilot", "gates"), std::vector<int64_t>{0});
  EXPECT_EQ(settings.number("pilot", "step_timeout"), 5.0);
  EXPECT_EQ(settings.value("parity", "tolerance"), (nlohmann::json{{"float32", {1e-3, 1e-4}}}));
  EXPECT_EQ(settings.value("fit", "slices"), nlohmann::json({"v6e-8"}));
  EXPECT_EQ(settings.text("candidate", "device"), "cpu");
}

TEST_F(PilotFileTest, AnUnknownKeyIsQuotedWithASuggestion) {
  const std::string text = message("[pilot]\nowner = \"me\"\n  step_timeuot = 5\n");
  EXPECT_THAT(text, HasSubstr("unknown key `step_timeuot` in [pilot]; did you mean `step_timeout`?"));
  EXPECT_THAT(text, HasSubstr("pilot.toml:3:3"));
  EXPECT_THAT(text, HasSubstr("3 |   step_timeuot = 5"));
}

TEST_F(PilotFileTest, AnUnknownSectionHasASuggestion) {
  EXPECT_THAT(message("[candidat]\ndevice = \"cpu\"\n"),
              HasSubstr("unknown section `candidat`; did you mean `candidate`?"));
}

TEST_F(PilotFileTest, AWrongTypeNamesWhatIsWanted) {
  EXPECT_THAT(message("[job]\nsteps = \"20\"\n"), HasSubstr("`steps` in [job] wants a whole number"));
  EXPECT_THAT(message("[job]\nsteps = 20.5\n"), HasSubstr("wants a whole number"));
  EXPECT_THAT(message("[pilot]\ngates = 1\n"), HasSubstr("wants a list of whole numbers"));
  EXPECT_THAT(message("[parity]\ntolerance = { float32 = [1] }\n"), HasSubstr("rtol, atol"));
}

TEST_F(PilotFileTest, AWrongValueIsRefused) {
  EXPECT_THAT(message("[job]\nsteps = 1\n"), HasSubstr("less than its minimum 2"));
  EXPECT_THAT(message("[pilot]\ngates = [0, 4]\n"), HasSubstr("gates are 0, 1, 2 and 3"));
  EXPECT_THAT(message("[candidate]\nnumerics = \"exakt\"\n"), HasSubstr("did you mean `exact`?"));
}

TEST_F(PilotFileTest, MalformedTomlHasLineAndColumn) {
  EXPECT_THAT(message("[pilot]\nowner = \n"), HasSubstr("pilot.toml:2:"));
}

TEST_F(PilotFileTest, SetTakesBareTextAndToml) {
  Settings settings;
  settings.set("candidate.device=cpu");
  settings.set("job.steps=7");
  settings.set("candidate.profile=torch_tpu==0.2.0");
  settings.set("reference.python=\"/usr/bin/python3\"");
  EXPECT_EQ(settings.text("candidate", "device"), "cpu");
  EXPECT_EQ(settings.integer("job", "steps"), 7);
  EXPECT_EQ(settings.text("candidate", "profile"), "torch_tpu==0.2.0");
  EXPECT_EQ(settings.text("reference", "python"), "/usr/bin/python3");
  EXPECT_THROW(settings.set("device=cpu"), Error);
  EXPECT_THROW(settings.set("candidate.devise=cpu"), Error);
  EXPECT_THROW(settings.set("job.steps=many"), Error);
}

TEST_F(PilotFileTest, FindsAJobByFolderOrFile) {
  std::ofstream(folder_ / "other.py") << "";
  EXPECT_THROW(find_job(folder_, {}), Error);
  EXPECT_EQ(find_job(folder_ / "other.py", {}).file.filename(), "other.py");
  EXPECT_EQ(find_job(folder_, {"job.file=other.py"}).file.filename(), "other.py");
  EXPECT_THROW(find_job(folder_ / "missing", {}), Error);
}

TEST(NearestTest, SuggestsOnlyWhatIsNear) {
  EXPECT_EQ(nearest("devise", {"device", "python"}), "device");
  EXPECT_EQ(nearest("xyz", {"device", "python"}), "");
}

TEST(BytesTest, ReadsUnits) {
  EXPECT_EQ(parse_bytes("15.75 GiB"), 15.75 * 1024 * 1024 * 1024);
  EXPECT_EQ(parse_bytes("2 KB"), 2000);
  EXPECT_THROW(parse_bytes("many"), Error);
  EXPECT_THROW(parse_bytes("2 Gib"), Error);
}

}  // namespace
}  // namespace tpupilot::pilot
