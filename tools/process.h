#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/os.h"
#include "base/result.h"

// Starting other programs.
namespace sluice::tools {

// The directory this program's file is in.
Result<std::filesystem::path> program_directory();
// lib/libsluice_romio.so and its like, beside this program's bin/. kNotFound when it is not there.
Result<std::filesystem::path> library(const std::string& name);
// The first of these programs that PATH has.
std::optional<std::string> find_program(const std::vector<std::string>& names);

// Detached: a session of its own, nothing of ours open but `pass` (as descriptor 3), no LD_PRELOAD.
Result<pid_t> spawn_detached(const std::vector<std::string>& command, int pass);

// In our process group, with our descriptors 0 to 2 and the signal dispositions we were started with.
Result<pid_t> spawn_attached(const std::vector<std::string>& command);

// What a shell would call the exit code: 128 + N for signal N.
int shell_exit_code(int wait_status);

// A process by more than its number, which may be used again: open it while it is known to live. It need not
// be our child.
Result<UniqueFd> watch_process(pid_t pid);
// True when it ended in time.
bool wait_for_end(const UniqueFd& process, uint64_t timeout_ms);

// A pause between two looks at something that another process does.
void pause_ms(uint64_t ms);

}  // namespace sluice::tools
