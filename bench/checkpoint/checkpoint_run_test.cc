// Runs the benchmark under mpiexec over stock MPI-IO and looks at what it leaves and says.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/os.h"
#include "bench/checkpoint/format.h"

namespace sluice::bench {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

constexpr size_t kMaxFileBytes = size_t{64} << 20;

struct Outcome {
  int exit_code = -1;
  std::string output;  // stdout and stderr
};

// `sh -c command`, its output readable line by line.
class Job {
 public:
  explicit Job(const std::string& command) : pipe_(popen((command + " 2>&1").c_str(), "r")) {}
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() {
    if (pipe_ != nullptr) pclose(pipe_);
  }

  // Empty at the end of the output.
  std::string line() {
    std::string text;
    for (int c = std::fgetc(pipe_); c != EOF; c = std::fgetc(pipe_)) {
      text += static_cast<char>(c);
      if (c == '\n') break;
    }
    return text;
  }

  // The first line that begins so; empty when there is none.
  std::string line_beginning(const std::string& words) {
    for (std::string text = line(); !text.empty(); text = line()) {
      if (text.starts_with(words)) return text;
    }
    return {};
  }

  Outcome finish() {
    Outcome outcome;
    for (std::string text = line(); !text.empty(); text = line()) outcome.output += text;
    const int status = pclose(std::exchange(pipe_, nullptr));
    outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return outcome;
  }

 private:
  FILE* pipe_;
};

// MPI may add words of its own about a run that failed.
int complaints(const std::string& output) {
  std::istringstream lines(output);
  int count = 0;
  for (std::string line; std::getline(lines, line);) count += line.starts_with("checkpoint: ") ? 1 : 0;
  return count;
}

class Checkpoint : public testing::Test {
 protected:
  Checkpoint() : dir_(TemporaryDirectory::create("sluice-checkpoint").value()) {}

  std::filesystem::path file(const std::string& name) const { return dir_.path() / name; }

  std::string command(int ranks, const std::string& options, const std::string& wrapper = {},
                      const std::string& pattern = "c.%d.h5") const {
    return "timeout -s KILL 100 " SLUICE_MPIEXEC " -n " + std::to_string(ranks) + " " + wrapper +
           " " SLUICE_CHECKPOINT " --path " + file(pattern).string() + " " + options;
  }
  Outcome run(int ranks, const std::string& options) const { return Job(command(ranks, options)).finish(); }

  void expect_done(const Outcome& outcome) const { EXPECT_EQ(outcome.exit_code, 0) << outcome.output; }

  std::string contents(const std::string& name) const { return read_file(file(name), kMaxFileBytes).value(); }

  TemporaryDirectory dir_;
};

std::string as_text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The bytes of cells [first, first + count) of a variable.
std::string expected_bytes(const Mesh& mesh, const char* variable, uint64_t first, uint64_t count) {
  const auto cells = mesh.cells({CellIndex(first), CellIndex(first + count)});
  return as_text(variable_bytes(mesh, 1, cells, *variable_named(variable)));
}

TEST_F(Checkpoint, what_four_ranks_wrote_any_number_of_ranks_verify) {
  expect_done(run(4, "--steps 2 --json " + file("w.json").string()));
  for (const int ranks : {1, 3}) {
    const Outcome verified = run(ranks, "--steps 2 --verify --json " + file("v.json").string());
    expect_done(verified);
    EXPECT_THAT(verified.output, HasSubstr("step 1: " + file("c.1.h5").string() + ": 6 of 6 variables"));
  }
  const auto written = nlohmann::json::parse(contents("w.json"));
  EXPECT_EQ(written.at("ranks"), 4);
  EXPECT_EQ(written.at("steps").size(), 2U);
  EXPECT_EQ(written.at("steps")[1].at("cells"), Mesh({128, 2, 1}).cell_count());
  EXPECT_EQ(written.at("steps")[1].at("bytes"), Mesh({128, 2, 1}).cell_count() * kCellBytes);
  EXPECT_EQ(written.at("steps")[1].at("file"), file("c.1.h5").string());
  EXPECT_LT(written.at("steps")[0].at("cells_of_a_rank").at("least"),
            written.at("steps")[0].at("cells_of_a_rank").at("most"));
  EXPECT_GT(written.at("total").at("seconds").at("write"), 0.0);
  const auto verified = nlohmann::json::parse(contents("v.json"));
  EXPECT_EQ(verified.at("mode"), "verify");
  EXPECT_EQ(verified.at("total").at("variables"), 12);
}

TEST_F(Checkpoint, chunked_datasets_and_every_flush_policy_hold_the_same_values) {
  for (const std::string options :
       {"--flush none", "--flush variable --chunk 1000", "--chunk 1000000 --hint romio_cb_write=disable"}) {
    expect_done(run(3, "--steps 1 " + options));
    expect_done(run(2, "--steps 1 --verify"));
  }
}

TEST_F(Checkpoint, one_flipped_bit_is_found_and_named) {
  expect_done(run(4, "--steps 1"));
  const Mesh mesh({128, 2, 0});
  const uint64_t cell = mesh.cell_count() / 3;
  std::string bytes = contents("c.0.h5");
  const size_t at = bytes.find(expected_bytes(mesh, "U", cell, 4));
  ASSERT_NE(at, std::string::npos);
  bytes[at + 3] = static_cast<char>(bytes[at + 3] ^ 0x10);
  ASSERT_TRUE(replace_file(file("c.0.h5"), bytes));
  for (const int ranks : {1, 3}) {
    const Outcome outcome = run(ranks, "--steps 1 --verify");
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.output, HasSubstr(file("c.0.h5").string() + ": dataset /state/U differs at cell " +
                                          std::to_string(cell) + ": "));
    EXPECT_THAT(outcome.output, HasSubstr("1 of " + std::to_string(mesh.cell_count()) + " cells differ"));
  }
}

