#include "bench/checkpoint/writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/checkpoint/fault.h"
#include "bench/checkpoint/h5.h"
#include "bench/checkpoint/mesh.h"

namespace sluice::bench {
namespace {

// Adds the time from its birth to its death.
class Lap {
 public:
  explicit Lap(double& seconds) : seconds_(seconds), begin_(MPI_Wtime()) {}
  Lap(const Lap&) = delete;
  Lap& operator=(const Lap&) = delete;
  ~Lap() { seconds_ += MPI_Wtime() - begin_; }

 private:
  double& seconds_;
  double begin_;
};

class StepWriter {
 public:
  StepWriter(const Ranks& ranks, const Options& options, uint64_t step)
      : ranks_(ranks),
        options_(options),
        step_(step),
        path_(options.path_at(step)),
        hints_(options.hints),
        mesh_(options.mesh_at(step)),
        share_(mesh_.writer_share(ranks.rank, ranks.size)),
        cells_(mesh_.cells(share_)) {}

  StepWriter(const StepWriter&) = delete;
  StepWriter& operator=(const StepWriter&) = delete;
  // A file that is still open met an error: closing it would flush again, and might make half of it visible.
  ~StepWriter() { file_.abandon(); }

  Result<WrittenStep> run();

 private:
  Result<> create();
  Result<> write_root();
  Result<> write_bootstrap();
  Result<> make_group(const Variable& variable);
  Result<H5Handle> make_dataset(const Variable& variable, const H5Handle& space);
  Result<> write_variable(VariableIndex index, const std::vector<std::byte>& bytes);
  Result<> write_part(const H5Handle& dataset, const Variable& variable, CellRange part,
                      const std::vector<std::byte>& bytes);
  Result<> flush();
  std::string doing(std::string_view verb, std::string_view object) const {
    return fmt::format("{} {} of {}", verb, object, path_);
  }

