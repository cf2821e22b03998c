// A recorded tensor file as the judge reads it: mapped, and hashed in the same pass in which it is compared.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "evidence/digest.h"
#include "numerics/judge_run.h"
#include "pilot/context.h"

namespace tpupilot::pilot {

class EvidenceTensors {
 public:
  // NotJudgedError if the file is missing, or known to be damaged; numerics::Error if it is no tensor file.
  EvidenceTensors(const Context& context, const std::string& relative);

  // What the header says. Nothing of it may be believed before the hash is known: see judge_evidence.
  const std::map<std::string, numerics::TensorView>& tensors() const { return file_->tensors(); }

 private:
  friend std::vector<numerics::Judgement> judge_evidence(const std::vector<numerics::Pair>& pairs,
                                                         const std::vector<EvidenceTensors*>& files);
  numerics::Stream stream();
  void settle();

  const Context& context_;
  std::string relative_;
  std::optional<numerics::TensorFile> file_;
  std::optional<evidence::Sha256> hash_;  // none: it was taken before, and holds
};

// Judges pairs of tensors of these files, in the order of `pairs`. NotJudgedError if a file does not have the hash that
// the manifest recorded.
std::vector<numerics::Judgement> judge_evidence(const std::vector<numerics::Pair>& pairs,
                                                const std::vector<EvidenceTensors*>& files);

}  // namespace tpupilot::pilot
