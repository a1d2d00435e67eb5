#include "tokenizer/character_classes.h"

#include <unicode/uniset.h>

#include "base/check.h"

namespace gimbal {

CharacterClasses::CharacterClasses() : bits_(std::make_unique<uint8_t[]>(0x110000)) {
  add("[:Script=Han:]", kHan);
  add("[[:Lu:][:Lt:][:Lm:][:Lo:][:M:]-[:Script=Han:]]", kUpper);
  add("[[:Ll:][:Lm:][:Lo:][:M:]-[:Script=Han:]]", kLower);
  add("[:L:]", kLetter);
  add("[:N:]", kNumber);
  add("[:White_Space:]", kSpace | kPythonSpace);
  add("[\\u001C-\\u001F]", kPythonSpace);
  add("[\\r\\n]", kNewline);
}

void CharacterClasses::add(const char* set_pattern, uint8_t bits) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::UnicodeSet set(icu::UnicodeString::fromUTF8(set_pattern), status);
  GIMBAL_CHECK(U_SUCCESS(status));
  for (int32_t range = 0; range < set.getRangeCount(); ++range) {
    for (UChar32 c = set.getRangeStart(range); c <= set.getRangeEnd(range); ++c) bits_[static_cast<size_t>(c)] |= bits;
  }
}

}  // namespace gimbal
