// CharacterClasses: the Unicode sets that the pre-tokenizer's rules name, as bits per code point.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

namespace gimbal {

// Immutable; from ICU's data.
class CharacterClasses {
 public:
  enum Bit : uint8_t {
    kHan = 1,            // Script=Han
    kUpper = 2,          // Lu, Lt, Lm, Lo, M without Han: set U of the rules
    kLower = 4,          // Ll, Lm, Lo, M without Han: set D of the rules
    kLetter = 8,         // L
    kNumber = 16,        // N
    kSpace = 32,         // White_Space
    kNewline = 64,       // CR, LF
    kPythonSpace = 128,  // what Python's str.isspace says: White_Space and U+001C..U+001F
  };

  CharacterClasses();
  uint8_t of(uint32_t code_point) const { return bits_[code_point]; }

 private:
  void add(const char* set_pattern, uint8_t bits);
  std::unique_ptr<uint8_t[]> bits_;  // [0x110000]
};

// One character of a text. Ill-formed UTF-8 is taken byte by byte, each in no class.
struct Character {
  uint32_t code_point = 0;
  uint32_t size = 0;  // bytes
  uint8_t bits = 0;
};

}  // namespace gimbal
