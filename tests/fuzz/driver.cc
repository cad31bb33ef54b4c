// Runs a fuzz target without libFuzzer: NAME_fuzz [--seed S] [--rounds N] [--seconds T] [FILE or
// DIRECTORY]... First the files as they are, then N inputs mutated from them, or fewer when T seconds are
// over. The same seed makes the same inputs; when one crashes, its round is in the last line of the output
// (--verbose) and `--only ROUND` runs it alone.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;
constexpr size_t kMaxInputBytes = 64 * 1024;

struct Options {
  uint64_t seed = 1;
  uint64_t rounds = 1000;
  uint64_t seconds = 60;
  uint64_t only = UINT64_MAX;
  bool verbose = false;
  std::vector<std::string> paths;
};

Bytes load(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  Bytes bytes{std::istreambuf_iterator<char>(in), {}};
  bytes.resize(std::min(bytes.size(), kMaxInputBytes));
  return bytes;
}

std::vector<Bytes> load_all(const std::vector<std::string>& paths) {
  std::vector<std::filesystem::path> files;
  for (const std::string& path : paths) {
    if (std::filesystem::is_regular_file(path)) files.emplace_back(path);
    if (!std::filesystem::is_directory(path)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(path)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Bytes> corpus;
  for (const auto& file : files) corpus.push_back(load(file));
  return corpus;
}

// Values at which lengths, counts and offsets go wrong.
uint64_t edge_value(std::mt19937_64& rng) {
  static constexpr uint64_t kEdges[] = {0,
                                        1,
                                        0x7f,
                                        0x80,
                                        0xff,
                                        0x7fff,
                                        0xffff,
                                        0x10000,
                                        0x7fffffff,
                                        0x80000000,
                                        0xffffffff,
                                        uint64_t{1} << 32,
                                        uint64_t{1} << 62,
                                        uint64_t{1} << 63,
                                        UINT64_MAX};
  return kEdges[rng() % std::size(kEdges)];
}

void mutate_once(Bytes& bytes, const std::vector<Bytes>& corpus, std::mt19937_64& rng) {
  const size_t at = bytes.empty() ? 0 : rng() % bytes.size();
  switch (rng() % 8) {
    case 0:
      if (!bytes.empty()) bytes[at] ^= static_cast<uint8_t>(1u << (rng() % 8));
      break;
    case 1:
      if (!bytes.empty()) bytes[at] = static_cast<uint8_t>(rng());
      break;
    case 2:
      bytes.resize(at);
      break;
    case 3: {
      const uint64_t value = rng() % 2 ? edge_value(rng) : rng();
      const size_t width = size_t{1} << (rng() % 4);
      if (at + width <= bytes.size()) std::memcpy(bytes.data() + at, &value, width);
      break;
    }
    case 4:
      bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(at), rng() % 64, static_cast<uint8_t>(rng()));
      break;
    case 5: {
      const size_t end = std::min(bytes.size(), at + rng() % 64);
      bytes.erase(bytes.begin() + static_cast<ptrdiff_t>(at), bytes.begin() + static_cast<ptrdiff_t>(end));
      break;
    }
    case 6: {
      const Bytes& other = corpus[rng() % corpus.size()];
      bytes.resize(at);
      if (!other.empty())
        bytes.insert(bytes.end(), other.begin() + static_cast<ptrdiff_t>(rng() % other.size()), other.end());
      break;
    }
    default: {
      const size_t count = rng() % 256;
      for (size_t i = 0; i < count; ++i) bytes.push_back(static_cast<uint8_t>(rng()));
      break;
    }
  }
  bytes.resize(std::min(bytes.size(), kMaxInputBytes));
}

// What round `round` tries: a function of the seed and the round alone, so that one round can be run by
// itself.
Bytes input_of(uint64_t seed, uint64_t round, const std::vector<Bytes>& corpus) {
  std::seed_seq mix{seed, round};
  std::mt19937_64 rng(mix);
  Bytes bytes = corpus[rng() % corpus.size()];
  for (uint64_t steps = 1 + rng() % 8; steps > 0; --steps) mutate_once(bytes, corpus, rng);
  return bytes;
}

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--verbose") {
      options.verbose = true;
    } else if (word.rfind("--", 0) != 0) {
      options.paths.push_back(word);
    } else if (i + 1 < argc) {
      const uint64_t value = std::stoull(argv[++i]);
      if (word == "--seed")
        options.seed = value;
      else if (word == "--rounds")
        options.rounds = value;
      else if (word == "--seconds")
        options.seconds = value;
      else if (word == "--only")
        options.only = value;
      else
        return false;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: %s [--seed S] [--rounds N] [--seconds T] [--only ROUND] [--verbose] [PATH]...\n",
                 argv[0]);
    return 2;
  }
  std::vector<Bytes> corpus = load_all(options.paths);
  const size_t files = corpus.size();
  for (const Bytes& bytes : corpus) LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  corpus.emplace_back();  // from nothing, too

  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options.seconds);
  uint64_t done = 0;
  for (uint64_t round = 0; round < options.rounds && std::chrono::steady_clock::now() < end; ++round) {
    if (options.only != UINT64_MAX && round != options.only) continue;
    if (options.verbose) std::fprintf(stderr, "seed %lu round %lu\n", options.seed, round);
    const Bytes bytes = input_of(options.seed, round, corpus);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    ++done;
  }
  std::printf("%zu files and %lu mutated inputs survived (seed %lu)\n", files, done, options.seed);
  return done > 0 ? 0 : 1;
}
