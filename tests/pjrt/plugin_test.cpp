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
  const Plugin& plugin = Plugin::load(test::cpu_plugin());
  EXPECT_EQ(plugin.api_version().major, 0);
  EXPECT_GE(plugin.api_version().minor, 81);
  const auto version = plugin.version_attribute("stablehlo_current_version");
  ASSERT_EQ(version.size(), 3u);
  EXPECT_EQ(version[0], 1);
  EXPECT_GE(version[1], 13);
  EXPECT_FALSE(plugin.version_attribute("xla_version").empty());
  EXPECT_TRUE(plugin.version_attribute("no such attribute").empty());
  EXPECT_EQ(&Plugin::load(test::cpu_plugin()), &plugin);
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

// A file of the given name in a new folder of folders.
void put(const std::filesystem::path& path, const std::string& text = "x") {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST(PluginFinder, FindsEveryKnownPluginByItsNames) {
  const test::TemporaryFolder site;
  const std::vector<std::string> folders = {"/nowhere", site.path()};
  for (const pjrt::KnownPlugin& known : pjrt::known_plugins()) {
    SCOPED_TRACE(known.name);
    const Error absent = error_of([&] { pjrt::find_plugin(known.name, folders); });
    EXPECT_EQ(absent.code(), Error::Code::NotFound);
    EXPECT_THAT(absent.what(), AllOf(HasSubstr("is not installed; `" + std::string(known.install) + "` installs it"),
                                     HasSubstr("/nowhere")));
    const auto file = site.path() / known.file;
    put(file);
    EXPECT_EQ(pjrt::find_plugin(known.name, folders), file);
    const std::string_view other = known.short_name.empty() ? known.name : known.short_name;
    EXPECT_EQ(pjrt::find_plugin(other, folders), file);
  }
}

TEST(PluginFinder, LeavesPathsAloneAndListsTheNames) {
  EXPECT_EQ(pjrt::find_plugin("./my.so", {}), "./my.so");
  EXPECT_EQ(pjrt::find_plugin("my.so", {}), "my.so");
  for (const char* name : {"cqu", ""}) {
    const Error unknown = error_of([&] { pjrt::find_plugin(name, {}); });
    EXPECT_THAT(unknown.what(), AllOf(HasSubstr("'" + std::string(name) + "'"), HasSubstr("xla-cpu-pjrt (short: cpu)"),
                                      HasSubstr("pip install"), HasSubstr("path")));
  }
}

TEST(PluginHardware, WhatIsMissingIsNamed) {
  const test::TemporaryFolder root;  // a machine without devices
  for (const auto& [plugin, what] : {std::pair("/x/libtpu.so", "libtpu needs a TPU"),
                                     std::pair("xla_cuda_plugin.so", "jax-cuda13-pjrt needs an NVIDIA GPU")}) {
    const Error missing = error_of([&] { pjrt::require_hardware(plugin, root.path()); });
    EXPECT_EQ(missing.code(), Error::Code::FailedPrecondition);
    EXPECT_THAT(missing.what(), AllOf(HasSubstr(what), HasSubstr("TPUPILOT_PLUGIN=cpu")));
    EXPECT_THAT(pjrt::hardware_advice(plugin), HasSubstr("TPUPILOT_PLUGIN=cpu"));
  }
  for (const char* other : {"xla_cpu_pjrt.so", "/x/my.so", ""}) {
    EXPECT_NO_THROW(pjrt::require_hardware(other, root.path()));
    EXPECT_EQ(pjrt::hardware_advice(other), "");
  }
}

TEST(PluginHardware, DeviceFilesAndThePciBusShowIt) {
  const auto tpu = [](const std::vector<std::string>& devices, const std::string& vendor) {
    const test::TemporaryFolder root;
    for (const std::string& device : devices) put(root.path() / "dev" / device);
    put(root.path() / "sys/bus/pci/devices/0000:00:04.0/vendor", "0x8086\n");
    put(root.path() / "sys/bus/pci/devices/0000:00:05.0/vendor", vendor + "\n");
    try {
      pjrt::require_hardware("libtpu.so", root.path());
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  EXPECT_TRUE(tpu({"accel0"}, "0x1af4"));
  EXPECT_TRUE(tpu({"vfio/vfio", "vfio/0"}, "0x1ae0"));
  EXPECT_FALSE(tpu({"vfio/vfio", "vfio/0"}, "0x1af4"));  // another device that is passed through
  EXPECT_FALSE(tpu({"vfio/vfio"}, "0x1ae0"));            // Google's network card, and a driver without devices
  EXPECT_FALSE(tpu({"accel/accel0", "accelerate"}, "0x1af4"));

  const test::TemporaryFolder root;
  put(root.path() / "dev/nvidiactl");
  EXPECT_THROW(pjrt::require_hardware("xla_cuda_plugin.so", root.path()), Error);
  put(root.path() / "dev/nvidia0");
  EXPECT_NO_THROW(pjrt::require_hardware("xla_cuda_plugin.so", root.path()));
}

}  // namespace
}  // namespace tpupilot
