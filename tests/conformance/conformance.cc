// Random accesses through MPI-IO, compared with a plain array of bytes.
//
//   mpiexec -n RANKS mpi_conformance [--seed S] [--first CASE] [--cases N] PREFIX
//
// Every rank draws the same cases from the seed, so each knows what all write and what its reads must find.
// One case is one round of writes by all ranks, each through a view and from memory of its own random
// datatypes, and one round of reads. Writers never overlap each other. A failure prints how to run it again.

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/conformance/layout.h"

namespace sluice::conformance {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr int64_t kRegion = 1 << 16;  // of one rank, when regions are apart
constexpr int kRoundsPerFile = 8;
constexpr int kMaxDepth = 4;

int below(Rng& rng, int end) {
  return static_cast<int>(rng.below(static_cast<uint64_t>(end)));
}

enum class Call {
  kAt,
  kAtAll,
  kPointer,
  kPointerAll,
  kAtBegin,
  kPointerBegin,
  kImmediateAt,
  kImmediatePointer,
  kImmediateAtAll,
  kImmediatePointerAll,
  kCount
};
const char* const kCallNames[] = {"at",        "at_all", "pointer",  "pointer_all", "at_all_begin",
                                  "all_begin", "iat",    "ipointer", "iat_all",     "iall"};

// One rank's part in one round.
struct Access {
  int64_t displacement = 0;
  Datatype element;  // the etype
  Datatype filetype;
  int64_t offset = 0;  // in etypes
  Datatype memory;
  int count = 0;

  int64_t bytes() const { return memory.layout().size() * count; }
  int64_t file_place(int64_t index) const {
    return displacement + filetype.layout().place(offset * element.layout().extent + index);
  }
};

Access random_access(Rng& rng, bool may_be_empty) {
  Access access;
  access.element = random_element(rng);
  access.filetype = random_type(rng, access.element, Use::kFile, below(rng, kMaxDepth));
  access.memory = random_type(rng, access.element, Use::kMemory, below(rng, kMaxDepth));
  access.count = may_be_empty && below(rng, 4) == 0 ? 0 : 1 + below(rng, 3);
  access.offset = below(rng, 5);
  return access;
}

// Writers are kept apart: each in a region of its own, or turn by turn through one pattern.
std::vector<Access> random_writes(Rng& rng, int ranks) {
  std::vector<Access> writes;
  if (below(rng, 2) == 0) {
    for (int rank = 0; rank < ranks; ++rank) {
      writes.push_back(random_access(rng, true));
      Access& access = writes.back();
      access.displacement = rank * kRegion + below(rng, 100);
      while (access.bytes() > 0 && access.file_place(access.bytes() - 1) >= (rank + 1) * kRegion &&
             access.count > 0)
        --access.count;
    }
    return writes;
  }
  const Datatype element = random_element(rng);
  const Datatype pattern = random_type(rng, element, Use::kFile, below(rng, kMaxDepth));
  const int64_t unit = element.layout().extent;
  const int64_t turn = (pattern.layout().end_byte() + unit - 1) / unit * unit + below(rng, 2) * unit;
  const int64_t displacement = below(rng, 100);
  for (int rank = 0; rank < ranks; ++rank) {
    Access access;
    access.element = random_element(rng);
    // Elements of another size would not fill the pattern evenly.
    while (access.element.layout().extent != unit) access.element = random_element(rng);
    access.filetype = with_extent(pattern, turn * ranks);
    access.displacement = displacement + rank * turn;
    access.memory = random_type(rng, access.element, Use::kMemory, below(rng, kMaxDepth));
    access.count = below(rng, 4);
    access.offset = below(rng, 5);
    writes.push_back(std::move(access));
  }
  return writes;
}

uint8_t written_byte(uint64_t seed, int rank, int64_t index) {
  uint64_t x = seed * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(rank) * 0xbf58476d1ce4e5b9u +
               static_cast<uint64_t>(index) * 0x94d049bb133111ebu;
  x ^= x >> 29;
  return static_cast<uint8_t>(x * 0xd6e8feb86659fd93u >> 56);
}

// Memory of an access: its bytes scattered by the memory type, and a margin around them.
class Memory {
 public:
  explicit Memory(const Access& access) : access_(access) {
    const Layout& layout = access.memory.layout();
    const int64_t copies = std::max(access.count, 1);
    first_ = layout.first_byte() + std::min<int64_t>(0, (copies - 1) * layout.extent);
    const int64_t end = layout.end_byte() + std::max<int64_t>(0, (copies - 1) * layout.extent);
    bytes_.assign(static_cast<size_t>(end - first_ + 2 * kMargin), kUntouched);
  }
  void* origin() { return bytes_.data() + kMargin - first_; }
  uint8_t& at(int64_t index) {
    return bytes_[static_cast<size_t>(access_.memory.layout().place(index) - first_ + kMargin)];
  }
  Bytes& bytes() { return bytes_; }

