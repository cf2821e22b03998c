#include "numerics/judge_run.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "numerics/comparison.h"

namespace tpupilot::numerics {

namespace {

constexpr size_t kPiece = size_t{128} << 10;  // bytes that a file hands out at once: they stay in the second cache
constexpr size_t kBacklog = 4;                // chunks that may wait before a file goes on
constexpr size_t kBehind = 4 * MappedFile::kWindow;  // bytes that stay mapped behind the place that was reached
constexpr size_t kWorthThreads = size_t{1} << 20;    // bytes from which a second thread is worth its start

struct FileState {
  const Stream* stream;
  size_t handed_out = 0, loaded = 0;  // of the file's bytes
  bool busy = false;                  // a thread is in its sink
  size_t reached = 0, released = 0;
};

// A side of a pair in a file.
struct Place {
  FileState* state;
  size_t begin, element;  // bytes
};

struct Work {
  std::unique_ptr<Comparison> comparison;
  size_t pair = 0, next = 0, unfinished = 0;
  bool again = false;  // a later pass: its bytes have all been handed out
  enum { Unprepared, Preparing, Prepared } state = Unprepared;
};

class JudgeRun {
 public:
  JudgeRun(const std::vector<Pair>& pairs, const std::vector<Stream>& streams) : pairs_(pairs), results_(pairs.size()) {
    for (const Stream& stream : streams) files_.push_back({&stream});
    places_.resize(pairs.size());
    for (size_t i = 0; i < pairs.size(); ++i) {
      find(pairs[i].reference, i);
      find(pairs[i].candidate, i);
      if (pairs[i].exact) find(*pairs[i].exact, i);
    }
    order_.resize(pairs.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    // As the bytes lie in the file, so that what was just handed out is compared next.
    std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      const char *left = pairs[a].reference.bytes.data(), *right = pairs[b].reference.bytes.data();
      return left == right ? a < b : std::less<>()(left, right);
    });
  }

  std::vector<Judgement> run(unsigned threads) {
    {
      std::vector<std::jthread> others;
      for (unsigned i = 1; i < threads; ++i) others.emplace_back([this] { work(); });
      work();
    }
    if (failure_) std::rethrow_exception(failure_);
    return std::move(results_);
  }

 private:
  struct Task {
    FileState* file = nullptr;  // hand out [begin, end) of it, or
    size_t begin = 0, end = 0;
    Work* work = nullptr;  // compare this chunk, or
    size_t chunk = 0;
    bool prepare = false;  // prepare the work
  };

  void find(const TensorView& tensor, size_t pair) {
    for (FileState& file : files_) {
      const std::string_view bytes = file.stream->file->bytes();
      if (tensor.bytes.empty() || tensor.bytes.data() < bytes.data() ||
          tensor.bytes.data() >= bytes.data() + bytes.size())
        continue;
      places_[pair].push_back(
          {&file, static_cast<size_t>(tensor.bytes.data() - bytes.data()), format_of(tensor.dtype).size});
    }
  }

  static size_t end_of(const Place& place, const Work& work, size_t chunk) {
    return place.begin + std::min((chunk + 1) * kChunk, work.comparison->elements()) * place.element;
  }

  void work() {
    const auto scratch = std::make_unique<Scratch>();
    std::unique_lock lock(mutex_);
    while (!failure_) {
      const std::optional<Task> task = next();
      if (!task) {
        if (over()) break;
        ++waiting_;
        changed_.wait(lock);
        --waiting_;
        continue;
      }
      lock.unlock();
      try {
        do_task(*task, *scratch);
        lock.lock();
        if (task->prepare)
          task->work->state = Work::Prepared;
        else if (task->work && --task->work->unfinished == 0)
          finish(task->work, lock);
      } catch (...) {
        if (!lock.owns_lock()) lock.lock();
        if (!failure_) failure_ = std::current_exception();
      }
      if (task->file) {
        task->file->busy = false;
        task->file->handed_out = task->end;
      }
      if (waiting_ > 0) changed_.notify_all();
    }
    changed_.notify_all();
  }

