#pragma once

#include "base/error.h"

// What `sluice` ends with. Scripts may rely on these.
namespace sluice::tools {

enum ExitCode : int {
  kOk = 0,
  kFailed = 1,     // something else went wrong
  kUsage = 2,      // the command line, or a value in it, makes no sense
  kNotFound = 3,   // a file, a pool or a directory that is not there
  kRefused = 4,    // it is there already, or contradicts what is there
  kNoService = 5,  // no service answers
  kNoSpace = 6,
  kNoPermission = 7,
  kDamaged = 8,  // bytes are not what was written, or are lost
  // Only of `sluice run`, which otherwise ends as its command did, or with kUsage or kRefused for its own
  // options.
  kRunNoService = 120,   // the service could not be started; the command did not run
  kRunNotDrained = 121,  // the command ended with 0, but its data is not on the storage targets yet
  kRunNoCommand = 122,   // mpirun could not be started
};

ExitCode exit_code_of(const Error& error);

}  // namespace sluice::tools