TEST_F(Checkpoint, verifying_with_another_seed_or_size_fails) {
  expect_done(run(2, "--steps 1"));
  const Outcome seed = run(2, "--steps 1 --verify --seed 2");
  EXPECT_EQ(seed.exit_code, 1);
  EXPECT_THAT(seed.output, HasSubstr("/bootstrap says version 1, size 128, levels 2, step 0, seed 1"));
  EXPECT_EQ(run(1, "--steps 1 --verify --size 256").exit_code, 1);
}

TEST_F(Checkpoint, a_whole_file_is_no_synced_state_of_three_variables) {
  expect_done(run(2, "--steps 1"));
  const Outcome outcome = run(2, "--steps 1 --verify --synced-variables 3");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output,
              HasSubstr("dataset /state/H is whole, but only the first 3 variables were synced"));
  expect_done(run(2, "--steps 1 --verify --synced-variables 6"));
  expect_done(run(2, "--steps 1 --verify --synced-variables any"));
}

TEST_F(Checkpoint, variables_of_zero_bytes_count_as_unwritten) {
  expect_done(run(2, "--steps 1"));
  const Mesh mesh({128, 2, 0});
  std::string bytes = contents("c.0.h5");
  for (const char* name : {"H", "U", "V"}) {
    const std::string variable = expected_bytes(mesh, name, 0, mesh.cell_count());
    const size_t at = bytes.find(variable);
    ASSERT_NE(at, std::string::npos);
    bytes.replace(at, variable.size(), variable.size(), '\0');
  }
  ASSERT_TRUE(replace_file(file("c.0.h5"), bytes));
  const Outcome outcome = run(3, "--steps 1 --verify --synced-variables 3");
  expect_done(outcome);
  EXPECT_THAT(outcome.output, HasSubstr("3 of 6 variables"));
  const Outcome whole = run(3, "--steps 1 --verify");
  EXPECT_EQ(whole.exit_code, 1);
  EXPECT_THAT(whole.output, HasSubstr("dataset /state/H was never written"));
}

TEST_F(Checkpoint, a_missing_or_empty_file_holds_no_synced_variable) {
  expect_done(run(2, "--steps 1 --verify --synced-variables 0"));
  EXPECT_EQ(run(2, "--steps 1 --verify --synced-variables 1").exit_code, 1);
  ASSERT_TRUE(replace_file(file("c.0.h5"), ""));
  expect_done(run(2, "--steps 1 --verify --synced-variables any"));
}

TEST_F(Checkpoint, errors_of_hdf5_and_below_are_one_sentence_on_one_line) {
  const Outcome nowhere = Job(command(3, "--steps 1", {}, "no/such/c.%d.h5")).finish();
  EXPECT_EQ(nowhere.exit_code, 1);
  EXPECT_THAT(nowhere.output,
              HasSubstr("checkpoint: cannot create " + file("no/such/c.0.h5").string() + ": "));
  EXPECT_EQ(std::ranges::count(nowhere.output, '\n'), 1) << nowhere.output;
  const Outcome missing = run(3, "--steps 1 --verify");
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.output, HasSubstr("checkpoint: cannot open " + file("c.0.h5").string() + ": "));
  EXPECT_EQ(std::ranges::count(missing.output, '\n'), 1) << missing.output;
  ASSERT_TRUE(replace_file(file("c.0.h5"), std::string(5000, 'x')));
  const Outcome alien = run(2, "--steps 1 --verify");
  EXPECT_EQ(alien.exit_code, 1);
  EXPECT_EQ(std::ranges::count(alien.output, '\n'), 1) << alien.output;
}

