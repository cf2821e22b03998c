// The executable cache: hits, damage, limits, and folders that cannot be written.
#include "cache/executable_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "cache/identity.h"
#include "fake_plugin/testing.h"

namespace tpupilot {
namespace {

using cache::Entry;
using cache::ExecutableCache;
using cache::Settings;
using pjrt::ElementType;
using pjrt::Error;
using pjrt::Shape;
using test::add_program;
using test::cpu_client;
using test::fake_client;
using test::ScopedVariable;
namespace fs = std::filesystem;

const std::vector<Shape> kTwo = {{ElementType::F32, {4}}, {ElementType::F32, {4}}};
const std::string kProgram = add_program("4xf32");

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code none;
  for (fs::recursive_directory_iterator it(folder / "executables", none), end; !none && it != end; ++it) {
    if (it->is_regular_file()) files.push_back(it->path());
  }
  return files;
}

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Runs x + x on the CPU client and checks it.
void expect_adds(const Entry& entry) {
  const float x[] = {1, 2, 3, 4};
  const int64_t dims[] = {4};
  const auto a = cpu_client()->from_host(x, ElementType::F32, dims, 0);
  pjrt::Buffer* arguments[] = {a.get(), a.get()};
  std::shared_ptr<pjrt::Buffer> out[1];
  entry.executable->execute(arguments, 0, out);
  float sum[4];
  out[0]->copy_to_host(sum, sizeof(sum));
  EXPECT_EQ(sum[3], 8);
}

class Cache : public ::testing::Test {
 protected:
  Settings settings() const { return {.folder = folder_.path() / "cache"}; }
  fs::path root() const { return settings().folder; }
  ExecutableCache fresh() const { return ExecutableCache(cpu_client(), settings()); }
  // Stores the program and returns its file.
  fs::path stored(std::string_view note = "note") const {
    fresh().get_or_compile(kProgram, pjrt::eager_options(), kTwo, note);
    const auto files = entries(root());
    EXPECT_EQ(files.size(), 1u);
    return files.at(0);
  }
  test::TemporaryFolder folder_;
};

TEST_F(Cache, CompilesOnceThenMemoryThenDisk) {
  ExecutableCache first = fresh();
  const Entry made = first.get_or_compile(kProgram, pjrt::eager_options(), kTwo, "the note");
  const Entry again = first.get_or_compile(kProgram, pjrt::eager_options(), kTwo, "another note");
  EXPECT_EQ(made.executable, again.executable);
  EXPECT_EQ(again.note, "the note");
  EXPECT_EQ(first.counters().misses, 1);
  EXPECT_EQ(first.counters().memory_hits, 1);

  ExecutableCache second = fresh();
  const int64_t compiles = cpu_client()->counters().snapshot().compiles;
  const Entry from_disk = second.get_or_compile(kProgram, pjrt::eager_options(), kTwo, "");
  EXPECT_EQ(cpu_client()->counters().snapshot().compiles, compiles);
  EXPECT_EQ(from_disk.note, "the note");
  EXPECT_EQ(second.counters().disk_hits, 1);
  EXPECT_EQ(second.counters().misses, 0);
  expect_adds(from_disk);
  second.forget_memory();
  second.get_or_compile(kProgram, pjrt::eager_options(), kTwo);
  EXPECT_EQ(second.counters().disk_hits, 2);
}

TEST_F(Cache, LoadAndStoreByKey) {
  ExecutableCache cache = fresh();
  const auto key = cache.key(kProgram, pjrt::eager_options(), kTwo);
  EXPECT_FALSE(cache.load(key, pjrt::eager_options(), kTwo).has_value());
  cache.store(key, {cpu_client()->compile(kProgram, pjrt::eager_options(), kTwo), "mine"});
  EXPECT_EQ(cache.load(key, pjrt::eager_options(), kTwo)->note, "mine");
  const auto loaded = fresh().load(key, pjrt::eager_options(), kTwo);
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->note, "mine");
  expect_adds(*loaded);
}

