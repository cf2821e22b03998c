// Loading and finding plugins, and what a bad one is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "fake_plugin/testing.h"
#include "pjrt/plugin_finder.h"

namespace tpupilot {
namespace {

using pjrt::Error;
using pjrt::Plugin;
using test::error_of;
using test::ScopedVariable;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Plugin, SaysWhatTheCpuPluginIs) {
  const Plugin& plugin = Plugin::load(TPUPILOT_TEST_PLUGIN);
  EXPECT_EQ(plugin.api_version().major, 0);
  EXPECT_GE(plugin.api_version().minor, 81);
  const auto version = plugin.version_attribute("stablehlo_current_version");
  ASSERT_EQ(version.size(), 3u);
  EXPECT_EQ(version[0], 1);
  EXPECT_GE(version[1], 13);
  EXPECT_FALSE(plugin.version_attribute("xla_version").empty());
  EXPECT_TRUE(plugin.version_attribute("no such attribute").empty());
  EXPECT_EQ(&Plugin::load(TPUPILOT_TEST_PLUGIN), &plugin);
}

TEST(Plugin, MissingFileNamesThePath) {
  const Error error = error_of([] { Plugin::load("/nowhere/plugin.so"); });
  EXPECT_EQ(error.code(), Error::Code::NotFound);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("there is no file /nowhere/plugin.so"), HasSubstr("Give the path")));
}

TEST(Plugin, FileThatIsNoLibrary) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() / "text.so";
  std::ofstream(path) << "this is no library\n";
  const Error error = error_of([&] { Plugin::load(path); });
  EXPECT_EQ(error.code(), Error::Code::InvalidArgument);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("cannot be loaded as a shared library"), HasSubstr("Install")));
  EXPECT_THAT(error_of([&] { Plugin::load(folder.path()); }).what(), HasSubstr("is not a file"));
}

TEST(Plugin, LibraryWithoutGetPjrtApi) {
  Dl_info info{};  // of the math library, say: of any that is no plugin
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&std::getenv), &info), 0);
  const Error error = error_of([&] { Plugin::load(info.dli_fname); });
  EXPECT_EQ(error.code(), Error::Code::InvalidArgument);
  EXPECT_THAT(error.what(), HasSubstr("exports no GetPjrtApi"));
}

// A refused library is closed again, so each of these starts from nothing. The fake must not have been loaded before:
// these tests use a copy of it.
class BadApi : public ::testing::Test {
 protected:
  BadApi() : path_(folder_.path() / "copy.so") { std::filesystem::copy_file(TPUPILOT_FAKE_PLUGIN, path_); }
  test::TemporaryFolder folder_;
  std::string path_;
};

TEST_F(BadApi, TooOldNamesFoundAndNeeded) {
  const ScopedVariable old("FAKE_PJRT_MINOR", "54");
  const Error error = error_of([&] { Plugin::load(path_); });
  EXPECT_EQ(error.code(), Error::Code::Unimplemented);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("API 0.54"), HasSubstr("at least 0.81"), HasSubstr("Install a newer")));
}

TEST_F(BadApi, OtherMajorVersion) {
  const ScopedVariable other("FAKE_PJRT_MAJOR", "1");
  EXPECT_THAT(error_of([&] { Plugin::load(path_); }).what(), HasSubstr("major version 0 is needed"));
}

TEST_F(BadApi, ShortTable) {
  {
    const ScopedVariable size("FAKE_PJRT_STRUCT_SIZE", "200");
    EXPECT_THAT(error_of([&] { Plugin::load(path_); }).what(), HasSubstr("a table of 200 bytes"));
  }
  const ScopedVariable none("FAKE_PJRT_STRUCT_SIZE", "8");  // too short even for the version
  EXPECT_THAT(error_of([&] { Plugin::load(path_); }).what(), HasSubstr("API 0.0 with a table of 8 bytes"));
}

TEST_F(BadApi, MissingFunctionIsNamed) {
  const ScopedVariable null("FAKE_PJRT_NULL_SLOT", "Buffer_ReadyEvent");
  EXPECT_THAT(error_of([&] { Plugin::load(path_); }).what(), HasSubstr("PJRT_Buffer_ReadyEvent"));
}

TEST_F(BadApi, FailedInitializeMayBeRepeated) {
  {
    const ScopedVariable fail("FAKE_PJRT_FAIL", "Plugin_Initialize:1:13");
    const Error error = error_of([&] { Plugin::load(path_); });
    EXPECT_EQ(error.code(), Error::Code::Internal);
    EXPECT_THAT(error.what(), HasSubstr("fault in Plugin_Initialize"));
  }
  EXPECT_NO_THROW(Plugin::load(path_));
}

TEST_F(BadApi, LogLevelIsSetUnlessTheUserSetIt) {
  {
    const ScopedVariable mine("TF_CPP_MIN_LOG_LEVEL", "1");
    Plugin::load(path_);
    EXPECT_STREQ(std::getenv("TF_CPP_MIN_LOG_LEVEL"), "1");
  }
  const std::string second = folder_.path() / "second.so";
  std::filesystem::copy_file(TPUPILOT_FAKE_PLUGIN, second);
  const ScopedVariable unset("TF_CPP_MIN_LOG_LEVEL", nullptr);
  Plugin::load(second);
  EXPECT_STREQ(std::getenv("TF_CPP_MIN_LOG_LEVEL"), "3");
}

TEST(PluginFinder, KnownNamesPathsAndUnknownNames) {
  const test::TemporaryFolder site;
  const std::vector<std::string> folders = {"/nowhere", site.path()};
  const auto file = site.path() / "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so";
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << "x";
  EXPECT_EQ(pjrt::find_plugin("cpu", folders), file);
  EXPECT_EQ(pjrt::find_plugin("xla-cpu-pjrt", folders), file);
  EXPECT_EQ(pjrt::find_plugin("./my.so", folders), "./my.so");
  EXPECT_EQ(pjrt::find_plugin("my.so", folders), "my.so");

  const Error absent = error_of([&] { pjrt::find_plugin("fastatomstruct-xla-cpu", folders); });
  EXPECT_EQ(absent.code(), Error::Code::NotFound);
  EXPECT_THAT(absent.what(), AllOf(HasSubstr("/nowhere"), HasSubstr("pip install fastatomstruct-xla-cpu")));
  const Error unknown = error_of([&] { pjrt::find_plugin("cqu", folders); });
  EXPECT_THAT(unknown.what(), AllOf(HasSubstr("'cqu'"), HasSubstr("xla-cpu-pjrt"), HasSubstr("pip install")));
}

}  // namespace
}  // namespace tpupilot
