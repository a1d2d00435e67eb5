// IncrementalDetokenizer: ids in, text out, never half a character.
#pragma once

#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace gimbal {

// Bytes that cannot belong to valid UTF-8 become U+FFFD, one per maximal subpart (Unicode recommended practice). One
// stream per object; not thread-safe.
class IncrementalDetokenizer {
 public:
  // `tokenizer` must outlive this object.
  IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens);

  // The text that becomes certain with this id; may be empty.
  std::string append(TokenId id);
  // What remains at the end of the stream.
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  std::string pending_;  // an incomplete but still possible UTF-8 sequence, at most 3 bytes
};

}  // namespace gimbal
