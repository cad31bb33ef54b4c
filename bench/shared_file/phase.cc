#include "bench/shared_file/phase.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

namespace sluice::bench {
namespace {

class MpiFile final : public BenchFile {
 public:
  MpiFile(const SharedFileOptions& options, const std::string& path, int mode)
      : path_(path), collective_(options.collective) {
    MPI_Info info = make_info(options.hints);
    const MPI_Comm comm = options.file_per_process ? MPI_COMM_SELF : MPI_COMM_WORLD;
    check_mpi(MPI_File_open(comm, path.c_str(), mode, info, &file_), "open " + path);
    if (info != MPI_INFO_NULL) MPI_Info_free(&info);
  }
  void write(uint64_t offset, const void* data, uint64_t bytes) override {
    MPI_Status status;
    check_mpi((collective_ ? MPI_File_write_at_all : MPI_File_write_at)(
                  file_, static_cast<MPI_Offset>(offset), data, static_cast<int>(bytes), MPI_BYTE, &status),
              "write " + path_);
    check_count(status, bytes, "write");
  }
  void read(uint64_t offset, void* data, uint64_t bytes) override {
    MPI_Status status;
    check_mpi((collective_ ? MPI_File_read_at_all : MPI_File_read_at)(
                  file_, static_cast<MPI_Offset>(offset), data, static_cast<int>(bytes), MPI_BYTE, &status),
              "read " + path_);
    check_count(status, bytes, "read");
  }
  void sync() override { check_mpi(MPI_File_sync(file_), "sync " + path_); }
  void close() override { check_mpi(MPI_File_close(&file_), "close " + path_); }

 private:
  void check_count(const MPI_Status& status, uint64_t bytes, const char* what) const {
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    if (static_cast<uint64_t>(count) != bytes) give_up(what + (" " + path_), "short transfer");
  }

  const std::string path_;
  const bool collective_;
  MPI_File file_ = MPI_FILE_NULL;
};

class PosixFile final : public BenchFile {
 public:
  PosixFile(const std::string& path, int flags) : path_(path), fd_(::open(path.c_str(), flags, 0666)) {
    if (fd_ < 0) give_up("open " + path, std::strerror(errno));
  }
  void write(uint64_t offset, const void* data, uint64_t bytes) override {
    for (uint64_t done = 0; done < bytes;) {
      const ssize_t now = ::pwrite(fd_, static_cast<const char*>(data) + done, bytes - done,
                                   static_cast<off_t>(offset + done));
      if (now <= 0) give_up("write " + path_, std::strerror(errno));
      done += static_cast<uint64_t>(now);
    }
  }
  void read(uint64_t offset, void* data, uint64_t bytes) override {
    for (uint64_t done = 0; done < bytes;) {
      const ssize_t now =
          ::pread(fd_, static_cast<char*>(data) + done, bytes - done, static_cast<off_t>(offset + done));
      if (now < 0) give_up("read " + path_, std::strerror(errno));
      if (now == 0) give_up("read " + path_, "the file is too short");
      done += static_cast<uint64_t>(now);
    }
  }
  void sync() override {
    if (::fsync(fd_) != 0) give_up("sync " + path_, std::strerror(errno));
  }
  void close() override {
    if (::close(fd_) != 0) give_up("close " + path_, std::strerror(errno));
  }

