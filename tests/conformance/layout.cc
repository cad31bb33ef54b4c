#include "tests/conformance/layout.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

namespace sluice::conformance {
namespace {

// Types larger than this are cut down to their element: a case should take milliseconds.
constexpr int64_t kMaxSize = 4096;
constexpr int64_t kMaxSpan = 1 << 16;

int below(Rng& rng, int end) {
  return static_cast<int>(rng.below(static_cast<uint64_t>(end)));
}

void place_copies(const Layout& child, int64_t at, int64_t count, std::vector<Segment>& out) {
  for (int64_t i = 0; i < count; ++i) {
    for (const Segment& segment : child.segments)
      out.push_back({at + i * child.extent + segment.at, segment.length});
  }
}

Datatype finished(MPI_Datatype type, std::vector<Segment> segments) {
  MPI_Type_commit(&type);
  MPI_Aint lb = 0;
  MPI_Aint extent = 0;
  MPI_Type_get_extent(type, &lb, &extent);
  return {type, false, {std::move(segments), lb, extent}};
}

// Blocks of copies, each some copies long, in the order given.
struct Blocks {
  std::vector<int> lengths;
  std::vector<int64_t> places;  // in copies
};

// With `bytes`, places are in units of one byte of slack between blocks for memory, of an element for files.
Blocks random_blocks(Rng& rng, Use use, bool equal_lengths) {
  Blocks blocks;
  const int count = 1 + below(rng, 5);
  int64_t at = below(rng, 3);
  const int common = 1 + below(rng, 3);
  for (int i = 0; i < count; ++i) {
    const int length = equal_lengths ? common : below(rng, 4);
    blocks.lengths.push_back(length);
    blocks.places.push_back(at);
    at += length + below(rng, 3);
  }
  // Not all of them empty.
  if (std::accumulate(blocks.lengths.begin(), blocks.lengths.end(), 0) == 0 && use == Use::kFile)
    blocks.lengths.back() = 1;
  if (use == Use::kFile) return blocks;
  for (size_t i = blocks.places.size(); i > 1; --i) {
    const size_t other = rng.below(i);
    std::swap(blocks.places[i - 1], blocks.places[other]);
    std::swap(blocks.lengths[i - 1], blocks.lengths[other]);
  }
  if (below(rng, 2) == 0) {
    for (int64_t& place : blocks.places) place -= 7;
  }
  return blocks;
}

Datatype contiguous(Rng& rng, const Datatype& child) {
  const int count = 1 + below(rng, 4);
  MPI_Datatype type;
  MPI_Type_contiguous(count, child.get(), &type);
  std::vector<Segment> segments;
  place_copies(child.layout(), 0, count, segments);
  return finished(type, std::move(segments));
}

Datatype vector(Rng& rng, const Datatype& child, int64_t unit) {
  const int count = 1 + below(rng, 4);
  const int block = 1 + below(rng, 3);
  const int stride = block + below(rng, 3);
  MPI_Datatype type;
  std::vector<Segment> segments;
  if (below(rng, 2) == 0) {
    MPI_Type_vector(count, block, stride, child.get(), &type);
    for (int i = 0; i < count; ++i)
      place_copies(child.layout(), i * stride * child.layout().extent, block, segments);
  } else {
    const int64_t bytes = stride * child.layout().extent + below(rng, 3) * unit;
    MPI_Type_create_hvector(count, block, bytes, child.get(), &type);
    for (int i = 0; i < count; ++i) place_copies(child.layout(), i * bytes, block, segments);
  }
  return finished(type, std::move(segments));
}

Datatype indexed(Rng& rng, const Datatype& child, Use use) {
  const bool equal = below(rng, 2) == 0;
  const Blocks blocks = random_blocks(rng, use, equal);
  const int count = static_cast<int>(blocks.lengths.size());
  const int64_t extent = child.layout().extent;
  std::vector<int> places(blocks.places.begin(), blocks.places.end());
  std::vector<MPI_Aint> bytes;
  for (const int64_t place : blocks.places) bytes.push_back(place * extent);
  MPI_Datatype type;
  const bool in_bytes = below(rng, 2) == 0;
  if (equal && in_bytes) {
    MPI_Type_create_hindexed_block(count, blocks.lengths[0], bytes.data(), child.get(), &type);
  } else if (equal) {
    MPI_Type_create_indexed_block(count, blocks.lengths[0], places.data(), child.get(), &type);
  } else if (in_bytes) {
    MPI_Type_create_hindexed(count, blocks.lengths.data(), bytes.data(), child.get(), &type);
  } else {
    MPI_Type_indexed(count, blocks.lengths.data(), places.data(), child.get(), &type);
  }
  std::vector<Segment> segments;
  for (int i = 0; i < count; ++i) place_copies(child.layout(), bytes[i], blocks.lengths[i], segments);
  return finished(type, std::move(segments));
}

Datatype structure(Rng& rng, const Datatype& element, Use use, int depth, int64_t unit) {
  const int count = 1 + below(rng, 3);
  std::vector<Datatype> children;
  for (int i = 0; i < count; ++i) children.push_back(random_type(rng, element, use, depth - 1));
  std::vector<int> lengths(count);
  std::vector<MPI_Aint> places(count);
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  if (use == Use::kMemory) std::reverse(order.begin(), order.end());
  int64_t at = use == Use::kMemory && below(rng, 2) == 0 ? -5 * unit : 0;
  for (const int i : order) {
    const Layout& layout = children[i].layout();
    lengths[i] = 1 + below(rng, 2);
    // The first byte of the child comes to `at`, whatever its lower bound.
    places[i] = at - layout.first_byte();
    at += (lengths[i] - 1) * layout.extent + (layout.end_byte() - layout.first_byte()) + below(rng, 3) * unit;
  }
  std::vector<MPI_Datatype> types;
  for (const Datatype& child : children) types.push_back(child.get());
  MPI_Datatype type;
  MPI_Type_create_struct(count, lengths.data(), places.data(), types.data(), &type);
  std::vector<Segment> segments;
  for (int i = 0; i < count; ++i) place_copies(children[i].layout(), places[i], lengths[i], segments);
  return finished(type, std::move(segments));
}

// Visits the elements of an array whose coordinates `selects` in storage order.
template <class Selects>
void select_elements(const std::vector<int>& sizes, int order, const Layout& child, Selects&& selects,
                     std::vector<Segment>& out) {
  const int dims = static_cast<int>(sizes.size());
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
  std::vector<int> coordinates(dims);
  for (int64_t element = 0; element < total; ++element) {
    int64_t rest = element;
    for (int i = 0; i < dims; ++i) {
      const int dim = order == MPI_ORDER_C ? dims - 1 - i : i;
      coordinates[dim] = static_cast<int>(rest % sizes[dim]);
      rest /= sizes[dim];
    }
    bool selected = true;
    for (int dim = 0; dim < dims; ++dim) selected = selected && selects(dim, coordinates[dim]);
    if (selected) place_copies(child, element * child.extent, 1, out);
  }
}

Datatype subarray(Rng& rng, const Datatype& child) {
  const int dims = 1 + below(rng, 3);
  std::vector<int> sizes(dims), parts(dims), starts(dims);
  for (int i = 0; i < dims; ++i) {
    sizes[i] = 1 + below(rng, 5);
    parts[i] = 1 + below(rng, sizes[i]);
    starts[i] = below(rng, sizes[i] - parts[i] + 1);
  }
  const int order = below(rng, 2) == 0 ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
  MPI_Datatype type;
  MPI_Type_create_subarray(dims, sizes.data(), parts.data(), starts.data(), order, child.get(), &type);
  std::vector<Segment> segments;
  select_elements(
      sizes, order, child.layout(),
      [&](int dim, int at) { return at >= starts[dim] && at < starts[dim] + parts[dim]; }, segments);
  return finished(type, std::move(segments));
}

Datatype distributed_array(Rng& rng, const Datatype& child) {
  const int dims = 1 + below(rng, 2);
  std::vector<int> sizes(dims), distributions(dims), arguments(dims), grid(dims), blocks(dims), mine(dims);
  int processes = 1;
  for (int i = 0; i < dims; ++i) {
    sizes[i] = 2 + below(rng, 6);
    const int kind = below(rng, 3);
    grid[i] = kind == 2 ? 1 : 1 + below(rng, 2);
    processes *= grid[i];
    const bool by_default = below(rng, 2) == 0;
    if (kind == 0) {
      distributions[i] = MPI_DISTRIBUTE_BLOCK;
      blocks[i] = (sizes[i] + grid[i] - 1) / grid[i] + (by_default ? 0 : below(rng, 2));
    } else if (kind == 1) {
      distributions[i] = MPI_DISTRIBUTE_CYCLIC;
      blocks[i] = by_default ? 1 : 1 + below(rng, 3);
    } else {
      distributions[i] = MPI_DISTRIBUTE_NONE;
      blocks[i] = sizes[i];
    }
    arguments[i] = by_default || kind == 2 ? MPI_DISTRIBUTE_DFLT_DARG : blocks[i];
  }
  int rank = below(rng, processes);
  const int number = rank;
  for (int i = dims - 1; i >= 0; --i) {
    mine[i] = rank % grid[i];
    rank /= grid[i];
  }
  const int order = below(rng, 2) == 0 ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
  MPI_Datatype type;
  MPI_Type_create_darray(processes, number, dims, sizes.data(), distributions.data(), arguments.data(),
                         grid.data(), order, child.get(), &type);
  std::vector<Segment> segments;
  select_elements(
      sizes, order, child.layout(),
      [&](int dim, int at) { return at / blocks[dim] % grid[dim] == mine[dim]; }, segments);
  return finished(type, std::move(segments));
}

Datatype resized(Rng& rng, const Datatype& child, Use use, int64_t unit) {
  const Layout& layout = child.layout();
  const int64_t span = layout.end_byte() - layout.first_byte();
  const int64_t lb = layout.first_byte() - below(rng, 3) * unit;
  const int64_t grown = (span + unit - 1) / unit * unit + below(rng, 4) * unit;
  const int64_t extent = std::max<int64_t>(grown, use == Use::kFile ? unit : 0);
  MPI_Datatype type;
  MPI_Type_create_resized(child.get(), lb, extent, &type);
  return finished(type, layout.segments);
}

bool fits(const Layout& layout, Use use) {
  if (layout.size() > kMaxSize || layout.end_byte() - layout.first_byte() > kMaxSpan) return false;
  if (use == Use::kMemory && layout.size() == 0) return true;
  // Copies at multiples of the extent must not overlap, in a file they must grow.
  return layout.size() > 0 && layout.extent >= layout.end_byte() - layout.first_byte() && layout.extent > 0;
}

}  // namespace

int64_t Layout::size() const {
  return std::accumulate(segments.begin(), segments.end(), int64_t{0},
                         [](int64_t sum, const Segment& segment) { return sum + segment.length; });
}

int64_t Layout::first_byte() const {
  int64_t first = segments.empty() ? 0 : segments.front().at;
  for (const Segment& segment : segments) first = std::min(first, segment.at);
  return first;
}

int64_t Layout::end_byte() const {
  int64_t end = segments.empty() ? 0 : segments.front().at;
  for (const Segment& segment : segments) end = std::max(end, segment.at + segment.length);
  return end;
}

int64_t Layout::place(int64_t index) const {
  const int64_t bytes = size();
  int64_t rest = index % bytes;
  for (const Segment& segment : segments) {
    if (rest < segment.length) return index / bytes * extent + segment.at + rest;
    rest -= segment.length;
  }
  return -1;
}

Datatype random_element(Rng& rng) {
  const std::array<std::pair<MPI_Datatype, int64_t>, 4> elements = {
      {{MPI_BYTE, 1}, {MPI_SHORT, 2}, {MPI_INT, 4}, {MPI_DOUBLE, 8}}};
  const auto& [type, bytes] = elements[rng.below(elements.size())];
  return {type, true, {{{0, bytes}}, 0, bytes}};
}

Datatype random_type(Rng& rng, const Datatype& element, Use use, int depth) {
  const int64_t unit = element.layout().extent;
  if (depth == 0) {
    MPI_Datatype type;
    MPI_Type_dup(element.get(), &type);
    return finished(type, element.layout().segments);
  }
  for (int attempt = 0; attempt < 4; ++attempt) {
    Datatype made;
    const int kind = below(rng, 8);
    if (kind == 3) {
      made = structure(rng, element, use, depth, unit);
    } else {
      const Datatype child = random_type(rng, element, use, depth - 1);
      switch (kind) {
        case 0:
          made = contiguous(rng, child);
          break;
        case 1:
          made = vector(rng, child, unit);
          break;
        case 2:
          made = indexed(rng, child, use);
          break;
        case 4:
          made = subarray(rng, child);
          break;
        case 5:
          made = distributed_array(rng, child);
          break;
        default:
          made = resized(rng, child, use, unit);
      }
    }
    if (fits(made.layout(), use)) return made;
  }
  return random_type(rng, element, use, 0);
}

Datatype with_extent(const Datatype& type, int64_t extent) {
  MPI_Datatype made;
  MPI_Type_create_resized(type.get(), 0, extent, &made);
  return finished(made, type.layout().segments);
}

bool agrees_with_pack(const Datatype& type) {
  const Layout& layout = type.layout();
  if (layout.size() == 0) return true;
  constexpr int kCopies = 2;
  const int64_t first = layout.first_byte();
  std::vector<uint8_t> memory(static_cast<size_t>(layout.end_byte() - first + layout.extent * kCopies));
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<uint8_t>(i * 131 + i / 251);
  std::vector<uint8_t> packed(static_cast<size_t>(layout.size() * kCopies) + 64);
  int at = 0;
  MPI_Pack(memory.data() - first, kCopies, type.get(), packed.data(), static_cast<int>(packed.size()), &at,
           MPI_COMM_SELF);
  if (at != layout.size() * kCopies) return false;
  for (int64_t i = 0; i < at; ++i) {
    if (packed[i] != memory[layout.place(i) - first]) return false;
  }
  return true;
}

}  // namespace sluice::conformance
