#include "bench/checkpoint/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "bench/checkpoint/h5.h"
#include "bench/checkpoint/mesh.h"
#include "bench/checkpoint/verdict.h"

namespace sluice::bench {
namespace {

// What one rank, and then all ranks together, found in a variable.
struct Comparison {
  uint64_t differing = 0;
  uint64_t nonzero = 0;
  uint64_t first_index = UINT64_MAX;  // of the first cell that differs
  uint64_t expected_bits = 0;
  uint64_t found_bits = 0;
};

uint64_t bits_at(const std::vector<std::byte>& bytes, uint64_t element, size_t element_bytes) {
  uint64_t bits = 0;
  std::memcpy(&bits, bytes.data() + element * element_bytes, element_bytes);
  return bits;
}

Comparison compare(const std::vector<std::byte>& expected, const std::vector<std::byte>& found,
                   size_t element_bytes, CellIndex first) {
  Comparison comparison;
  for (uint64_t n = 0; n < found.size() / element_bytes; ++n) {
    const uint64_t want = bits_at(expected, n, element_bytes);
    const uint64_t have = bits_at(found, n, element_bytes);
    comparison.nonzero += have != 0 ? 1 : 0;
    if (want == have) continue;
    if (comparison.differing++ == 0) {
      comparison.first_index = first.value + n;
      comparison.expected_bits = want;
      comparison.found_bits = have;
    }
  }
  return comparison;
}

Comparison combine(const Ranks& ranks, const Comparison& mine) {
  std::vector<Comparison> all(ranks.size);
  MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all.data(), sizeof(mine), MPI_BYTE, ranks.comm);
  Comparison total = *std::ranges::min_element(all, {}, &Comparison::first_index);
  total.differing = 0;
  total.nonzero = 0;
  for (const Comparison& one : all) {
    total.differing += one.differing;
    total.nonzero += one.nonzero;
  }
  return total;
}

std::string value_text(uint64_t bits, ElementType type) {
  if (type == ElementType::kInt32) return fmt::format("{}", static_cast<int32_t>(bits));
  double value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return fmt::format("{} (bits {:#018x})", value, bits);
}

class StepReader {
 public:
  StepReader(const Ranks& ranks, const Options& options, uint64_t step)
      : ranks_(ranks),
        options_(options),
        step_(step),
        path_(options.path_at(step)),
        hints_(options.hints),
        mesh_(options.mesh_at(step)),
        share_(mesh_.reader_share(ranks.rank, ranks.size)),
        cells_(mesh_.cells(share_)) {}

  Result<VerifiedStep> run(const std::optional<SyncedState>& synced);