 private:
  const std::string path_;
  const int fd_;
};

std::unique_ptr<BenchFile> open_file(const SharedFileOptions& options, uint32_t rank, bool writing) {
  const std::string path = options.path_of(rank);
  if (options.api == Api::kPosix)
    return std::make_unique<PosixFile>(path, writing ? O_WRONLY | O_CREAT : O_RDONLY);
  return std::make_unique<MpiFile>(options, path,
                                   writing ? MPI_MODE_WRONLY | MPI_MODE_CREATE : MPI_MODE_RDONLY);
}

void fill(std::vector<uint64_t>& buffer, uint32_t rank, uint64_t byte_of_rank, uint64_t repetition) {
  for (size_t i = 0; i < buffer.size(); ++i)
    buffer[i] = pattern_word(rank, byte_of_rank + i * sizeof(uint64_t), repetition);
}

uint64_t count_wrong(const std::vector<uint64_t>& buffer, uint32_t rank, uint64_t byte_of_rank,
                     uint64_t repetition) {
  uint64_t wrong = 0;
  for (size_t i = 0; i < buffer.size(); ++i) {
    const uint64_t wanted = pattern_word(rank, byte_of_rank + i * sizeof(uint64_t), repetition);
    wrong += buffer[i] != wanted ? sizeof(uint64_t) : 0;
  }
  return wrong;
}

PhaseTimes together(const Stamps& mine, const char* access, uint64_t repetition, uint64_t wrong) {
  const Spans all = spans_of_all(mine);
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  return {access, repetition, all, wrong};
}

}  // namespace

PhaseTimes write_phase(const SharedFileOptions& options, const Job& job, uint64_t repetition) {
  std::vector<uint64_t> buffer(options.transfer_bytes / sizeof(uint64_t));
  // With a comparison each transfer has bytes of its own; without one, like IOR, the same bytes go again.
  const bool own_bytes = options.check_write || options.check_read;
  fill(buffer, job.rank, 0, repetition);
  MPI_Barrier(MPI_COMM_WORLD);
  Stamps stamps;
  stamps.open = MPI_Wtime();
  const auto file = open_file(options, job.rank, /*writing=*/true);
  stamps.opened = MPI_Wtime();
  for (uint64_t t = 0; t < options.transfers_of_a_rank(); ++t) {
    if (own_bytes) fill(buffer, job.rank, t * options.transfer_bytes, repetition);
    file->write(options.offset_of(t, job.rank, job.ranks), buffer.data(), options.transfer_bytes);
  }
  if (options.sync) file->sync();
  stamps.moved = MPI_Wtime();
  file->close();
  stamps.closed = MPI_Wtime();
  return together(stamps, "write", repetition, 0);
}

PhaseTimes read_phase(const SharedFileOptions& options, const Job& job, uint64_t repetition, bool check) {
  std::vector<uint64_t> buffer(options.transfer_bytes / sizeof(uint64_t));
  const uint32_t writer = options.shift_ranks ? (job.rank + 1) % job.ranks : job.rank;
  uint64_t wrong = 0;
  double checking_s = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  Stamps stamps;
  stamps.open = MPI_Wtime();
  const auto file = open_file(options, writer, /*writing=*/false);
  stamps.opened = MPI_Wtime();
  for (uint64_t t = 0; t < options.transfers_of_a_rank(); ++t) {
    file->read(options.offset_of(t, writer, job.ranks), buffer.data(), options.transfer_bytes);
    if (!check) continue;
    const double begin = MPI_Wtime();
    wrong += count_wrong(buffer, writer, t * options.transfer_bytes, repetition);
    checking_s += MPI_Wtime() - begin;
  }
  stamps.moved = MPI_Wtime() - checking_s;
  file->close();
  stamps.closed = MPI_Wtime() - checking_s;
  return together(stamps, "read", repetition, wrong);
}

void remove_files(const SharedFileOptions& options, const Job& job) {
  MPI_Barrier(MPI_COMM_WORLD);
  if (options.file_per_process || job.rank == 0) {
    const std::string path = options.path_of(job.rank);
    if (options.api == Api::kPosix) {
      if (::unlink(path.c_str()) != 0 && errno != ENOENT) give_up("remove " + path, std::strerror(errno));
    } else {
      const int code = MPI_File_delete(path.c_str(), MPI_INFO_NULL);
      int error_class = MPI_SUCCESS;
      MPI_Error_class(code, &error_class);
      if (error_class != MPI_ERR_NO_SUCH_FILE) check_mpi(code, "remove " + path);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

}  // namespace sluice::bench
