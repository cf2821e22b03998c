// For tests of the rooms that enter a plugin: the real and the fake client, small programs, environment, leaks.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "pjrt/client.h"
#include "support/plugin.h"

namespace tpupilot::test {

// Sets a variable, or unsets it (null), until the end of the scope.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  }
  ~ScopedVariable() { old_ ? setenv(name_.c_str(), old_->c_str(), 1) : unsetenv(name_.c_str()); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  std::string name_;
  std::optional<std::string> old_;
};

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "tpupilot-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a temporary folder");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::shared_ptr<pjrt::Client> cpu_client() {
  static const auto client = pjrt::Client::create(pjrt::Plugin::load(cpu_plugin()), {.device_count = 2});
  return client;
}
inline std::shared_ptr<pjrt::Client> fake_client() {
  return pjrt::Client::create(pjrt::Plugin::load(TPUPILOT_FAKE_PLUGIN));
}

// Reads the fake plugin's own books.
inline long fake_number(const char* function, const char* argument) {
  void* library = dlopen(TPUPILOT_FAKE_PLUGIN, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) throw std::runtime_error("the fake plugin is not loaded");
  const auto read = reinterpret_cast<long (*)(const char*)>(dlsym(library, function));
  const long value = read(argument);
  dlclose(library);
  return value;
}
inline long fake_live(const char* kind) { return fake_number("fake_pjrt_live", kind); }
inline long fake_calls(const char* function) { return fake_number("fake_pjrt_calls", function); }

inline void expect_no_leaks() {
  for (const char* kind : {"buffers", "events", "errors", "executables"}) EXPECT_EQ(fake_live(kind), 0) << kind;
}

// x + y of one type, as StableHLO text: `add_program("4xf32")`.
inline std::string add_program(const std::string& type) {
  const std::string t = "tensor<" + type + ">";
  return "module @add { func.func @main(%x: " + t + ", %y: " + t + ") -> " + t +
         " { %0 = \"stablehlo.add\"(%x, %y) : (" + t + ", " + t + ") -> " + t + " return %0 : " + t + " } }";
}

// Runs `statement` and returns the Error it throws; fails the test if it throws none.
template <class Statement>
pjrt::Error error_of(Statement&& statement) {
  try {
    statement();
  } catch (const pjrt::Error& error) {
    return error;
  }
  ADD_FAILURE() << "no pjrt::Error was thrown";
  return {pjrt::Error::Code::Ok, ""};
}

}  // namespace tpupilot::test
