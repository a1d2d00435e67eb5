// Encodes a text file on one thread and prints one JSON line per round: {"seconds", "tokens", "checksum"}.
// usage: tokenizer_throughput MODEL_DIR TEXT_FILE; every line read from stdin starts a round.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>

#include "base/file_text.h"
#include "tokenizer/tokenizer.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: tokenizer_throughput MODEL_DIR TEXT_FILE\n");
    return 2;
  }
  const auto tokenizer = gimbal::Tokenizer::read(argv[1]);
  const auto text = gimbal::read_file_text(argv[2]);
  if (!tokenizer || !text) {
    fmt::print(stderr, "{}\n", tokenizer ? text.error().message : tokenizer.error().message);
    return 2;
  }
  for (std::string line; std::getline(std::cin, line);) {
    const auto start = std::chrono::steady_clock::now();
    const auto ids = tokenizer->encode(*text, gimbal::SpecialTokens::kAsText);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    uint64_t checksum = 0;
    for (const gimbal::TokenId id : ids) checksum = (checksum * 31 + static_cast<uint64_t>(id)) % 1000000007;
    fmt::print("{{\"seconds\": {}, \"tokens\": {}, \"checksum\": {}}}\n", seconds, ids.size(), checksum);
    std::fflush(stdout);
  }
  return 0;
}
