// Many tensors in one pass over their files: threads compare chunks, and hand each file's bytes to whoever hashes it
// while they are in the processor's cache.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "numerics/judge.h"

namespace tpupilot::numerics {

// A file that the tensors of a run lie in.
struct Stream {
  const MappedFile* file;
  // Called with all bytes of the file, once and in order, by one thread at a time. Null: nobody wants them.
  std::function<void(std::string_view)> sink = nullptr;
};

// In the order of `pairs`. The result does not depend on the number of threads; 0 = as many as there are processors.
// Pairs whose tensors lie in no stream are in memory. Error if a file cannot be read to its end.
std::vector<Judgement> judge_pairs(const std::vector<Pair>& pairs, const std::vector<Stream>& streams,
                                   unsigned threads = 0);

}  // namespace tpupilot::numerics
