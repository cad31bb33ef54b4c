// A process that takes many locks, or shares a file, for tests that kill or stop it:
//
//   lock_holder POOL PATH COUNT
//   lock_holder POOL HANDLE COUNT
//
// Writes COUNT pieces of 512 bytes, each under a lock of its own, syncs, writes them again, says "ready", and
// waits for a line on its standard input. Then writes once more and says what came of it: "written", or
// "refused" and the sentence. Of a file that another process opened it writes the pieces once, and flushes
// them.

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "client/client.h"

namespace {

using namespace sluice;

constexpr uint64_t kPiece = 512;
constexpr uint64_t kStride = 1024;

Result<uint64_t> write_piece(client::File& file, uint64_t number, std::byte byte) {
  const std::vector<std::byte> data(kPiece, byte);
  const Extent extent = Extent::at(Offset(number * kStride), Length(kPiece));
  const client::ConstPiece piece{data.data(), data.size()};
  return file.write({&extent, 1}, {&piece, 1});
}

int complain(const Error& error) {
  std::fprintf(stderr, "lock_holder: %s\n", error.message.c_str());
  return 1;
}

int share(const char* handle, uint64_t count) {
  auto file = client::attach_shared(handle);
  if (!file) return complain(file.error());
  for (uint64_t i = 0; i < count; ++i) {
    if (auto written = write_piece(**file, i, std::byte{1}); !written) return complain(written.error());
  }
  if (auto flushed = (*file)->flush(); !flushed) return complain(flushed.error());
  std::puts("ready");
  std::fflush(stdout);
  return std::getchar() == EOF ? 0 : 1;
}

int hold(const char* pool, const char* path, uint64_t count) {
  client::Options options;
  options.pool = pool;
  options.start_service = false;
  auto client = client::Client::connect(options);
  if (!client) return complain(client.error());
  client::OpenOptions opening;
  opening.access = client::AccessMode::kReadWrite;
  opening.create = true;
  opening.lock_mode = "lockahead";
  opening.lockahead_extents = 1024;
  auto file = (*client)->open(path, opening);
  if (!file) return complain(file.error());
  for (const int round : {1, 2}) {
    for (uint64_t i = 0; i < count; ++i) {
      if (auto written = write_piece(**file, i, static_cast<std::byte>(round)); !written)
        return complain(written.error());
    }
    if (round == 2) break;
    if (auto synced = (*file)->sync(); !synced) return complain(synced.error());
  }
  std::puts("ready");
  std::fflush(stdout);
  std::array<char, 16> line{};
  if (std::fgets(line.data(), line.size(), stdin) == nullptr) return 0;
  const auto late = write_piece(**file, 0, std::byte{3});
  std::printf("%s\n", late ? "written" : ("refused " + late.error().message).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: lock_holder POOL PATH|HANDLE COUNT\n");
    return 2;
  }
  const uint64_t count = std::strtoull(argv[3], nullptr, 10);
  return argv[2][0] == '/' ? hold(argv[1], argv[2], count) : share(argv[2], count);
}