 private:
  Result<> open();
  Result<bool> exists(std::string_view object);
  Result<> check_bootstrap();
  Result<> check_group(std::string_view group);
  Result<std::string> shape_fault(const Variable& variable, const H5Handle& dataset);
  Result<Finding> examine(VariableIndex index);
  Result<std::vector<std::byte>> read_share(const Variable& variable, const H5Handle& dataset);
  Result<Findings> examine_all();
  VerifiedStep report(uint32_t variables);
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
  double seconds_ = 0;
};

Result<> StepReader::open() {
  auto transfer = h5_collective_transfer();
  if (!transfer) return fail(transfer.error());
  transfer_ = std::move(*transfer);
  auto access = h5_parallel_access(ranks_.comm, hints_.get());
  if (!access) return fail(access.error());
  auto file = h5_own(H5Fopen(path_.c_str(), H5F_ACC_RDONLY, access->get()), H5Fclose, "open " + path_);
  if (!file) return fail(file.error());
  file_ = std::move(*file);
  return {};
}

Result<bool> StepReader::exists(std::string_view object) {
  const htri_t found = H5Lexists(file_.get(), std::string(object).c_str(), H5P_DEFAULT);
  if (found < 0) return fail(h5_error(doing("look for", object)));
  return found > 0;
}

Result<> StepReader::check_bootstrap() {
  const std::string what = doing("read", "/bootstrap");
  auto type = h5_bootstrap_memory_type();
  if (!type) return fail(type.error());
  auto dataset = h5_own(H5Dopen2(file_.get(), "/bootstrap", H5P_DEFAULT), H5Dclose, what);
  if (!dataset) return fail(dataset.error());
  auto space = h5_own(H5Dget_space(dataset->get()), H5Sclose, what);
  if (!space) return fail(space.error());
  if (H5Sget_simple_extent_npoints(space->get()) != 1) {
    return fail(ErrorCode::kCorrupt,
                path_ + ": /bootstrap is not one record; was the file written by checkpoint?");
  }
  Bootstrap found;
  if (H5Dread(dataset->get(), type->get(), H5S_ALL, H5S_ALL, transfer_.get(), &found) < 0)
    return fail(h5_error(what));
  const Bootstrap expected = bootstrap_of(mesh_, options_.seed);
  if (found == expected) return {};
  return fail(
      ErrorCode::kCorrupt,
      fmt::format(
          "{}: /bootstrap says version {}, size {}, levels {}, step {}, seed {}, {} cells, time {}, but "
          "the options make version {}, size {}, levels {}, step {}, seed {}, {} cells, time {}",
          path_, found.version, found.size, found.levels, found.step, found.seed, found.n_cells, found.time,
          expected.version, expected.size, expected.levels, expected.step, expected.seed, expected.n_cells,
          expected.time));
}

Result<> StepReader::check_group(std::string_view group) {
  const std::pair<const char*, uint64_t> attributes[] = {{"step", step_}, {"n_cells", mesh_.cell_count()}};
  for (const auto& [name, expected] : attributes) {
    const std::string what = doing("read", fmt::format("attribute {} of {}", name, group));
    auto attribute =
        h5_own(H5Aopen_by_name(file_.get(), std::string(group).c_str(), name, H5P_DEFAULT, H5P_DEFAULT),
               H5Aclose, what);
    if (!attribute) return fail(attribute.error());
    auto space = h5_own(H5Aget_space(attribute->get()), H5Sclose, what);
    if (!space) return fail(space.error());
    uint64_t found = 0;
    const bool single = H5Sget_simple_extent_npoints(space->get()) == 1;
    if (single && H5Aread(attribute->get(), H5T_NATIVE_UINT64, &found) < 0) return fail(h5_error(what));
    if (!single || found != expected) {
      return fail(ErrorCode::kCorrupt,
                  fmt::format("{}: attribute {} of {} is {}, expected {}", path_, name, group,
                              single ? std::to_string(found) : "not one value", expected));
    }
  }
  return {};
}

// Empty when type and length are as written.
Result<std::string> StepReader::shape_fault(const Variable& variable, const H5Handle& dataset) {
  const std::string what = doing("read the shape of", variable.dataset);
  auto type = h5_own(H5Dget_type(dataset.get()), H5Tclose, what);
  if (!type) return fail(type.error());
  const hid_t expected_type = variable.type == ElementType::kInt32 ? H5T_STD_I32LE : H5T_IEEE_F64LE;
  const htri_t same_type = H5Tequal(type->get(), expected_type);
  if (same_type < 0) return fail(h5_error(what));
  if (same_type == 0) return fmt::format("dataset {} has another element type", variable.dataset);
  auto space = h5_own(H5Dget_space(dataset.get()), H5Sclose, what);
  if (!space) return fail(space.error());
  const hssize_t elements = H5Sget_simple_extent_npoints(space->get());
  if (H5Sget_simple_extent_ndims(space->get()) != 1 ||
      elements != static_cast<hssize_t>(mesh_.cell_count())) {
    return fmt::format("dataset {} holds {} values, expected a row of {}", variable.dataset, elements,
                       mesh_.cell_count());
  }
  return std::string();
}

Result<std::vector<std::byte>> StepReader::read_share(const Variable& variable, const H5Handle& dataset) {
  const std::string what = doing("read", variable.dataset);
  const hsize_t first = share_.begin.value;
  const hsize_t count = share_.count();
  auto memory = h5_own(H5Screate_simple(1, &count, nullptr), H5Sclose, what);
  if (!memory) return fail(memory.error());
  auto space = h5_own(H5Dget_space(dataset.get()), H5Sclose, what);
  if (!space) return fail(space.error());
  const herr_t selected =
      count == 0 ? std::min(H5Sselect_none(space->get()), H5Sselect_none(memory->get()))
                 : H5Sselect_hyperslab(space->get(), H5S_SELECT_SET, &first, nullptr, &count, nullptr);
  if (selected < 0) return fail(h5_error(what));
  // Not zero, and nothing a writer writes: what the read leaves out is seen as a difference.
  std::vector<std::byte> bytes(count * variable.element_bytes(), std::byte{0xa5});
  const hid_t memory_type = variable.type == ElementType::kInt32 ? H5T_NATIVE_INT32 : H5T_NATIVE_DOUBLE;
  if (H5Dread(dataset.get(), memory_type, memory->get(), space->get(), transfer_.get(), bytes.data()) < 0) {
    return fail(h5_error(what));
  }
  return bytes;
}

Result<Finding> StepReader::examine(VariableIndex index) {
  const Variable& variable = variable_at(index);
  for (const std::string_view object : {variable.group, variable.dataset}) {
    const auto found = exists(object);
    if (!found) return fail(found.error());
    if (!*found) return Finding{Shows::kAbsent, {}};
  }
  const double begin = MPI_Wtime();
  auto dataset = h5_own(H5Dopen2(file_.get(), variable.dataset.data(), H5P_DEFAULT), H5Dclose,
                        doing("open", variable.dataset));
  if (!dataset) return fail(dataset.error());
  const auto fault = shape_fault(variable, *dataset);
  if (!fault) return fail(fault.error());
  if (!fault->empty()) return Finding{Shows::kDiffers, *fault};
  // Only this rank may fail here: agree before the next collective call.
  const auto bytes = agree_on(ranks_, read_share(variable, *dataset));
  seconds_ += MPI_Wtime() - begin;
  if (!bytes) return fail(bytes.error());

  const auto expected = variable_bytes(mesh_, options_.seed, cells_, index);
  const Comparison all = combine(ranks_, compare(expected, *bytes, variable.element_bytes(), share_.begin));
  if (all.differing == 0) return Finding{Shows::kWhole, {}};
  if (all.nonzero == 0) return Finding{Shows::kUnwritten, {}};
  return Finding{
      Shows::kDiffers,
      fmt::format("dataset {} differs at cell {}: found {}, expected {}; {} of {} cells differ",
                  variable.dataset, all.first_index, value_text(all.found_bits, variable.type),
                  value_text(all.expected_bits, variable.type), all.differing, mesh_.cell_count())};
}

Result<Findings> StepReader::examine_all() {
  Findings findings;
  for (uint32_t n = 0; n < kVariables.size(); ++n) {
    auto finding = agree_on(ranks_, examine(VariableIndex(n)));
    if (!finding) return fail(finding.error());
    const bool opens_group = n == 0 || kVariables[n - 1].group != kVariables[n].group;
    if (opens_group && finding->shows == Shows::kWhole) {
      if (auto checked = agree(ranks_, check_group(kVariables[n].group)); !checked)
        return fail(checked.error());
    }
    findings[n] = std::move(*finding);
  }
  return findings;
}

VerifiedStep StepReader::report(uint32_t variables) {
  uint64_t cell_bytes = 0;
  for (uint32_t n = 0; n < variables; ++n) cell_bytes += kVariables[n].element_bytes();
  max_over(ranks_, {&seconds_, 1});
  return {step_, path_, mesh_.cell_count(), variables, mesh_.cell_count() * cell_bytes, seconds_};
}

Result<VerifiedStep> StepReader::run(const std::optional<SyncedState>& synced) {
  if (synced) {
    const auto has_bytes = agree_on(ranks_, file_has_bytes(ranks_, path_, hints_.get()));
    if (!has_bytes) return fail(has_bytes.error());
    if (!*has_bytes) {
      const auto judged = judge(path_, Findings(), synced);
      if (!judged) return fail(judged.error());
      return report(*judged);
    }
  }
  const double begin = MPI_Wtime();
  if (auto opened = agree(ranks_, open()); !opened) return fail(opened.error());
  seconds_ += MPI_Wtime() - begin;
  if (auto checked = agree(ranks_, check_bootstrap()); !checked) return fail(checked.error());
  const auto findings = examine_all();
  if (!findings) return fail(findings.error());
  const double closing = MPI_Wtime();
  if (auto closed = agree(ranks_, file_.close("close " + path_)); !closed) return fail(closed.error());
  seconds_ += MPI_Wtime() - closing;
  const auto judged = judge(path_, *findings, synced);
  if (!judged) return fail(judged.error());
  return report(*judged);
}

}  // namespace

Result<VerifiedStep> verify_step(const Ranks& ranks, const Options& options, uint64_t step,
                                 const std::optional<SyncedState>& synced) {
  return StepReader(ranks, options, step).run(synced);
}

}  // namespace sluice::bench
