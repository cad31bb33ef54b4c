#pragma once

#include <mpi.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "base/rng.h"

// Random MPI datatypes and, beside each, a plain list of the bytes it selects, made without MPI's help.
namespace sluice::conformance {

struct Segment {
  int64_t at;      // bytes from the origin, may be negative
  int64_t length;  // bytes
};

struct Layout {
  std::vector<Segment> segments;  // in the order of the type map, none empty
  int64_t lb = 0;
  int64_t extent = 0;

  int64_t size() const;
  int64_t first_byte() const;  // 0 when it selects none
  int64_t end_byte() const;
  // Where byte `index` of an endless row of copies lies.
  int64_t place(int64_t index) const;
};

// Owns the datatype.
class Datatype {
 public:
  Datatype() = default;
  Datatype(MPI_Datatype type, bool built_in, Layout layout)
      : type_(type), built_in_(built_in), layout_(std::move(layout)) {}
  Datatype(Datatype&& other) noexcept
      : type_(std::exchange(other.type_, MPI_DATATYPE_NULL)),
        built_in_(other.built_in_),
        layout_(std::move(other.layout_)) {}
  Datatype& operator=(Datatype&& other) noexcept {
    std::swap(type_, other.type_);
    std::swap(built_in_, other.built_in_);
    std::swap(layout_, other.layout_);
    return *this;
  }
  ~Datatype() {
    if (type_ != MPI_DATATYPE_NULL && !built_in_) MPI_Type_free(&type_);
  }
  MPI_Datatype get() const { return type_; }
  const Layout& layout() const { return layout_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
  bool built_in_ = false;
  Layout layout_;
};

enum class Use {
  kFile,    // displacements grow and never overlap, holes are whole elements, at least one byte
  kMemory,  // any order, displacements may be negative; never overlaps; may select nothing
};

// One of MPI's own types.
Datatype random_element(Rng& rng);
// A type of elements like `element`, nested up to `depth` deep, committed.
Datatype random_type(Rng& rng, const Datatype& element, Use use, int depth);
// The same bytes, with this extent from byte 0.
Datatype with_extent(const Datatype& type, int64_t extent);
// Whether MPI_Pack agrees with the list: a check of this model, not of any file.
bool agrees_with_pack(const Datatype& type);

}  // namespace sluice::conformance