// The shell ignores SIGXFSZ, so that writing past the limit is EFBIG, as a full disk would be ENOSPC. The
// limits leave room for MPI's own shared memory.
std::string with_file_limit(int limit_512_bytes) {
  return "sh -c 'trap \"\" XFSZ; ulimit -f " + std::to_string(limit_512_bytes) + "; exec \"$@\"' sh";
}

TEST_F(Checkpoint, a_file_that_cannot_grow_ends_the_run_with_one_error) {
  const Outcome outcome = Job(command(3, "--steps 1 --size 512", with_file_limit(12000))).finish();
  EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
  EXPECT_THAT(outcome.output,
              ContainsRegex("checkpoint: cannot write /state/U of .*c\\.0\\.h5.*File too large"));
  EXPECT_EQ(complaints(outcome.output), 1) << outcome.output;
}

TEST_F(Checkpoint, a_write_that_fails_on_some_ranks_only_does_not_hang) {
  const Outcome outcome = Job(command(3, "--steps 1 --size 512", with_file_limit(9000))).finish();
  EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
  EXPECT_THAT(outcome.output,
              ContainsRegex("checkpoint: cannot write /state/H of .*c\\.0\\.h5.*File too large"));
}

TEST_F(Checkpoint, options_that_make_no_sense_are_one_line_and_exit_code_two) {
  for (const std::string options : {"--size 100", "--kill-self 0:H:7", "--no-such-option"}) {
    const Outcome outcome = run(2, options);
    EXPECT_EQ(outcome.exit_code, 2) << options;
    EXPECT_EQ(std::ranges::count(outcome.output, '\n'), 1) << outcome.output;
  }
}

TEST_F(Checkpoint, help_is_printed_once_with_examples) {
  const Outcome outcome = run(2, "--help");
  expect_done(outcome);
  const size_t first = outcome.output.find("Examples:");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(outcome.output.find("Examples:", first + 1), std::string::npos);
}

TEST_F(Checkpoint, kill_self_ends_the_run_in_the_middle_of_that_step) {
  const Outcome outcome = run(3, "--steps 3 --flush variable --kill-self 1:U:2");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("step 0: "), ContainsRegex("KILL step 1 variable U rank 2 pid [0-9]+ "
                                                         "synced_variables 4")));
  EXPECT_EQ(outcome.output.find("step 1: "), std::string::npos) << outcome.output;
  EXPECT_FALSE(std::filesystem::exists(file("c.2.h5")));
  expect_done(run(2, "--steps 1 --verify"));
  // What stock MPI-IO leaves of the step is its own affair, but the half that was written is in it.
  const Mesh mesh({128, 2, 1});
  EXPECT_NE(contents("c.1.h5").find(expected_bytes(mesh, "U", 0, 100)), std::string::npos);
}

class PausedCheckpoint : public Checkpoint {
 protected:
  PausedCheckpoint() : fifo_(file("go").string()) {
    EXPECT_EQ(mkfifo(fifo_.c_str(), 0600), 0);
    // Held open for both, so that neither side waits for the other to appear.
    hold_ = open_file(fifo_, O_RDWR).value();
  }

  std::string options() const { return "--steps 2 --pause-at 1:H --pause-fifo " + fifo_; }

  std::string fifo_;
  UniqueFd hold_;
};

TEST_F(PausedCheckpoint, goes_on_when_told_to_and_finishes_whole) {
  Job job(command(2, options()));
  const std::string paused = job.line_beginning("PAUSED");
  EXPECT_THAT(paused, ContainsRegex("PAUSED step 1 variable H pids [0-9]+ [0-9]+ synced_variables 3"));
  ASSERT_EQ(write(hold_.get(), "x", 1), 1);
  expect_done(job.finish());
  expect_done(run(2, "--steps 2 --verify"));
}

TEST_F(PausedCheckpoint, can_be_killed_by_the_pid_it_printed) {
  Job job(command(2, options()));
  std::istringstream words(job.line_beginning("PAUSED step 1 variable H pids "));
  std::string word;
  for (int n = 0; n < 6; ++n) words >> word;
  pid_t first = 0;
  pid_t second = 0;
  ASSERT_TRUE(words >> first >> second);
  ASSERT_EQ(kill(second, SIGKILL), 0);
  EXPECT_NE(job.finish().exit_code, 0);
}

}  // namespace
}  // namespace sluice::bench
