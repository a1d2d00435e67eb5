// Tokenizer: text to ids and ids to bytes for the Kimi K2 family (tiktoken byte-pair encoding).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gimbal {

using TokenId = int32_t;

enum class SpecialTokens {
  kAsText,      // literal marker text is ordinary text: for everything that came from a user
  kRecognized,  // literal marker text becomes its control id: for templates
};

// Immutable after construction; all members may be called from any thread at once.
class Tokenizer {
 public:
  // Reads DIR/tiktoken.model and DIR/tokenizer_config.json (added_tokens_decoder). Errors name file and line.
  static Result<Tokenizer> read(const std::filesystem::path& model_dir);
  // The same from the files' texts; `config_text` may be empty.
  static Result<Tokenizer> parse(std::string_view tiktoken_text, std::string_view config_text,
                                 std::string_view directory);
  // A made-up vocabulary for a model without tokenizer files (--load-format dummy): 256 byte tokens, made-up words, 256
  // specials in the last slots with the Kimi names at their usual slots. Encoding and decoding round-trip for any text.
  static Result<Tokenizer> synthetic(int64_t vocab_size);

  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // Any bytes are accepted; ill-formed UTF-8 is encoded byte by byte. No BOS is added.
  std::vector<TokenId> encode(std::string_view text, SpecialTokens special_tokens) const;

  // The bytes of one id; a special's text for specials; empty for ids outside the vocabulary.
  std::string_view token_bytes(TokenId id) const;
  bool is_special(TokenId id) const;                // one of the 256 slots
  bool is_skipped_when_decoding(TokenId id) const;  // special, and its `special` flag is true
  std::optional<TokenId> special_id(std::string_view text) const;
  int64_t vocab_size() const;  // base vocabulary + 256
  int64_t base_vocab_size() const;
  // No text of `bytes` bytes can have fewer tokens than this: bytes / longest token (special texts included), rounded
  // up.
  int64_t min_tokens_for(uint64_t bytes) const;
  // The pieces of ordinary text, for finding which rule went wrong.
  std::vector<std::string_view> pre_tokenize(std::string_view text) const;
  // Lines a person should see once.
  const std::vector<std::string>& notes() const;

 private:
  struct Data;
  explicit Tokenizer(std::unique_ptr<const Data> data);
  std::unique_ptr<const Data> data_;
};

}  // namespace gimbal
