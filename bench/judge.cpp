// Speed and memory of the judge on files in the page cache, as the pilot uses it: reference and candidate in f32, the
// f64 run beside them.
//
//   ninja -C build judge_bench && build/bench/judge_bench [--mib 1024] [--rounds 7] [--dir /tmp] [--pair] [--threads 2]
//
// Bytes are the sizes of all files that are read: reference + candidate + f64 (4 + 4 + 8 bytes an element; --pair
// leaves the f64 file out: 4 + 4). Each round times, one after the other: SHA-256 alone (OpenSSL's EVP, one thread for
// each half of the bytes, pages already mapped), the comparison alone, and the comparison with SHA-256 of the same
// bytes. The figures are medians of the rounds. Wall time is what counts on a quiet machine. On a busy one the
// processor time is nearer to the truth ("by CPU": bytes over processor seconds per thread), and the ratio is taken
// within a round. The load average is printed with them. Memory is the largest resident anonymous and file-mapped size
// that a watching thread saw during the comparisons. The files are removed at the end.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "evidence/digest.h"
#include "numerics/judge_run.h"

namespace fs = std::filesystem;
using namespace tpupilot;

namespace {

struct Options {
  size_t mib = 1024;
  int rounds = 7;
  unsigned threads = 2;
  bool exact = true;
  fs::path folder = fs::temp_directory_path();
};

Options parse(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    if (name == "--pair") {
      options.exact = false;
      continue;
    }
    if (i + 1 == count)
      throw std::runtime_error("usage: judge_bench [--mib N] [--rounds N] [--threads N] [--dir D] [--pair]");
    const std::string value = arguments[++i];
    if (name == "--mib") options.mib = std::stoul(value);
    if (name == "--rounds") options.rounds = std::stoi(value);
    if (name == "--threads") options.threads = static_cast<unsigned>(std::stoul(value));
    if (name == "--dir") options.folder = value;
  }
  return options;
}

// Elements of each tensor: one that is a quarter of all, many of a layer's size, small ones between them.
std::vector<size_t> sizes(size_t elements) {
  std::vector<size_t> result = {elements / 4};
  for (size_t left = elements - elements / 4; left > 0;) {
    for (size_t size : {size_t{4} << 20, size_t{1000}, size_t{1} << 20, size_t{64}}) {
      result.push_back(std::min(left, size));
      left -= result.back();
      if (left == 0) break;
    }
  }
  return result;
}

// One pattern of values, repeated: a file of any size without as many random numbers.
struct Pattern {
  std::vector<float> reference, candidate;
  std::vector<double> exact;
};

Pattern make_pattern() {
  constexpr size_t count = size_t{4} << 20;
  Pattern pattern;
  std::mt19937_64 bits(1);
  std::normal_distribution<double> value(0, 1), error(0, 3e-8);
  for (size_t i = 0; i < count; ++i) {
    const double v = value(bits);
    pattern.exact.push_back(v);
    pattern.reference.push_back(static_cast<float>(v * (1 + error(bits))));
    pattern.candidate.push_back(static_cast<float>(v * (1 + error(bits))));
  }
  return pattern;
}

template <typename T>
void write_file(const fs::path& path, const std::vector<size_t>& sizes, const std::vector<T>& values) {
  std::string header = "{";
  size_t at = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::string begin = std::to_string(at), end = std::to_string(at += sizes[i] * sizeof(T));
    header += (i ? ",\"" : "\"") + std::to_string(i) + R"(":{"dtype":")" + (sizeof(T) == 8 ? "F64" : "F32") +
              R"(","shape":[)" + std::to_string(sizes[i]) + R"(],"data_offsets":[)" + begin + "," + end + "]}";
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::ofstream out(path, std::ios::binary);
  const uint64_t length = header.size();
  out.write(reinterpret_cast<const char*>(&length), 8) << header;
  for (size_t left : sizes) {  // as the worker writes: one tensor in one piece, which the kernel keeps in large pages
    while (left > 0) {
      const size_t count = std::min(left, values.size());
      out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(count * sizeof(T)));
      left -= count;
    }
  }
  if (!out) throw std::runtime_error("cannot write " + path.string());
}

struct Files {
  explicit Files(const Options& options) : folder(options.folder / ("judge-bench-" + std::to_string(::getpid()))) {
    fs::create_directories(folder);
    const Pattern pattern = make_pattern();
    const auto of = sizes((options.mib << 20) / (options.exact ? 16 : 8));
    write_file(folder / "reference", of, pattern.reference);
    write_file(folder / "candidate", of, pattern.candidate);
    if (options.exact) write_file(folder / "exact", of, pattern.exact);
    for (const char* name : {"reference", "candidate", "exact"}) {
      if (fs::exists(folder / name)) bytes += fs::file_size(folder / name);
    }
  }
  ~Files() { fs::remove_all(folder); }

  fs::path folder;
  size_t bytes = 0;
};

struct Seconds {
  double wall = 0, processor = 0;
};