TEST_F(Cache, KeyChangesWithEverythingThatMakesTheCode) {
  ExecutableCache cache = fresh();
  const auto base = cache.key(kProgram, pjrt::eager_options(), kTwo);
  EXPECT_EQ(fresh().key(kProgram, pjrt::eager_options(), kTwo), base);
  EXPECT_NE(cache.key(kProgram + " ", pjrt::eager_options(), kTwo), base);
  EXPECT_NE(cache.key(kProgram, pjrt::region_options(), kTwo), base);
  EXPECT_NE(cache.key(kProgram, pjrt::eager_options(), std::span(kTwo).first(1)), base);
  // Another plugin file, and another number of devices (which decides whether programs are portable).
  EXPECT_NE(ExecutableCache(fake_client(), settings()).key(kProgram, pjrt::eager_options(), kTwo), base);
  const auto one_device = pjrt::Client::create(cpu_client()->plugin());
  EXPECT_NE(ExecutableCache(one_device, settings()).key(kProgram, pjrt::eager_options(), kTwo), base);
}

TEST_F(Cache, EveryFlippedBitIsNoticed) {
  const fs::path file = stored();
  const std::string good = contents(file);
  // All of the header, and some places of note and code.
  std::vector<size_t> places;
  for (size_t i = 0; i < 104; ++i) places.push_back(i);
  for (size_t i = 104; i < good.size(); i += good.size() / 7) places.push_back(i);
  places.push_back(good.size() - 1);
  ExecutableCache cache = fresh();
  const auto key = cache.key(kProgram, pjrt::eager_options(), kTwo);
  int64_t corrupt = 0;
  for (const size_t place : places) {
    std::string bad = good;
    bad[place] = static_cast<char>(bad[place] ^ 0x10);
    std::ofstream(file, std::ios::binary) << bad;
    EXPECT_FALSE(cache.load(key, pjrt::eager_options(), kTwo).has_value()) << place;
    EXPECT_FALSE(fs::exists(file)) << place;
    EXPECT_EQ(cache.counters().corrupt, ++corrupt) << place;
  }
  std::ofstream(file, std::ios::binary) << good;
  EXPECT_TRUE(cache.load(key, pjrt::eager_options(), kTwo).has_value());
}

TEST_F(Cache, TruncatedEmptyAndForeignEntriesAreCompiledAnew) {
  const fs::path file = stored();
  const std::string good = contents(file);
  const std::string other_key = [&] {  // a whole entry, under a name that is not its own
    std::string bytes = good;
    bytes[8] = static_cast<char>(bytes[8] ^ 1);
    return bytes;
  }();
  for (const std::string& bad : {std::string(), good.substr(0, 50), good.substr(0, good.size() - 1), good + "x",
                                 std::string("hello"), other_key}) {
    std::ofstream(file, std::ios::binary) << bad;
    ExecutableCache cache = fresh();
    expect_adds(cache.get_or_compile(kProgram, pjrt::eager_options(), kTwo, "note"));
    EXPECT_EQ(cache.counters().corrupt, 1) << bad.size();
    EXPECT_EQ(cache.counters().misses, 1) << bad.size();
    EXPECT_EQ(contents(file).size(), good.size()) << "stored anew";
  }
}

TEST_F(Cache, FailedCompileIsNotKept) {
  ExecutableCache cache = fresh();
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(cache.get_or_compile("module { rubbish }", pjrt::eager_options(), {}), Error);
  }
  EXPECT_EQ(cache.counters().misses, 2);
  EXPECT_TRUE(entries(root()).empty());
}

TEST_F(Cache, WithoutDiskNothingIsWritten) {
  ExecutableCache cache(cpu_client(), Settings{});
  expect_adds(cache.get_or_compile(kProgram, pjrt::eager_options(), kTwo));
  cache.forget_memory();
  cache.get_or_compile(kProgram, pjrt::eager_options(), kTwo);
  EXPECT_EQ(cache.counters().misses, 2);
  EXPECT_FALSE(fs::exists(root()));
}