  bool over() const {
    return started_ == order_.size() && active_.empty() &&
           std::all_of(files_.begin(), files_.end(), [](const FileState& file) { return done(file) && !file.busy; });
  }

  // Under the lock. The file that is most behind goes on, because the others wait for it in the end; but not far ahead
  // of the comparison, which is to find the bytes in the cache. Else a chunk whose bytes have all been handed out, else
  // any file.
  std::optional<Task> next() {
    if (Work* const work = unprepared()) {
      work->state = Work::Preparing;
      return Task{nullptr, 0, 0, work, 0, true};
    }
    FileState* const behind = most_behind(false);
    for (const auto& work : active_) {
      if (work->next == chunks(*work)) continue;
      if (work->state != Work::Prepared || !ready(*work, work->next)) break;  // in order, as the bytes come
      if (behind && !behind->busy && !ready(*work, work->next + kBacklog)) break;
      return Task{nullptr, 0, 0, work.get(), work->next++};
    }
    FileState* const idle = most_behind(true);
    return idle ? std::optional(piece_of(*idle)) : std::nullopt;
  }

  // A tensor is prepared while the one before it is compared.
  Work* unprepared() {
    const auto left = [&] {
      return std::count_if(active_.begin(), active_.end(), [](const auto& work) { return work->next < chunks(*work); });
    };
    while (started_ < order_.size() && left() < 2) start();
    for (const auto& work : active_) {
      if (work->state == Work::Unprepared) return work.get();
    }
    return nullptr;
  }

  // Whether the bytes of a chunk (or of the last one there is) have been handed out.
  bool ready(const Work& work, size_t chunk) const {
    if (work.again) return true;
    return std::all_of(places_[work.pair].begin(), places_[work.pair].end(), [&](const Place& place) {
      return !place.state->stream->sink || place.state->handed_out >= end_of(place, work, chunk);
    });
  }

  static size_t size(const FileState& file) { return file.stream->file->bytes().size(); }
  static bool done(const FileState& file) { return !file.stream->sink || file.handed_out == size(file); }

  // The file (that is not busy) of which the smallest share has been handed out; null if there is none left.
  FileState* most_behind(bool idle) {
    FileState* found = nullptr;
    const auto share = [](const FileState& file) {
      return static_cast<double>(file.handed_out) / static_cast<double>(size(file));
    };
    for (FileState& file : files_) {
      if (!done(file) && !(idle && file.busy) && (!found || share(file) < share(*found))) found = &file;
    }
    return found;
  }

  Task piece_of(FileState& file) {
    file.busy = true;
    return Task{&file, file.handed_out, std::min(file.handed_out + kPiece, size(file))};
  }

  static size_t chunks(const Work& work) { return work.comparison->chunks(); }

  // The next tensor with elements; one without is judged at once.
  void start() {
    while (started_ < order_.size()) {
      const size_t pair = order_[started_++];
      auto work = std::make_unique<Work>();
      work->pair = pair;
      work->comparison = std::make_unique<Comparison>(pairs_[pair], pages());
      work->unfinished = chunks(*work);
      if (work->unfinished == 0) {
        results_[pair] = work->comparison->judgement();
        continue;
      }
      active_.push_back(std::move(work));
      return;
    }
  }

  void do_task(const Task& task, Scratch& scratch) {
    if (task.prepare) return task.work->comparison->prepare();
    return task.file ? hand_out(task) : compare(task, scratch);
  }

  void hand_out(const Task& task) {
    FileState& file = *task.file;
    const MappedFile& bytes = *file.stream->file;
    if (task.end > file.loaded) {
      const size_t end = (task.end + MappedFile::kWindow - 1) / MappedFile::kWindow * MappedFile::kWindow;
      bytes.load(file.loaded, end);
      file.loaded = end;
    }
    file.stream->sink(bytes.bytes().substr(task.begin, task.end - task.begin));
    release_behind(file, task.end);
  }

