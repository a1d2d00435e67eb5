// Arbitrary bytes as tiktoken.model, and as a text for a sound vocabulary: loading fails cleanly or encoding
// round-trips.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/file_text.h"
#include "tokenizer/incremental_detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace {

void check_round_trip(const gimbal::Tokenizer& tokenizer, std::string_view text) {
  for (const auto special : {gimbal::SpecialTokens::kAsText, gimbal::SpecialTokens::kRecognized}) {
    std::string decoded;
    gimbal::IncrementalDetokenizer detokenizer(tokenizer, false);
    for (const gimbal::TokenId id : tokenizer.encode(text, special)) {
      decoded += tokenizer.token_bytes(id);
      detokenizer.append(id);
    }
    detokenizer.flush();
    if (decoded != text) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string bundled = *gimbal::read_file_text(GIMBAL_SOURCE_DIR "/models/kimi-k2-mini/tiktoken.model");
  static const gimbal::Tokenizer sound = *gimbal::Tokenizer::parse(bundled, "", "");
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  check_round_trip(sound, input);
  // The input's lines go behind the 256 single bytes, so that the loader gets past its first checks; the part behind a
  // zero byte is tokenizer_config.json.
  static const std::string bytes_only = bundled.substr(0, bundled.find(" 255\n") + 5);
  const size_t zero = input.find('\0');
  const std::string_view config = zero == std::string_view::npos ? std::string_view() : input.substr(zero + 1);
  const std::string_view lines = input.substr(0, zero);
  for (const std::string& text : {std::string(lines), bytes_only + std::string(lines)}) {
    const auto tokenizer = gimbal::Tokenizer::parse(text, config, "");
    if (tokenizer.has_value()) check_round_trip(*tokenizer, input);
  }
  return 0;
}