// Tests may run as root, whom permissions do not stop: the folder's parent is a file.
TEST_F(Cache, UnwritableFolderWarnsOnceAndGoesOn) {
  const fs::path file = folder_.path() / "file";
  std::ofstream(file) << "x";
  ExecutableCache cache(cpu_client(), Settings{.folder = file / "cache"});
  ::testing::internal::CaptureStderr();
  expect_adds(cache.get_or_compile(kProgram, pjrt::eager_options(), kTwo));
  cache.get_or_compile(add_program("4xf64"), pjrt::eager_options(), {{ElementType::F64, {4}}, {ElementType::F64, {4}}});
  const std::string warning = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(warning, ::testing::HasSubstr("Not a directory"));
  EXPECT_EQ(std::count(warning.begin(), warning.end(), '\n'), 1) << warning;
  EXPECT_EQ(cache.counters().write_failures, 1);
}

// A full disk: no file may grow to the size of an entry. The signal that comes with it keeps its default action, which
// is to end the process.
TEST_F(Cache, FullDiskLeavesNoPiecesBehind) {
  ExecutableCache cache = fresh();
  cache.key(kProgram, pjrt::eager_options(), kTwo);  // stores the plugin's digest, while there is room
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 1500, .rlim_max = before.rlim_max};
  ::testing::internal::CaptureStderr();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Entry entry = cache.get_or_compile(kProgram, pjrt::eager_options(), kTwo);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::HasSubstr("File too large"));
  expect_adds(entry);
  EXPECT_EQ(cache.counters().write_failures, 1);
  EXPECT_TRUE(entries(root()).empty());
  cache.get_or_compile(add_program("4xf64"), pjrt::eager_options(), {{ElementType::F64, {4}}, {ElementType::F64, {4}}});
  EXPECT_TRUE(entries(root()).empty()) << "nothing more is tried";
}

TEST_F(Cache, OneCompileForManyThreadsThatWantTheSame) {
  ExecutableCache cache = fresh();
  std::vector<std::thread> threads;
  std::vector<Entry> made(4);
  for (auto& entry : made) {
    threads.emplace_back([&] { entry = cache.get_or_compile(kProgram, pjrt::eager_options(), kTwo); });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& entry : made) EXPECT_EQ(entry.executable, made[0].executable);
  EXPECT_EQ(cache.counters().misses, 1);
  EXPECT_EQ(cache.counters().memory_hits, 3);
}

// The number of entries that the limit leaves, and which: the least recently used go.
TEST_F(Cache, EvictsTheOldestUse) {
  const auto size = static_cast<uint64_t>(fs::file_size(stored()));
  fs::remove_all(root());
  Settings small = settings();
  small.limit_bytes = size * 4 + size / 2;
  small.writes_between_checks = 1;
  ExecutableCache cache(cpu_client(), small);
  std::vector<cache::Key> keys;
  const auto put = [&](int i) {
    const std::string program = kProgram + std::string(static_cast<size_t>(i), '\n');
    keys.push_back(cache.key(program, pjrt::eager_options(), kTwo));
    cache.get_or_compile(program, pjrt::eager_options(), kTwo);
  };
  const auto file = [&](int i) { return root() / "executables" / keys[i].hex().substr(0, 2) / keys[i].hex(); };
  for (int i = 0; i < 4; ++i) put(i);
  for (int i = 0; i < 4; ++i) {
    fs::last_write_time(file(i), fs::file_time_type::clock::now() - std::chrono::hours(9 - i));
  }
  EXPECT_TRUE(fresh().load(keys[0], pjrt::eager_options(), kTwo).has_value());  // a use makes it the youngest
  put(4);
  EXPECT_EQ(cache.counters().evictions, 1);
  EXPECT_TRUE(fs::exists(file(0)));
  EXPECT_FALSE(fs::exists(file(1)));
  EXPECT_TRUE(fs::exists(file(2)));
  EXPECT_TRUE(fs::exists(file(4)));
}

TEST_F(Cache, EvictionSweepsWhatKilledWritersLeft) {
  Settings often = settings();
  often.writes_between_checks = 1;
  const fs::path old = root() / "executables" / "aa" / ".writing-old";
  const fs::path recent = root() / "executables" / "aa" / ".writing-new";
  fs::create_directories(old.parent_path());
  std::ofstream(old) << "x";
  std::ofstream(recent) << "x";
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(2));
  ExecutableCache(cpu_client(), often).get_or_compile(kProgram, pjrt::eager_options(), kTwo);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(recent));
}