  const Ranks& ranks_;
  const Options& options_;
  uint64_t step_;
  std::string path_;
  HintInfo hints_;
  Mesh mesh_;
  CellRange share_;
  std::vector<Cell> cells_;
  H5Handle transfer_;
  H5Handle file_;
  StepSeconds seconds_;
};

Result<> write_attribute(hid_t object, const char* name, H5Types types, const void* value,
                         const std::string& doing) {
  auto space = h5_own(H5Screate(H5S_SCALAR), H5Sclose, doing);
  if (!space) return fail(space.error());
  auto attribute =
      h5_own(H5Acreate2(object, name, types.file, space->get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose, doing);
  if (!attribute) return fail(attribute.error());
  return h5_check(H5Awrite(attribute->get(), types.memory, value), doing);
}

Result<> StepWriter::create() {
  auto transfer = h5_collective_transfer();
  if (!transfer) return fail(transfer.error());
  transfer_ = std::move(*transfer);
  auto access = h5_parallel_access(ranks_.comm, hints_.get());
  if (!access) return fail(access.error());
  auto file = h5_own(H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access->get()), H5Fclose,
                     "create " + path_);
  if (!file) return fail(file.error());
  file_ = std::move(*file);
  if (auto written = write_root(); !written) return written;
  return write_bootstrap();
}

Result<> StepWriter::write_root() {
  const std::string what = doing("write", "the root attributes");
  auto text = h5_own(H5Tcopy(H5T_C_S1), H5Tclose, what);
  if (!text) return fail(text.error());
  if (auto sized = h5_check(H5Tset_size(text->get(), kFormatName.size()), what); !sized) return sized;
  if (auto done =
          write_attribute(file_.get(), "format", {text->get(), text->get()}, kFormatName.data(), what);
      !done) {
    return done;
  }
  return write_attribute(file_.get(), "version", {H5T_STD_U32LE, H5T_NATIVE_UINT32}, &kFormatVersion, what);
}

Result<> StepWriter::write_bootstrap() {
  const std::string what = doing("write", "/bootstrap");
  auto file_type = h5_bootstrap_file_type();
  if (!file_type) return fail(file_type.error());
  auto memory_type = h5_bootstrap_memory_type();
  if (!memory_type) return fail(memory_type.error());
  auto space = h5_own(H5Screate(H5S_SCALAR), H5Sclose, what);
  if (!space) return fail(space.error());
  auto dataset = h5_own(H5Dcreate2(file_.get(), "/bootstrap", file_type->get(), space->get(), H5P_DEFAULT,
                                   H5P_DEFAULT, H5P_DEFAULT),
                        H5Dclose, what);
  if (!dataset) return fail(dataset.error());
  // All ranks call, one has something to write.
  if (!ranks_.first() && H5Sselect_none(space->get()) < 0) return fail(h5_error(what));
  const Bootstrap bootstrap = bootstrap_of(mesh_, options_.seed);
  if (H5Dwrite(dataset->get(), memory_type->get(), space->get(), space->get(), transfer_.get(), &bootstrap) <
      0) {
    return fail(h5_error(what));
  }
  return dataset->close(what);
}

Result<> StepWriter::make_group(const Variable& variable) {
  const std::string what = doing("make", variable.group);
  auto group = h5_own(H5Gcreate2(file_.get(), variable.group.data(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                      H5Gclose, what);
  if (!group) return fail(group.error());
  const H5Types u64{H5T_STD_U64LE, H5T_NATIVE_UINT64};
  const uint64_t n_cells = mesh_.cell_count();
  if (auto done = write_attribute(group->get(), "step", u64, &step_, what); !done) return done;
  return write_attribute(group->get(), "n_cells", u64, &n_cells, what);
}

// Space is taken when the dataset is made, as parallel HDF5 must, and never filled: every cell is about to be
// written.
Result<H5Handle> StepWriter::make_dataset(const Variable& variable, const H5Handle& space) {
  const std::string what = doing("create dataset", variable.dataset);
  auto creation = h5_own(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, what);
  if (!creation) return creation;
  if (H5Pset_fill_time(creation->get(), H5D_FILL_TIME_NEVER) < 0) return fail(h5_error(what));
  if (options_.chunk_cells > 0) {
    const hsize_t chunk_cells = std::min<hsize_t>(options_.chunk_cells, mesh_.cell_count());
    if (H5Pset_chunk(creation->get(), 1, &chunk_cells) < 0) return fail(h5_error(what));
  }
  const hid_t file_type = variable.type == ElementType::kInt32 ? H5T_STD_I32LE : H5T_IEEE_F64LE;
  return h5_own(H5Dcreate2(file_.get(), variable.dataset.data(), file_type, space.get(), H5P_DEFAULT,
                           creation->get(), H5P_DEFAULT),
                H5Dclose, what);
}

// Collective; `part` may be empty.
Result<> StepWriter::write_part(const H5Handle& dataset, const Variable& variable, CellRange part,
                                const std::vector<std::byte>& bytes) {
  const std::string what = doing("write", variable.dataset);
  const hsize_t first = part.begin.value;
  const hsize_t count = part.count();
  auto memory = h5_own(H5Screate_simple(1, &count, nullptr), H5Sclose, what);
  if (!memory) return fail(memory.error());
  auto space = h5_own(H5Dget_space(dataset.get()), H5Sclose, what);
  if (!space) return fail(space.error());
  const herr_t selected =
      count == 0 ? std::min(H5Sselect_none(space->get()), H5Sselect_none(memory->get()))
                 : H5Sselect_hyperslab(space->get(), H5S_SELECT_SET, &first, nullptr, &count, nullptr);
  if (selected < 0) return fail(h5_error(what));
  const std::byte* data = bytes.data() + (part.begin.value - share_.begin.value) * variable.element_bytes();
  const hid_t memory_type = variable.type == ElementType::kInt32 ? H5T_NATIVE_INT32 : H5T_NATIVE_DOUBLE;
  return h5_check(H5Dwrite(dataset.get(), memory_type, memory->get(), space->get(), transfer_.get(), data),
                  what);
}

Result<> StepWriter::write_variable(VariableIndex index, const std::vector<std::byte>& bytes) {
  const Variable& variable = variable_at(index);
  const bool opens_group =
      index.value == 0 || variable_at(VariableIndex(index.value - 1)).group != variable.group;
  if (opens_group) {
    if (auto made = make_group(variable); !made) return made;
  }
  const hsize_t n_cells = mesh_.cell_count();
  auto space =
      h5_own(H5Screate_simple(1, &n_cells, nullptr), H5Sclose, doing("create dataset", variable.dataset));
  if (!space) return fail(space.error());
  auto dataset = make_dataset(variable, *space);
  if (!dataset) return fail(dataset.error());

  CellRange rest = share_;
  if (fault_strikes(options_, step_, index)) {
    const CellIndex middle(share_.begin.value + share_.count() / 2);
    if (auto half = write_part(*dataset, variable, {share_.begin, middle}, bytes); !half) return half;
    if (auto struck = strike_fault(ranks_, options_, step_, index); !struck) return struck;
    rest.begin = middle;
  }
  if (auto written = write_part(*dataset, variable, rest, bytes); !written) return written;
  return dataset->close(doing("write", variable.dataset));
}

Result<> StepWriter::flush() {
  const Lap lap(seconds_.flush);
  return agree(ranks_, h5_check(H5Fflush(file_.get(), H5F_SCOPE_GLOBAL), "flush " + path_));
}

Result<WrittenStep> StepWriter::run() {
  MPI_Barrier(ranks_.comm);
  {
    const Lap lap(seconds_.open);
    if (auto created = agree(ranks_, create()); !created) return fail(created.error());
  }
  if (flushes_bootstrap(options_.flush)) {
    if (auto flushed = flush(); !flushed) return fail(flushed.error());
  }
  for (uint32_t n = 0; n < kVariables.size(); ++n) {
    const VariableIndex index(n);
    const std::vector<std::byte> bytes = variable_bytes(mesh_, options_.seed, cells_, index);
    MPI_Barrier(ranks_.comm);  // the making of the values stays out of the time of writing
    {
      const Lap lap(seconds_.write);
      if (auto written = agree(ranks_, write_variable(index, bytes)); !written) return fail(written.error());
    }
    if (flushes_after(options_.flush, index)) {
      if (auto flushed = flush(); !flushed) return fail(flushed.error());
    }
  }
  {
    const Lap lap(seconds_.close);
    if (auto closed = agree(ranks_, file_.close("close " + path_)); !closed) return fail(closed.error());
  }
  std::array<double, 4> slowest = {seconds_.open, seconds_.write, seconds_.flush, seconds_.close};
  max_over(ranks_, slowest);
  const uint64_t cells = mesh_.cell_count();
  return WrittenStep{step_,
                     path_,
                     cells,
                     min_over(ranks_, share_.count()),
                     max_over(ranks_, share_.count()),
                     cells * kCellBytes,
                     {slowest[0], slowest[1], slowest[2], slowest[3]}};
}

}  // namespace

Result<WrittenStep> write_step(const Ranks& ranks, const Options& options, uint64_t step) {
  return StepWriter(ranks, options, step).run();
}

}  // namespace sluice::bench
