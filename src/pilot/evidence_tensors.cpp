#include "pilot/evidence_tensors.h"

#include "numerics/error.h"
#include "pilot/run_state.h"

namespace tpupilot::pilot {

EvidenceTensors::EvidenceTensors(const Context& context, const std::string& relative)
    : context_(context), relative_(relative) {
  if (const auto wrong = context.run().damage_unread(relative)) {
    if (!wrong->empty()) throw NotJudgedError(*wrong);
  } else {
    hash_.emplace();
  }
  try {
    file_.emplace(context.folder() / relative);
  } catch (const numerics::Error&) {
    context.verified(relative);  // a file that was changed is told so
    throw;
  }
}

numerics::Stream EvidenceTensors::stream() {
  numerics::Stream stream{&file_->file()};
  if (hash_) stream.sink = [this](std::string_view bytes) { hash_->add(bytes); };
  return stream;
}

void EvidenceTensors::settle() {
  if (!hash_) return;
  const std::string wrong = context_.run().settle(relative_, hash_->hex());
  hash_.reset();
  if (!wrong.empty()) throw NotJudgedError(wrong);
}

std::vector<numerics::Judgement> judge_evidence(const std::vector<numerics::Pair>& pairs,
                                                const std::vector<EvidenceTensors*>& files) {
  std::vector<numerics::Stream> streams;
  streams.reserve(files.size());
  for (EvidenceTensors* file : files) streams.push_back(file->stream());
  auto judged = numerics::judge_pairs(pairs, streams);
  for (EvidenceTensors* file : files) file->settle();
  return judged;
}

}  // namespace tpupilot::pilot
