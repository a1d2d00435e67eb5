// pre_tokenizer: cuts text into the pieces that byte-pair merging never crosses, by the Kimi K2 pattern.
//
//   1 [Han]+   2 P? U* D+ C?   3 P? U+ D* C?   4 N{1,3}   5 blank? (not space, letter, number)+ (CR|LF)*
//   6 space* (CR|LF)+   7 space+ (?!\S)   8 space+
// First rule that matches wins, at every place. P: one character that is not CR, LF, letter or number. C: 's 't 're 've
// 'm 'll 'd without regard to case (U+017F counts as s).
#pragma once

#include <unicode/regex.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/character_classes.h"

namespace gimbal {

class PreTokenizer {
 public:
  // `classes` must outlive this object. Any thread may use it.
  explicit PreTokenizer(const CharacterClasses& classes) : classes_(classes) {}

  // The length in bytes of the first piece of `text` (not empty). Linear in the piece, no recursion. Ill-formed UTF-8
  // counts byte by byte as characters of no class.
  size_t first_piece(std::string_view text) const;

  std::vector<std::string_view> split(std::string_view text) const;

  // Decodes the character at `position` (inside the text).
  Character at(std::string_view text, size_t position) const;

 private:
  size_t match_word(std::string_view text, size_t begin) const;
  size_t match_word_core(std::string_view text, size_t begin, bool needs_lower) const;
  size_t match_contraction(std::string_view text, size_t position) const;
  size_t match_symbols(std::string_view text) const;
  size_t match_spaces(std::string_view text) const;
  size_t skip(std::string_view text, size_t position, uint8_t bits) const;

  const CharacterClasses& classes_;
};

// The published pattern, run as it is by ICU's regex engine on well-formed UTF-8. For comparison. Compiled once per
// object; one thread.
class PreTokenizerReference {
 public:
  PreTokenizerReference();
  ~PreTokenizerReference();
  Result<std::vector<std::string>> split(std::string_view text) const;

 private:
  std::unique_ptr<icu::RegexPattern> pattern_;
};

}  // namespace gimbal