  static constexpr uint8_t kUntouched = 0xa5;

 private:
  static constexpr int64_t kMargin = 16;
  const Access& access_;
  int64_t first_ = 0;
  Bytes bytes_;
};

class Run {
 public:
  Run(std::string prefix, uint64_t seed) : prefix_(std::move(prefix)), seed_(seed) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  }

  void run(uint64_t first, uint64_t cases) {
    for (case_ = first; case_ < first + cases; ++case_) {
      // A file begins with its first case, so that each can be run alone.
      if (case_ % kRoundsPerFile == 0 || case_ == first) {
        if (case_ != first) end_file();
        begin_file();
      }
      one_case();
    }
    end_file();
  }

 private:
  [[noreturn]] void give_up(const std::string& what) {
    const unsigned long long first = case_ / kRoundsPerFile * kRoundsPerFile;
    std::fprintf(
        stderr,
        "conformance: case %llu, rank %d of %d: %s\n  [%s]\n  again: --seed %llu --first %llu --cases %llu\n",
        static_cast<unsigned long long>(case_), rank_, ranks_, what.c_str(), doing_.c_str(),
        static_cast<unsigned long long>(seed_), first, static_cast<unsigned long long>(case_) - first + 1);
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::abort();
  }
  void must(int code, const char* call) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    give_up(std::string(call) + " failed: " + std::string(text, static_cast<size_t>(length)));
  }

  MPI_Info random_hints(Rng& rng) {
    MPI_Info info;
    MPI_Info_create(&info);
    const std::array<const char*, 3> modes = {"automatic", "enable", "disable"};
    MPI_Info_set(info, "romio_cb_write", modes[rng.below(3)]);
    MPI_Info_set(info, "romio_cb_read", modes[rng.below(3)]);
    MPI_Info_set(info, "romio_ds_write", modes[rng.below(3)]);
    MPI_Info_set(info, "romio_ds_read", modes[rng.below(3)]);
    if (below(rng, 2) == 0)
      MPI_Info_set(info, "cb_buffer_size", std::to_string(1 << (8 + below(rng, 8))).c_str());
    if (below(rng, 2) == 0) MPI_Info_set(info, "cb_nodes", std::to_string(1 + below(rng, ranks_)).c_str());
    return info;
  }

  void begin_file() {
    SeededRng rng(seed_ * 1'000'003 + case_ / kRoundsPerFile);
    path_ = prefix_ + "conformance-" + std::to_string(case_ / kRoundsPerFile);
    doing_ = "opening";
    MPI_Info info = random_hints(rng);
    must(MPI_File_open(MPI_COMM_WORLD, path_.c_str(),
                       MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, info, &file_),
         "MPI_File_open");
    MPI_Info_free(&info);
    must(MPI_File_set_size(file_, 0), "MPI_File_set_size");
    atomic_ = below(rng, 5) == 0;
    must(MPI_File_set_atomicity(file_, atomic_ ? 1 : 0), "MPI_File_set_atomicity");
    model_.clear();
  }

  void end_file() {
    doing_ = "comparing the whole file";
    must(MPI_File_set_view(file_, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL), "MPI_File_set_view");
    MPI_Offset size = 0;
    must(MPI_File_get_size(file_, &size), "MPI_File_get_size");
    if (size != static_cast<MPI_Offset>(model_.size()))
      give_up("the size is " + std::to_string(size) + ", not " + std::to_string(model_.size()));
    Bytes all(model_.size() + 1);
    MPI_Status status;
    must(MPI_File_read_at_all(file_, 0, all.data(), static_cast<int>(all.size()), MPI_BYTE, &status),
         "MPI_File_read_at_all");
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    if (count != static_cast<int>(model_.size())) give_up("a read to the end has " + std::to_string(count));
    const auto differs = std::mismatch(model_.begin(), model_.end(), all.begin());
    if (differs.first != model_.end())
      give_up("byte " + std::to_string(differs.first - model_.begin()) + " of the file differs");
    must(MPI_File_close(&file_), "MPI_File_close");
  }

  void one_case() {
    SeededRng rng(seed_ * 7'919 + case_ * 104'729 + 1);
    write_round(rng);
    separate();
    if (below(rng, 6) == 0) resize(rng);
    read_round(rng);
    separate();
  }

  // What others wrote is seen after sync, barrier, sync.
  void separate() {
    doing_ = "sync, barrier, sync";
    if (!atomic_) must(MPI_File_sync(file_), "MPI_File_sync");
    MPI_Barrier(MPI_COMM_WORLD);
    if (!atomic_) must(MPI_File_sync(file_), "MPI_File_sync");
  }

  void resize(Rng& rng) {
    const auto size = rng.below(model_.size() + 1000);
    doing_ = "resizing to " + std::to_string(size);
    must(MPI_File_set_size(file_, static_cast<MPI_Offset>(size)), "MPI_File_set_size");
    model_.resize(size);
    separate();
  }

  std::string describe(Call call, bool writes, const Access& access) const {
    return std::string(writes ? "write " : "read ") + kCallNames[static_cast<int>(call)] + ", displacement " +
           std::to_string(access.displacement) + ", etype of " +
           std::to_string(access.element.layout().extent) + ", filetype of " +
           std::to_string(access.filetype.layout().size()) + " bytes in " +
           std::to_string(access.filetype.layout().extent) + ", offset " + std::to_string(access.offset) +
           ", " + std::to_string(access.count) + " of " + std::to_string(access.memory.layout().size()) +
           " bytes of memory" + (atomic_ ? ", atomic" : "");
  }

  void set_view(const Access& access) {
    must(MPI_File_set_view(file_, access.displacement, access.element.get(), access.filetype.get(), "native",
                           MPI_INFO_NULL),
         "MPI_File_set_view");
  }

  void check_types(const Access& access) {
    if (!agrees_with_pack(access.filetype) || !agrees_with_pack(access.memory))
      give_up("MPI_Pack and the model of the datatype differ");
  }

  void write_round(Rng& rng) {
    const auto call = static_cast<Call>(below(rng, static_cast<int>(Call::kCount)));
    const std::vector<Access> writes = random_writes(rng, ranks_);
    const Access& mine = writes[rank_];
    doing_ = describe(call, true, mine);
    check_types(mine);
    Memory memory(mine);
    for (int64_t i = 0; i < mine.bytes(); ++i) memory.at(i) = written_byte(seed_ + case_, rank_, i);
    const Bytes before = memory.bytes();
    set_view(mine);
    MPI_Status status;
    transfer(call, true, mine, memory.origin(), status);
    if (memory.bytes() != before) give_up("a write changed the program's memory");
    check_status(mine, mine.bytes(), status);
    for (int rank = 0; rank < ranks_; ++rank) {
      const Access& access = writes[rank];
      for (int64_t i = 0; i < access.bytes(); ++i) {
        const auto at = static_cast<size_t>(access.file_place(i));
        if (at >= model_.size()) model_.resize(at + 1);
        model_[at] = written_byte(seed_ + case_, rank, i);
      }
    }
  }

  void read_round(Rng& rng) {
    const auto call = static_cast<Call>(below(rng, static_cast<int>(Call::kCount)));
    // Views may overlap, and reach beyond the end.
    std::vector<Access> reads;
    for (int rank = 0; rank < ranks_; ++rank) {
      reads.push_back(random_access(rng, true));
      const auto reach = static_cast<int>(model_.size()) + 64;
      reads.back().displacement = below(rng, 3) == 0 ? below(rng, reach) : below(rng, 200);
    }
    const Access& mine = reads[rank_];
    doing_ = describe(call, false, mine);
    check_types(mine);
    Memory memory(mine);
    Memory expected(mine);
    int64_t there = 0;
    while (there < mine.bytes() && mine.file_place(there) < static_cast<int64_t>(model_.size())) {
      expected.at(there) = model_[static_cast<size_t>(mine.file_place(there))];
      ++there;
    }
    set_view(mine);
    MPI_Status status;
    transfer(call, false, mine, memory.origin(), status);
    check_status(mine, there, status);
    const auto differs =
        std::mismatch(expected.bytes().begin(), expected.bytes().end(), memory.bytes().begin());
    if (differs.first != expected.bytes().end())
      give_up("byte " + std::to_string(differs.first - expected.bytes().begin()) + " of memory is " +
              std::to_string(*differs.second) + ", not " + std::to_string(*differs.first) + "; " +
              std::to_string(there) + " bytes are there");
  }

  void check_status(const Access& access, int64_t bytes, const MPI_Status& status) {
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    if (count != bytes)
      give_up("the status counts " + std::to_string(count) + " bytes of " + std::to_string(access.bytes()) +
              ", not " + std::to_string(bytes));
  }

  void transfer(Call call, bool writes, const Access& access, void* memory, MPI_Status& status) {
    const MPI_Datatype type = access.memory.get();
    const int count = access.count;
    const bool by_pointer = call == Call::kPointer || call == Call::kPointerAll ||
                            call == Call::kPointerBegin || call == Call::kImmediatePointer ||
                            call == Call::kImmediatePointerAll;
    if (by_pointer) must(MPI_File_seek(file_, access.offset, MPI_SEEK_SET), "MPI_File_seek");
    MPI_Request request = MPI_REQUEST_NULL;
    switch (call) {
      case Call::kAt:
        must(writes ? MPI_File_write_at(file_, access.offset, memory, count, type, &status)
                    : MPI_File_read_at(file_, access.offset, memory, count, type, &status),
             "the transfer");
        break;
      case Call::kAtAll:
        must(writes ? MPI_File_write_at_all(file_, access.offset, memory, count, type, &status)
                    : MPI_File_read_at_all(file_, access.offset, memory, count, type, &status),
             "the transfer");
        break;
      case Call::kPointer:
        must(writes ? MPI_File_write(file_, memory, count, type, &status)
                    : MPI_File_read(file_, memory, count, type, &status),
             "the transfer");
        break;
      case Call::kPointerAll:
        must(writes ? MPI_File_write_all(file_, memory, count, type, &status)
                    : MPI_File_read_all(file_, memory, count, type, &status),
             "the transfer");
        break;
      case Call::kAtBegin:
        must(writes ? MPI_File_write_at_all_begin(file_, access.offset, memory, count, type)
                    : MPI_File_read_at_all_begin(file_, access.offset, memory, count, type),
             "the beginning");
        must(writes ? MPI_File_write_at_all_end(file_, memory, &status)
                    : MPI_File_read_at_all_end(file_, memory, &status),
             "the end");
        break;
      case Call::kPointerBegin:
        must(writes ? MPI_File_write_all_begin(file_, memory, count, type)
                    : MPI_File_read_all_begin(file_, memory, count, type),
             "the beginning");
        must(writes ? MPI_File_write_all_end(file_, memory, &status)
                    : MPI_File_read_all_end(file_, memory, &status),
             "the end");
        break;
      case Call::kImmediateAt:
        must(writes ? MPI_File_iwrite_at(file_, access.offset, memory, count, type, &request)
                    : MPI_File_iread_at(file_, access.offset, memory, count, type, &request),
             "the start");
        break;
      case Call::kImmediatePointer:
        must(writes ? MPI_File_iwrite(file_, memory, count, type, &request)
                    : MPI_File_iread(file_, memory, count, type, &request),
             "the start");
        break;
      case Call::kImmediateAtAll:
        must(writes ? MPI_File_iwrite_at_all(file_, access.offset, memory, count, type, &request)
                    : MPI_File_iread_at_all(file_, access.offset, memory, count, type, &request),
             "the start");
        break;
      default:
        must(writes ? MPI_File_iwrite_all(file_, memory, count, type, &request)
                    : MPI_File_iread_all(file_, memory, count, type, &request),
             "the start");
    }
    if (call >= Call::kImmediateAt) must(MPI_Wait(&request, &status), "MPI_Wait");
    if (by_pointer) check_pointer(access);
  }

  // The individual pointer stands behind what was asked for, in etypes.
  void check_pointer(const Access& access) {
    MPI_Offset position = 0;
    must(MPI_File_get_position(file_, &position), "MPI_File_get_position");
    const int64_t behind = access.offset + access.bytes() / access.element.layout().extent;
    if (position != behind)
      give_up("the file pointer is at " + std::to_string(position) + ", not " + std::to_string(behind));
  }

  const std::string prefix_;
  const uint64_t seed_;
  int rank_ = 0;
  int ranks_ = 0;
  uint64_t case_ = 0;
  std::string path_;
  std::string doing_;
  MPI_File file_ = MPI_FILE_NULL;
  bool atomic_ = false;
  Bytes model_;
};

}  // namespace
}  // namespace sluice::conformance

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  unsigned long long seed = 1, first = 0, cases = 100;
  int at = 1;
  for (; at + 1 < argc && std::strncmp(argv[at], "--", 2) == 0; at += 2) {
    unsigned long long* const value = std::strcmp(argv[at], "--seed") == 0    ? &seed
                                      : std::strcmp(argv[at], "--first") == 0 ? &first
                                      : std::strcmp(argv[at], "--cases") == 0 ? &cases
                                                                              : nullptr;
    if (value == nullptr) break;
    *value = std::strtoull(argv[at + 1], nullptr, 10);
  }
  if (at != argc - 1) {
    std::fprintf(stderr, "use: mpi_conformance [--seed S] [--first CASE] [--cases N] PREFIX\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) std::printf("conformance: seed %llu, cases %llu to %llu\n", seed, first, first + cases - 1);
  sluice::conformance::Run(argv[at], seed).run(first, cases);
  if (rank == 0) std::printf("conformance: %llu cases right\n", cases);
  MPI_Finalize();
  return 0;
}