TEST_F(Cache, EntryLargerThanTheLimitIsNotStored) {
  Settings tiny = settings();
  tiny.limit_bytes = 100;
  ExecutableCache(cpu_client(), tiny).get_or_compile(kProgram, pjrt::eager_options(), kTwo);
  EXPECT_TRUE(entries(root()).empty());
}

TEST_F(Cache, FolderIsForThisUserAlone) {
  stored();
  struct stat info{};
  ASSERT_EQ(stat(root().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

// ---- a plugin that cannot serialize, or refuses what it once wrote

TEST_F(Cache, PluginThatCannotSerialize) {
  const ScopedVariable none("FAKE_PJRT_UNIMPLEMENTED", "Executable_Serialize");
  ExecutableCache cache(fake_client(), settings());
  ::testing::internal::CaptureStderr();
  EXPECT_NE(cache.get_or_compile(kProgram, pjrt::eager_options(), kTwo).executable, nullptr);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::HasSubstr("cannot serialize"));
  EXPECT_TRUE(entries(root()).empty());
}

TEST_F(Cache, WholeEntryThatThePluginRefusesIsRemoved) {
  ExecutableCache(fake_client(), settings()).get_or_compile(kProgram, pjrt::eager_options(), kTwo);
  ASSERT_EQ(entries(root()).size(), 1u);
  ExecutableCache cache(fake_client(), settings());
  {
    const ScopedVariable refuse("FAKE_PJRT_FAIL", "Executable_DeserializeAndLoad:1:3");
    cache.get_or_compile(kProgram, pjrt::eager_options(), kTwo);
  }
  EXPECT_EQ(cache.counters().corrupt, 1);
  EXPECT_EQ(cache.counters().misses, 1);
  EXPECT_EQ(entries(root()).size(), 1u) << "stored anew";
  {
    const ScopedVariable memory("FAKE_PJRT_FAIL", "Executable_DeserializeAndLoad:1:8");
    cache.forget_memory();
    EXPECT_EQ(test::error_of([&] { cache.get_or_compile(kProgram, pjrt::eager_options(), kTwo); }).code(),
              Error::Code::ResourceExhausted);
  }
  EXPECT_EQ(entries(root()).size(), 1u) << "out of memory says nothing about the entry";
  EXPECT_EQ(cache.counters().corrupt, 1);
}

// ---- several processes on one folder

// Run as a process of its own by the test below, on the folder that TPUPILOT_CACHE_DIR names.
TEST(Writer, DISABLED_StoresAndLoadsTheSameProgramsAgainAndAgain) {
  ExecutableCache cache(fake_client());
  for (int round = 0; round < 40; ++round) {
    for (int i = 0; i < 8; ++i) {
      const std::string program = kProgram + std::string(static_cast<size_t>(i), '\n');
      const Entry entry = cache.get_or_compile(program, pjrt::eager_options(), kTwo, std::to_string(i));
      ASSERT_EQ(entry.note, std::to_string(i));
      cache.store(cache.key(program, pjrt::eager_options(), kTwo), entry);
    }
    cache.forget_memory();
  }
  EXPECT_EQ(cache.counters().corrupt, 0);
  EXPECT_EQ(cache.counters().write_failures, 0);
}

TEST_F(Cache, TwoProcessesWriteTheSameEntries) {
  const ScopedVariable folder("TPUPILOT_CACHE_DIR", root().c_str());
  std::vector<pid_t> writers(2);
  for (pid_t& writer : writers) {
    writer = fork();
    if (writer == 0) {
      const int nowhere = open("/dev/null", O_WRONLY);
      dup2(nowhere, STDOUT_FILENO);
      execl("/proc/self/exe", "cache_test", "--gtest_also_run_disabled_tests", "--gtest_filter=Writer.*", nullptr);
      _exit(127);
    }
  }
  for (const pid_t writer : writers) {
    int status = 0;
    ASSERT_EQ(waitpid(writer, &status, 0), writer);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  EXPECT_EQ(entries(root()).size(), 8u) << "and no temporary file";
}

// ---- identity and settings

TEST_F(Cache, PluginDigestIsKeptUntilTheFileChanges) {
  const fs::path plugin = folder_.path() / "plugin.so";
  std::ofstream(plugin) << "abc";
  const auto abc = cache::plugin_digest(plugin, root());
  ASSERT_TRUE(abc.has_value());
  EXPECT_EQ(cache::hex(*abc), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");

  // That it is read from the note: a note that says otherwise is believed, one that cannot be read is not.
  const fs::path note = fs::directory_iterator(root() / "plugins")->path();
  std::string text = contents(note);
  ASSERT_EQ(text.substr(text.size() - 2), "ad");
  text.back() = 'e';
  std::ofstream(note) << text;
  EXPECT_EQ(cache::hex(*cache::plugin_digest(plugin, root())).back(), 'e');
  text.back() = '?';
  std::ofstream(note) << text;
  EXPECT_EQ(cache::plugin_digest(plugin, root()), abc);

  std::ofstream(plugin) << "abcd";
  EXPECT_NE(cache::plugin_digest(plugin, root()), abc);
  EXPECT_FALSE(cache::plugin_digest(folder_.path() / "absent.so", root()).has_value());
  EXPECT_EQ(cache::plugin_digest(plugin, "/dev/null/none"), cache::plugin_digest(plugin, root()));
}

TEST(HostCpu, NamesTheInstructionSets) {
  const std::string cpu = cache::host_cpu();
  EXPECT_THAT(cpu, ::testing::AnyOf(::testing::HasSubstr("flags"), ::testing::HasSubstr("Features")));
  EXPECT_THAT(cpu, ::testing::Not(::testing::HasSubstr("MHz")));  // changes from one moment to the next
  EXPECT_EQ(cpu, cache::host_cpu());
}

TEST(CacheSettings, FromTheEnvironment) {
  const ScopedVariable limit("TPUPILOT_CACHE_LIMIT", nullptr);
  const ScopedVariable home("HOME", "/somewhere/me");
  const ScopedVariable xdg("XDG_CACHE_HOME", nullptr);
  const ScopedVariable folder("TPUPILOT_CACHE_DIR", nullptr);
  EXPECT_EQ(Settings::from_environment().folder, "/somewhere/me/.cache/tpupilot");
  EXPECT_EQ(Settings::from_environment().limit_bytes, uint64_t{4} << 30);
  {
    const ScopedVariable base("XDG_CACHE_HOME", "/var/x");
    EXPECT_EQ(Settings::from_environment().folder, "/var/x/tpupilot");
    for (const char* off : {"", "off"}) {
      const ScopedVariable none("TPUPILOT_CACHE_DIR", off);
      EXPECT_TRUE(Settings::from_environment().folder.empty()) << off;
    }
    const ScopedVariable mine("TPUPILOT_CACHE_DIR", "/mine");
    EXPECT_EQ(Settings::from_environment().folder, "/mine");
  }
  const ScopedVariable relative("XDG_CACHE_HOME", "x");
  EXPECT_EQ(Settings::from_environment().folder, "/somewhere/me/.cache/tpupilot");
}

TEST(CacheSettings, LimitWithSuffix) {
  const auto read = [](const char* text) {
    const ScopedVariable limit("TPUPILOT_CACHE_LIMIT", text);
    return Settings::from_environment().limit_bytes;
  };
  EXPECT_EQ(read("0"), 0u);
  EXPECT_EQ(read("1234"), 1234u);
  EXPECT_EQ(read("3k"), 3072u);
  EXPECT_EQ(read("500M"), uint64_t{500} << 20);
  EXPECT_EQ(read("2G"), uint64_t{2} << 30);
  for (const char* bad : {"", "M", "-1", "1.5G", "4T", "1 G", "99999999999999999999", "99999999999G"}) {
    EXPECT_EQ(test::error_of([&] { read(bad); }).code(), Error::Code::InvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace tpupilot