template <typename Run>
Seconds timed(Run&& run) {
  const auto processor = [] {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  };
  const auto begun = std::chrono::steady_clock::now();
  const double before = processor();
  run();
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count(), processor() - before};
}

Seconds hash_alone(const Files& files) {
  std::vector<std::unique_ptr<numerics::MappedFile>> mapped;
  for (const char* name : {"reference", "candidate", "exact"}) {
    if (!fs::exists(files.folder / name)) continue;
    mapped.push_back(std::make_unique<numerics::MappedFile>(files.folder / name));
    mapped.back()->load(0, mapped.back()->bytes().size());
  }
  const auto hash = [&](size_t i) {
    evidence::Sha256 sha;
    sha.add(mapped[i]->bytes());
    return sha.hex();
  };
  return timed([&] {
    std::jthread other([&] { hash(mapped.size() - 1); });
    for (size_t i = 0; i + 1 < mapped.size(); ++i) hash(i);
  });
}

Seconds judge(const Files& files, const Options& options, bool with_hash) {
  return timed([&] {
    std::vector<std::unique_ptr<numerics::TensorFile>> opened;
    for (const char* name : {"reference", "candidate", "exact"}) {
      if (fs::exists(files.folder / name))
        opened.push_back(std::make_unique<numerics::TensorFile>(files.folder / name));
    }
    std::vector<numerics::Pair> pairs;
    for (const auto& [name, tensor] : opened[0]->tensors()) {
      pairs.push_back({tensor, opened[1]->tensors().at(name), std::nullopt, {1.3e-6, 1e-5, 2}});
      if (options.exact) pairs.back().exact = opened[2]->tensors().at(name);
    }
    std::vector<evidence::Sha256> hashes(opened.size());
    std::vector<numerics::Stream> streams;
    for (size_t i = 0; i < opened.size(); ++i) {
      streams.push_back({&opened[i]->file()});
      if (with_hash) streams.back().sink = [&hashes, i](std::string_view bytes) { hashes[i].add(bytes); };
    }
    for (const auto& judged : numerics::judge_pairs(pairs, streams, options.threads)) {
      if (!judged.passed) throw std::runtime_error("the judge stopped a good pair: " + judged.row.dump());
    }
    if (with_hash) std::for_each(hashes.begin(), hashes.end(), [](auto& hash) { hash.hex(); });
  });
}

// Of /proc/self/status, in MiB.
double resident(const char* which) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(which)) return std::stod(line.substr(std::strlen(which) + 1)) / 1024;
  }
  return 0;
}

class MemoryWatch {
 public:
  double anonymous = 0, mapped = 0;

 private:
  std::jthread thread_{[this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      anonymous = std::max(anonymous, resident("RssAnon:"));
      mapped = std::max(mapped, resident("RssFile:"));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }};
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print_load(const char* when) {
  double load[3] = {};
  getloadavg(load, 3);
  std::printf("load average %s: %.2f %.2f %.2f\n", when, load[0], load[1], load[2]);
}

void measure(const Options& options) {
  const Files files(options);
  const auto bytes = static_cast<double>(files.bytes);
  std::printf("%.0f MiB in %s, %u threads\n", bytes / (1 << 20),
              options.exact ? "reference (f32) + candidate (f32) + f64" : "reference (f32) + candidate (f32)",
              options.threads);
  print_load("before");
  std::map<std::string, std::vector<double>> figures;
  double anonymous = 0, mapped = 0;
  for (int round = 0; round < options.rounds; ++round) {
    const Seconds hash = hash_alone(files);
    Seconds compare, both;
    {
      const MemoryWatch watch;
      compare = judge(files, options, false);
      both = judge(files, options, true);
      anonymous = std::max(anonymous, watch.anonymous);
      mapped = std::max(mapped, watch.mapped);
    }
    const auto add = [&](const char* name, const Seconds& seconds, unsigned threads) {
      figures[std::string(name) + "/wall"].push_back(bytes / seconds.wall / 1e9);
      figures[std::string(name) + "/processor"].push_back(bytes * threads / seconds.processor / 1e9);
    };
    add("hash", hash, 2);
    add("compare", compare, options.threads);
    add("both", both, options.threads);
    figures["ratio/wall"].push_back(hash.wall / both.wall);
    figures["ratio/processor"].push_back(hash.processor / both.processor);
  }
  print_load("after");
  const auto of = [&](const std::string& name) { return median(figures.at(name)); };
  const auto line = [&](const char* text, const std::string& name, const char* unit) {
    std::printf("%-34s %6.2f %s (by CPU %6.2f)\n", text, of(name + "/wall"), unit, of(name + "/processor"));
  };
  line("SHA-256 alone, two threads", "hash", "GB/s");
  line("comparison alone", "compare", "GB/s");
  line("comparison and SHA-256", "both", "GB/s");
  line("  as a share of SHA-256 alone", "ratio", "    ");
  std::printf("memory: %.0f MiB anonymous, %.0f MiB mapped from files, at most\n", anonymous, mapped);
}

}  // namespace

int main(int count, char** arguments) {
  try {
    measure(parse(count, arguments));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
