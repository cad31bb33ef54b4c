#include "bench/checkpoint/ranks.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstdio>
#include <thread>

namespace sluice::bench {
namespace {

constexpr size_t kMaxMessageBytes = 2048;

// What an Error is while it travels from one rank to the others.
struct ErrorMessage {
  ErrorCode code = ErrorCode::kInternal;
  std::array<char, kMaxMessageBytes> text{};
};

uint64_t reduce(const Ranks& ranks, uint64_t mine, MPI_Op op) {
  uint64_t all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, op, ranks.comm);
  return all;
}

Error mpi_error(int code, const std::string& doing) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  std::string message(text.data(), static_cast<size_t>(length));
  std::ranges::replace(message, '\n', ' ');
  return {ErrorCode::kIo, "cannot " + doing + ": " + message};
}

// On return the request is complete.
void complete_or_abort(const Ranks& ranks, MPI_Request* request, const Error& error) {
  const double begin = MPI_Wtime();
  for (;;) {
    int done = 0;
    MPI_Test(request, &done, MPI_STATUS_IGNORE);
    if (done != 0) return;
    if (MPI_Wtime() - begin < kAgreementLimit_s) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    std::fprintf(stderr, "checkpoint: %s (rank %u; others are still waiting in that call)\n",
                 error.message.c_str(), ranks.rank);
    MPI_Abort(ranks.comm, 1);
  }
}

}  // namespace

Ranks Ranks::of(MPI_Comm comm) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  return {comm, static_cast<uint32_t>(rank), static_cast<uint32_t>(size)};
}

Result<> agree(const Ranks& ranks, const Result<>& mine) {
  const int vote = mine ? INT_MAX : static_cast<int>(ranks.rank);
  int speaker = INT_MAX;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(&vote, &speaker, 1, MPI_INT, MPI_MIN, ranks.comm, &request);
  if (!mine) complete_or_abort(ranks, &request, mine.error());
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  if (speaker == INT_MAX) return {};
  ErrorMessage message;
  if (static_cast<int>(ranks.rank) == speaker) {
    message.code = mine.error().code;
    mine.error().message.copy(message.text.data(), message.text.size() - 1);
  }
  MPI_Bcast(&message, static_cast<int>(sizeof(message)), MPI_BYTE, speaker, ranks.comm);
  return fail(message.code, message.text.data());
}

uint64_t sum_over(const Ranks& ranks, uint64_t mine) {
  return reduce(ranks, mine, MPI_SUM);
}
uint64_t min_over(const Ranks& ranks, uint64_t mine) {
  return reduce(ranks, mine, MPI_MIN);
}
uint64_t max_over(const Ranks& ranks, uint64_t mine) {
  return reduce(ranks, mine, MPI_MAX);
}

void max_over(const Ranks& ranks, std::span<double> values) {
  MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_MAX,
                ranks.comm);
}

HintInfo::HintInfo(const std::vector<std::pair<std::string, std::string>>& hints) {
  if (hints.empty()) return;
  MPI_Info_create(&info_);
  for (const auto& [key, value] : hints) MPI_Info_set(info_, key.c_str(), value.c_str());
}

HintInfo::~HintInfo() {
  if (info_ != MPI_INFO_NULL) MPI_Info_free(&info_);
}

Result<bool> file_has_bytes(const Ranks& ranks, const std::string& path, MPI_Info info) {
  MPI_File file = MPI_FILE_NULL;
  const int opened = MPI_File_open(ranks.comm, path.c_str(), MPI_MODE_RDONLY, info, &file);
  if (opened != MPI_SUCCESS) {
    int error_class = 0;
    MPI_Error_class(opened, &error_class);
    if (error_class == MPI_ERR_NO_SUCH_FILE) return false;
    return fail(mpi_error(opened, "open " + path));
  }
  MPI_Offset size_bytes = 0;
  const int sized = MPI_File_get_size(file, &size_bytes);
  MPI_File_close(&file);
  if (sized != MPI_SUCCESS) return fail(mpi_error(sized, "read the size of " + path));
  return size_bytes > 0;
}

}  // namespace sluice::bench
