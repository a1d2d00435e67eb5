#include "tokenizer/pre_tokenizer.h"

#include <unicode/utf8.h>

#include "base/check.h"

namespace gimbal {
namespace {

using Bits = CharacterClasses;

constexpr char kPattern[] =
    R"([\p{Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Lower case for the letters of the contractions; other characters become 0.
char contraction_letter(uint32_t code_point) {
  if (code_point == 0x17f) return 's';
  if (code_point >= 'A' && code_point <= 'Z') return static_cast<char>(code_point + 32);
  if (code_point >= 'a' && code_point <= 'z') return static_cast<char>(code_point);
  return 0;
}

}  // namespace

Character PreTokenizer::at(std::string_view text, size_t position) const {
  const auto first = static_cast<uint8_t>(text[position]);
  if (first < 0x80) return {first, 1, classes_.of(first)};
  auto next = static_cast<int32_t>(position);
  UChar32 code_point = 0;
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  U8_NEXT(bytes, next, static_cast<int32_t>(text.size()), code_point);
  if (code_point < 0) return {0xfffd, 1, 0};
  return {static_cast<uint32_t>(code_point), static_cast<uint32_t>(next) - static_cast<uint32_t>(position),
          classes_.of(static_cast<uint32_t>(code_point))};
}

size_t PreTokenizer::skip(std::string_view text, size_t position, uint8_t bits) const {
  while (position < text.size()) {
    const Character c = at(text, position);
    if ((c.bits & bits) == 0) break;
    position += c.size;
  }
  return position;
}

size_t PreTokenizer::match_contraction(std::string_view text, size_t position) const {
  if (position >= text.size() || text[position] != '\'' || position + 1 >= text.size()) return position;
  const Character first = at(text, position + 1);
  const size_t after_first = position + 1 + first.size;
  const char letter = contraction_letter(first.code_point);
  if (letter == 's' || letter == 't' || letter == 'm' || letter == 'd') return after_first;
  if (after_first >= text.size()) return position;
  const Character second = at(text, after_first);
  const char next = contraction_letter(second.code_point);
  const bool is_pair = ((letter == 'r' || letter == 'v') && next == 'e') || (letter == 'l' && next == 'l');
  return is_pair ? after_first + second.size : position;
}

// Rule 2 (needs_lower: U* D+) or rule 3 (U+ D*) from `begin`, without P and C. Returns `begin` when nothing matches.
size_t PreTokenizer::match_word_core(std::string_view text, size_t begin, bool needs_lower) const {
  size_t position = begin;
  size_t after_last_both = begin;  // behind the last character that is in U and in D: where U* may give back to
  while (position < text.size()) {
    const Character c = at(text, position);
    if ((c.bits & Bits::kUpper) == 0) break;
    position += c.size;
    if ((c.bits & Bits::kLower) != 0) after_last_both = position;
  }
  const size_t after_lower = skip(text, position, Bits::kLower);
  if (!needs_lower) return position == begin ? begin : after_lower;
  return after_lower > position ? after_lower : after_last_both;
}

size_t PreTokenizer::match_word(std::string_view text, size_t begin) const {
  const Character first = at(text, begin);
  const bool can_be_prefix = (first.bits & (Bits::kNewline | Bits::kLetter | Bits::kNumber)) == 0;
  for (const bool needs_lower : {true, false}) {
    if (can_be_prefix && first.size < text.size()) {
      const size_t end = match_word_core(text, begin + first.size, needs_lower);
      if (end > begin + first.size) return match_contraction(text, end);
    }
    const size_t end = match_word_core(text, begin, needs_lower);
    if (end > begin) return match_contraction(text, end);
  }
  return begin;
}

size_t PreTokenizer::match_symbols(std::string_view text) const {
  constexpr uint8_t kNotSymbol = Bits::kSpace | Bits::kLetter | Bits::kNumber;
  const size_t begin = text[0] == ' ' ? 1 : 0;
  size_t position = begin;
  while (position < text.size()) {
    const Character c = at(text, position);
    if ((c.bits & kNotSymbol) != 0) break;
    position += c.size;
  }
  return position == begin ? 0 : skip(text, position, Bits::kNewline);
}

size_t PreTokenizer::match_spaces(std::string_view text) const {
  size_t position = 0, after_newline = 0, before_last = 0;
  while (position < text.size()) {
    const Character c = at(text, position);
    if ((c.bits & Bits::kSpace) == 0) break;
    before_last = position;
    position += c.size;
    if ((c.bits & Bits::kNewline) != 0) after_newline = position;
  }
  if (after_newline > 0) return after_newline;
  const bool is_before_text = position < text.size();
  return is_before_text && before_last > 0 ? before_last : position;
}

size_t PreTokenizer::first_piece(std::string_view text) const {
  const Character first = at(text, 0);
  if ((first.bits & Bits::kHan) != 0) return skip(text, 0, Bits::kHan);
  if (const size_t end = match_word(text, 0); end > 0) return end;
  if ((first.bits & Bits::kNumber) != 0) {
    size_t position = 0;
    for (int count = 0; count < 3 && position < text.size(); ++count) {
      const Character c = at(text, position);
      if ((c.bits & Bits::kNumber) == 0) break;
      position += c.size;
    }
    return position;
  }
  if (const size_t end = match_symbols(text); end > 0) return end;
  return match_spaces(text);
}

std::vector<std::string_view> PreTokenizer::split(std::string_view text) const {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    pieces.push_back(text.substr(0, first_piece(text)));
    text.remove_prefix(pieces.back().size());
  }
  return pieces;
}

PreTokenizerReference::PreTokenizerReference() {
  UErrorCode status = U_ZERO_ERROR;
  UParseError where;
  pattern_.reset(icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(kPattern), where, status));
  GIMBAL_CHECK(U_SUCCESS(status));
}

PreTokenizerReference::~PreTokenizerReference() = default;

Result<std::vector<std::string>> PreTokenizerReference::split(std::string_view text) const {
  UErrorCode status = U_ZERO_ERROR;
  const icu::UnicodeString subject = icu::UnicodeString::fromUTF8({text.data(), static_cast<int32_t>(text.size())});
  const std::unique_ptr<icu::RegexMatcher> matcher(pattern_->matcher(subject, status));
  std::vector<std::string> pieces;
  while (U_SUCCESS(status) && matcher->find(status)) matcher->group(status).toUTF8String(pieces.emplace_back());
  if (U_FAILURE(status)) return fail(Error::failed(std::string("ICU: ") + u_errorName(status)));
  return pieces;
}

}  // namespace gimbal
