#include "cache/note_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace tpupilot::cache {
namespace {

class NoteStoreTest : public testing::Test {
 protected:
  std::filesystem::path folder_ = std::filesystem::temp_directory_path() / ("notes-" + std::to_string(getpid()));
  std::filesystem::path file_ = folder_ / "deep" / "notes";
  void TearDown() override { std::filesystem::remove_all(folder_); }
};

TEST_F(NoteStoreTest, KeepsNotesOverProcesses) {
  {
    NoteStore store(file_);
    EXPECT_FALSE(store.find("a"));
    store.keep("a", "one two");
    store.keep("b", "");
    store.keep("a", "another");
  }
  NoteStore again(file_);
  EXPECT_EQ(again.find("a"), "one two");
  EXPECT_EQ(again.find("b"), "");
  EXPECT_FALSE(again.find("c"));
}

TEST_F(NoteStoreTest, PassesOverDamagedAndTornLines) {
  {
    NoteStore store(file_);
    store.keep("a", "first");
    store.keep("b", "second");
    store.keep("c", "third");
  }
  std::ifstream in(file_, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  bytes[bytes.find("second")] = 'S';
  bytes.resize(bytes.size() - 3);
  std::ofstream(file_, std::ios::binary) << bytes;
  NoteStore again(file_);
  EXPECT_EQ(again.find("a"), "first");
  EXPECT_FALSE(again.find("b"));
  EXPECT_FALSE(again.find("c"));
}

TEST_F(NoteStoreTest, StopsWritingAtItsLimitAndWithoutAFolder) {
  NoteStore small(file_, 200);
  for (int i = 0; i < 10; ++i) small.keep(std::to_string(i), "note");
  EXPECT_EQ(small.find("9"), "note");  // in memory
  EXPECT_LE(std::filesystem::file_size(file_), 200u);
  NoteStore nowhere("/proc/nowhere/notes");
  nowhere.keep("a", "b");
  EXPECT_EQ(nowhere.find("a"), "b");
  EXPECT_FALSE(NoteStore("").find("a"));
}

}  // namespace
}  // namespace tpupilot::cache
