#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"
#include "client/client.h"

// Contiguous accesses, as most tests of files make them.
namespace sluice::testing {

inline std::vector<std::byte> pattern(size_t bytes, uint64_t seed) {
  SeededRng rng(seed);
  std::vector<std::byte> data(bytes);
  for (auto& byte : data) byte = static_cast<std::byte>(rng.next());
  return data;
}

inline Result<uint64_t> put(client::File& file, uint64_t at, std::span<const std::byte> data) {
  const Extent extent = Extent::at(Offset(at), Length(data.size()));
  const client::ConstPiece piece{data.data(), data.size()};
  return file.write({&extent, 1}, {&piece, 1});
}

// What the file holds there, cut to what it has.
inline std::vector<std::byte> get(client::File& file, uint64_t at, size_t bytes) {
  std::vector<std::byte> data(bytes);
  const Extent extent = Extent::at(Offset(at), Length(bytes));
  const client::Piece piece{data.data(), data.size()};
  auto read = file.read({&extent, 1}, {&piece, 1});
  EXPECT_TRUE(read) << read.error().message;
  data.resize(read ? *read : 0);
  return data;
}

}  // namespace sluice::testing
