#pragma once

#include <hdf5.h>

#include <string>
#include <utility>

#include "base/result.h"

// Owners and errors over HDF5's C interface. One thread: HDF5's error stack is per thread and short-lived, so
// an error is made into an Error right after the call that failed.
namespace sluice::bench {

// Owns a hid_t. Move-only. The destructor ignores errors; close() tells them.
class H5Handle {
 public:
  using Close = herr_t (*)(hid_t);

  H5Handle() = default;
  H5Handle(hid_t id, Close closer) : id_(id), close_(closer) {}
  H5Handle(H5Handle&& other) noexcept
      : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
  H5Handle& operator=(H5Handle&& other) noexcept;
  ~H5Handle();

  hid_t get() const { return id_; }
  // `doing` completes "cannot ...".
  Result<> close(const std::string& doing);
  // Lets go without closing.
  void abandon() { id_ = H5I_INVALID_HID; }

 private:
  hid_t id_ = H5I_INVALID_HID;
  Close close_ = nullptr;
};

// Call before MPI_Init. Starts HDF5 so that neither MPI_Finalize nor exit() makes it close what is still
// open: after a failed write or flush of a file in parallel, HDF5 1.10 crashes doing so. Whoever opened a
// file closes it or abandons it.
void h5_start_without_cleanup();

// Automatic printing of error stacks, on or off for this thread.
void h5_print_errors(bool on);

// "cannot <doing>: <what the innermost entry of the error stack says>", in one line.
Error h5_error(const std::string& doing);

Result<H5Handle> h5_own(hid_t id, H5Handle::Close close, const std::string& doing);
Result<> h5_check(herr_t status, const std::string& doing);

// A file access list for MPI-IO with collective metadata: metadata is read by one rank and told to the
// others, and written in one collective call.
Result<H5Handle> h5_parallel_access(MPI_Comm comm, MPI_Info info);
// A transfer list for collective reads and writes.
Result<H5Handle> h5_collective_transfer();

// File types are fixed little-endian; memory types are the machine's own.
struct H5Types {
  hid_t file;
  hid_t memory;
};

// The compound type of Bootstrap, packed in the file and as the compiler lays it out in memory.
Result<H5Handle> h5_bootstrap_file_type();
Result<H5Handle> h5_bootstrap_memory_type();

}  // namespace sluice::bench