  void compare(const Task& task, Scratch& scratch) {
    for (const Place& place : places_[task.work->pair]) {
      if (place.state->stream->sink && !task.work->again) continue;  // already loaded
      const size_t begin = place.begin + task.chunk * kChunk * place.element,
                   end = end_of(place, *task.work, task.chunk);
      place.state->stream->file->load(begin, end);
    }
    task.work->comparison->work(task.chunk, scratch);
    for (const Place& place : places_[task.work->pair]) {
      const size_t end = end_of(place, *task.work, task.chunk);
      if (!task.work->again && !place.state->stream->sink)
        release_behind(*place.state, end);
      else
        release_again(*place.state, place.begin + task.chunk * kChunk * place.element, end);
    }
  }

  // What lies well behind is no longer needed; whoever needs it all the same maps it again.
  void release_behind(FileState& file, size_t reached) {
    size_t begin = 0, end = 0;
    {
      const std::lock_guard lock(release_);
      file.reached = std::max(file.reached, reached);
      if (file.reached < file.released + 2 * kBehind) return;
      begin = file.released;
      end = file.released = (file.reached - kBehind) / MappedFile::kWindow * MappedFile::kWindow;
    }
    file.stream->file->release(begin, end);
  }

  // What was released before a comparison came, and was mapped again for it. Others may still be in the window before.
  static void release_again(const FileState& file, size_t begin, size_t end) {
    constexpr size_t window = MappedFile::kWindow;
    const size_t border = end / window * window;
    if (begin < border && border >= 3 * window) file.stream->file->release(border - 3 * window, border - window);
  }

  // The lock is held when called and when done; not meanwhile.
  void finish(Work* work, std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    const bool again = work->comparison->next_pass();
    Judgement judged;
    if (!again) judged = work->comparison->judgement();
    lock.lock();
    if (again) {
      work->again = true;
      work->next = 0;
      work->unfinished = chunks(*work);
      return;
    }
    results_[work->pair] = std::move(judged);
    std::erase_if(active_, [&](const auto& each) { return each.get() == work; });
  }

  // For what a comparison looks at out of turn.
  Pages pages() {
    const auto on_file = [this](std::string_view part, auto&& act) {
      for (const FileState& file : files_) {
        const std::string_view bytes = file.stream->file->bytes();
        if (part.data() < bytes.data() || part.data() >= bytes.data() + bytes.size()) continue;
        const auto begin = static_cast<size_t>(part.data() - bytes.data());
        act(*file.stream->file, begin, begin + part.size());
      }
    };
    return {[on_file](std::string_view part) {
              on_file(part, [](const MappedFile& file, size_t begin, size_t end) { file.load(begin, end); });
            },
            [on_file](std::string_view part) {
              on_file(part, [](const MappedFile& file, size_t begin, size_t end) {
                constexpr size_t window = MappedFile::kWindow;
                file.release(begin / window * window, (end + window - 1) / window * window);
              });
            }};
  }

  const std::vector<Pair>& pairs_;
  std::deque<FileState> files_;
  std::vector<std::vector<Place>> places_;  // by pair
  std::vector<size_t> order_;
  std::mutex mutex_, release_;  // all below; FileState::reached and released
  std::condition_variable changed_;
  unsigned waiting_ = 0;
  size_t started_ = 0;
  std::deque<std::unique_ptr<Work>> active_;
  std::vector<Judgement> results_;
  std::exception_ptr failure_;
};

size_t bytes_of(const std::vector<Pair>& pairs, const std::vector<Stream>& streams) {
  size_t bytes = 0;
  for (const Pair& pair : pairs) bytes += pair.reference.bytes.size() + pair.candidate.bytes.size();
  for (const Stream& stream : streams) bytes += stream.sink ? stream.file->bytes().size() : 0;
  return bytes;
}

}  // namespace

std::vector<Judgement> judge_pairs(const std::vector<Pair>& pairs, const std::vector<Stream>& streams,
                                   unsigned threads) {
  if (threads == 0)
    threads = bytes_of(pairs, streams) < kWorthThreads ? 1 : std::max(1U, std::thread::hardware_concurrency());
  return JudgeRun(pairs, streams).run(threads);
}

}  // namespace tpupilot::numerics
