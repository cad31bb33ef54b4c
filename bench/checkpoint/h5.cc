#include "bench/checkpoint/h5.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "bench/checkpoint/format.h"

namespace sluice::bench {
namespace {

struct BootstrapMember {
  const char* name;
  size_t memory_offset_bytes;
  H5Types types;
};

// Not a constant: HDF5's type ids exist only after the library has started.
std::array<BootstrapMember, 7> bootstrap_members() {
  const H5Types u32{H5T_STD_U32LE, H5T_NATIVE_UINT32};
  const H5Types u64{H5T_STD_U64LE, H5T_NATIVE_UINT64};
  const H5Types f64{H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE};
  return {{{"version", offsetof(Bootstrap, version), u32},
           {"size", offsetof(Bootstrap, size), u32},
           {"levels", offsetof(Bootstrap, levels), u32},
           {"step", offsetof(Bootstrap, step), u64},
           {"seed", offsetof(Bootstrap, seed), u64},
           {"n_cells", offsetof(Bootstrap, n_cells), u64},
           {"time", offsetof(Bootstrap, time), f64}}};
}

herr_t keep_innermost(unsigned, const H5E_error2_t* entry, void* text) {
  if (entry->desc != nullptr) *static_cast<std::string*>(text) = entry->desc;
  return 1;  // stop: the walk begins at the innermost
}

std::string one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  while (!text.empty() && (text.back() == ' ' || text.back() == '.')) text.pop_back();
  return text;
}

}  // namespace

H5Handle& H5Handle::operator=(H5Handle&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(close_, other.close_);
  return *this;
}

H5Handle::~H5Handle() {
  if (id_ >= 0) close_(id_);
}

Result<> H5Handle::close(const std::string& doing) {
  if (id_ < 0) return {};
  return h5_check(close_(std::exchange(id_, H5I_INVALID_HID)), doing);
}

// The order matters: HDF5 hangs its clean-up on MPI_COMM_SELF when it starts after MPI, on atexit() unless
// told not to.
void h5_start_without_cleanup() {
  H5dont_atexit();
  H5open();
}

void h5_print_errors(bool on) {
  if (on) {
    H5Eset_auto2(
        H5E_DEFAULT, [](hid_t stack, void*) -> herr_t { return H5Eprint2(stack, stderr); }, nullptr);
  } else {
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
}

Error h5_error(const std::string& doing) {
  std::string cause = "HDF5 gave no reason";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, &cause);
  return {ErrorCode::kIo, "cannot " + doing + ": " + one_line(std::move(cause))};
}

Result<H5Handle> h5_own(hid_t id, H5Handle::Close close, const std::string& doing) {
  if (id < 0) return fail(h5_error(doing));
  return H5Handle(id, close);
}

Result<> h5_check(herr_t status, const std::string& doing) {
  if (status < 0) return fail(h5_error(doing));
  return {};
}

Result<H5Handle> h5_parallel_access(MPI_Comm comm, MPI_Info info) {
  auto access = h5_own(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "make a file access list");
  if (!access) return access;
  if (H5Pset_fapl_mpio(access->get(), comm, info) < 0 ||
      H5Pset_all_coll_metadata_ops(access->get(), true) < 0 ||
      H5Pset_coll_metadata_write(access->get(), true) < 0) {
    return fail(h5_error("set up MPI-IO file access"));
  }
  return access;
}

Result<H5Handle> h5_collective_transfer() {
  auto transfer = h5_own(H5Pcreate(H5P_DATASET_XFER), H5Pclose, "make a transfer list");
  if (!transfer) return transfer;
  if (H5Pset_dxpl_mpio(transfer->get(), H5FD_MPIO_COLLECTIVE) < 0)
    return fail(h5_error("set up collective transfer"));
  return transfer;
}

Result<H5Handle> h5_bootstrap_file_type() {
  size_t bytes = 0;
  for (const BootstrapMember& member : bootstrap_members()) bytes += H5Tget_size(member.types.file);
  auto type = h5_own(H5Tcreate(H5T_COMPOUND, bytes), H5Tclose, "make the bootstrap type");
  if (!type) return type;
  size_t offset_bytes = 0;
  for (const BootstrapMember& member : bootstrap_members()) {
    if (H5Tinsert(type->get(), member.name, offset_bytes, member.types.file) < 0) {
      return fail(h5_error("make the bootstrap type"));
    }
    offset_bytes += H5Tget_size(member.types.file);
  }
  return type;
}

Result<H5Handle> h5_bootstrap_memory_type() {
  auto type = h5_own(H5Tcreate(H5T_COMPOUND, sizeof(Bootstrap)), H5Tclose, "make the bootstrap type");
  if (!type) return type;
  for (const BootstrapMember& member : bootstrap_members()) {
    if (H5Tinsert(type->get(), member.name, member.memory_offset_bytes, member.types.memory) < 0) {
      return fail(h5_error("make the bootstrap type"));
    }
  }
  return type;
}

}  // namespace sluice::bench
