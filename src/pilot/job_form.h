// What kind of job the reference ran: a check of something that the job does not have is not applicable.
#pragma once

#include "pilot/context.h"

namespace tpupilot::pilot {

struct JobForm {
  bool inference = false;   // forward(model, batch) instead of loss and optimizer
  bool optimizers = true;   // at least one
  bool updates = true;      // a step of either side changed a parameter
  bool own_format = false;  // checkpoint(state, path) and restore(path)
};

// NotJudgedError if the reference left no inputs.
JobForm job_form(const Context& context);

CheckResult not_applicable(std::string why);

}  // namespace tpupilot::pilot
