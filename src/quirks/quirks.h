// What a plugin does differently from its kind, found by running small programs on it: the named flags of hlo::Target.
#pragma once

#include "cache/executable_cache.h"
#include "cache/note_store.h"
#include "hlo/target.h"
#include "pjrt/client.h"

namespace tpupilot::quirks {

// By the name that the plugin gives its platform. One that is not known gets the forms that assume least, a GPU's.
hlo::Platform platform_of(const pjrt::Client& client);

// Sets the flags of `target` to what the plugin does with programs that are compiled with `options`. An answer is kept
// in `notes` under the program's key, which names the plugin file and the processor: it is found out once a machine.
// A probe that the plugin cannot compile or run leaves its flag alone: the op that needs it will say so itself.
void probe(hlo::Target& target, pjrt::Client& client, cache::ExecutableCache& executables,
           const pjrt::CompileOptions& options, cache::NoteStore& notes);

}  // namespace tpupilot::quirks
