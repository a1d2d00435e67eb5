#include "tokenizer/incremental_detokenizer.h"

namespace gimbal {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

bool is_continuation(uint8_t byte) { return (byte & 0xc0) == 0x80; }

// Length of the sequence that starts with `lead`; 0 when no sequence does.
size_t sequence_size(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return 2;
  if (lead >= 0xe0 && lead <= 0xef) return 3;
  if (lead >= 0xf0 && lead <= 0xf4) return 4;
  return 0;
}

// The second byte is narrower for some leads: no overlong forms, no surrogates, nothing above U+10FFFF (Unicode table
// 3-7).
bool is_second_byte(uint8_t lead, uint8_t second) {
  if (!is_continuation(second)) return false;
  if (lead == 0xe0) return second >= 0xa0;
  if (lead == 0xed) return second <= 0x9f;
  if (lead == 0xf0) return second >= 0x90;
  if (lead == 0xf4) return second <= 0x8f;
  return true;
}

// How many bytes at the start of `bytes` (not empty) belong to a well-formed sequence: its whole size, or a maximal
// subpart.
size_t well_formed_prefix(std::string_view bytes, size_t size) {
  const auto lead = static_cast<uint8_t>(bytes[0]);
  size_t count = 1;
  while (count < size && count < bytes.size()) {
    const auto byte = static_cast<uint8_t>(bytes[count]);
    if (!(count == 1 ? is_second_byte(lead, byte) : is_continuation(byte))) break;
    ++count;
  }
  return count;
}

// Moves what is decided at the start of `bytes` to text. At the end of the stream everything is decided.
std::string take_text(std::string_view& bytes, bool is_end) {
  std::string text;
  while (!bytes.empty()) {
    const auto lead = static_cast<uint8_t>(bytes[0]);
    const size_t size = sequence_size(lead);
    const size_t count = size == 0 ? 1 : well_formed_prefix(bytes, size);
    const bool is_complete = count == size;
    const bool is_open = !is_complete && size > 0 && count == bytes.size();
    // The first two bytes of an encoded surrogate can only become ill-formed, yet the usual decoders wait for the
    // third.
    const bool is_surrogate_head =
        lead == 0xed && bytes.size() == 2 && count == 1 && is_continuation(static_cast<uint8_t>(bytes[1]));
    if (!is_end && (is_open || is_surrogate_head)) break;
    text += is_complete ? bytes.substr(0, count) : kReplacement;
    bytes.remove_prefix(count);
  }
  return text;
}

}  // namespace

IncrementalDetokenizer::IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(&tokenizer), skip_special_tokens_(skip_special_tokens) {}

std::string IncrementalDetokenizer::append(TokenId id) {
  if (skip_special_tokens_ && tokenizer_->is_skipped_when_decoding(id)) return {};
  pending_ += tokenizer_->token_bytes(id);
  std::string_view rest = pending_;
  std::string text = take_text(rest, /*is_end=*/false);
  pending_.erase(0, pending_.size() - rest.size());
  return text;
}

std::string IncrementalDetokenizer::flush() {
  std::string_view rest = pending_;
  std::string text = take_text(rest, /*is_end=*/true);
  pending_.clear();
  return text;
}

}  // namespace gimbal
