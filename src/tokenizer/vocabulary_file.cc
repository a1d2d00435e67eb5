#include "tokenizer/vocabulary_file.h"

#include <fmt/format.h>

#include <array>
#include <bitset>
#include <charconv>
#include <optional>
#include <unordered_map>

#include "base/git_lfs_pointer.h"
#include "base/json_reading.h"

namespace gimbal {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 24;
constexpr size_t kLongestToken = 4096;

// The value of a base64 digit (RFC 4648), -1 for other characters.
int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  return -1;
}

// Strict: whole groups of four, padding at the end only, no stray bits.
std::optional<std::string> decode_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  std::string bytes;
  for (size_t group = 0; group < text.size(); group += 4) {
    const bool is_last = group + 4 == text.size();
    int num_padding = 0;
    uint32_t word = 0;
    for (size_t i = 0; i < 4; ++i) {
      const char c = text[group + i];
      const int digit = base64_digit(c);
      if (digit < 0) {
        if (c != '=' || !is_last || i < 2) return std::nullopt;
        ++num_padding;
      } else if (num_padding > 0) {
        return std::nullopt;
      }
      word = word << 6 | static_cast<uint32_t>(digit < 0 ? 0 : digit);
    }
    if ((num_padding == 1 && (word & 0xff) != 0) || (num_padding == 2 && (word & 0xffff) != 0)) return std::nullopt;
    bytes += static_cast<char>(word >> 16);
    if (num_padding < 2) bytes += static_cast<char>(word >> 8 & 0xff);
    if (num_padding < 1) bytes += static_cast<char>(word & 0xff);
  }
  return bytes;
}

// The lines of a tiktoken file, put at their ranks.
class TiktokenLines {
 public:
  explicit TiktokenLines(std::string_view path) : path_(path) {}

  Status add(std::string_view line, int64_t number) {
    const auto refuse = [&](const std::string& why) {
      return fail(Error::invalid(fmt::format("{}, line {}: {}.", path_, number, why)));
    };
    const size_t blank = line.find(' ');
    if (blank == std::string_view::npos) return refuse("\"base64 rank\" is expected, there is no blank");
    const auto token = decode_base64(line.substr(0, blank));
    if (!token) return refuse("the token is not valid base64");
    if (token->size() > kLongestToken)
      return refuse(fmt::format("the token has {} bytes, at most {} are read", token->size(), kLongestToken));
    const std::string_view digits = line.substr(blank + 1);
    int64_t rank = -1;
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (code != std::errc() || end != digits.data() + digits.size() || rank < 0 || rank >= kMostTokens) {
      return refuse(fmt::format("the rank '{}' is not a number from 0 to {}", digits.substr(0, 40), kMostTokens - 1));
    }
    if (rank != static_cast<int64_t>(tokens_.size())) {
      return refuse(fmt::format("the rank is {}, but {} comes next; ranks must rise one by one", rank, tokens_.size()));
    }
    if (const auto [found, is_new] = lines_.emplace(*token, number); !is_new)
      return refuse(fmt::format("the token stands in line {} already", found->second));
    if (token->size() == 1) bytes_seen_.set(static_cast<uint8_t>(token->front()));
    tokens_.push_back(*token);
    return {};
  }

  Result<std::vector<std::string>> finish() {
    if (tokens_.empty()) return fail(Error::invalid(fmt::format("{} holds no tokens.", path_)));
    for (size_t byte = 0; byte < 256; ++byte) {
      if (!bytes_seen_.test(byte)) {
        return fail(Error::invalid(
            fmt::format("{}: the single byte 0x{:02x} has no token ({} of 256 bytes have one); the file is incomplete.",
                        path_, byte, bytes_seen_.count())));
      }
    }
    return std::move(tokens_);
  }

 private:
  std::string path_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int64_t> lines_;
  std::bitset<256> bytes_seen_;
};

Status read_special_token(std::string_view key, const boost::json::value& value, int64_t num_base_tokens,
                          std::vector<SpecialToken>& slots) {
  const auto refuse = [&](const std::string& why) {
    return fail(Error::invalid(fmt::format("added_tokens_decoder, entry \"{}\": {}.", key, why)));
  };
  int64_t id = -1;
  const auto [end, code] = std::from_chars(key.data(), key.data() + key.size(), id);
  if (code != std::errc() || end != key.data() + key.size()) return refuse("the key is not a token id");
  if (id < num_base_tokens || id >= num_base_tokens + kNumSpecialSlots) {
    return refuse(
        fmt::format("the id is outside the special slots {} to {} that follow the {} tokens of tiktoken.model",
                    num_base_tokens, num_base_tokens + kNumSpecialSlots - 1, num_base_tokens));
  }
  const boost::json::value* content = value.is_object() ? value.get_object().if_contains("content") : nullptr;
  if (content == nullptr || !content->is_string() || content->get_string().empty())
    return refuse("\"content\" must be a text that is not empty");
  SpecialToken& slot = slots[static_cast<size_t>(id - num_base_tokens)];
  slot.text = std::string(content->get_string());
  if (const boost::json::value* special = value.get_object().if_contains("special")) {
    if (!special->is_bool()) return refuse("\"special\" must be true or false");
    slot.is_skipped = special->get_bool();
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> parse_tiktoken_file(std::string_view text, std::string_view path) {
  if (const auto pointer = parse_git_lfs_pointer(text)) {
    return fail(Error::invalid(fmt::format("line 1: {}", describe_git_lfs_pointer(path, text.size(), *pointer))));
  }
  TiktokenLines lines(path);
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    GIMBAL_RETURN_IF_ERROR(lines.add(line, number));
  }
  return lines.finish();
}

Result<std::vector<SpecialToken>> parse_special_tokens(std::string_view config_text, int64_t num_base_tokens,
                                                       std::string_view path) {
  std::vector<SpecialToken> slots(kNumSpecialSlots);
  for (size_t slot = 0; slot < slots.size(); ++slot)
    slots[slot].text = fmt::format("<|reserved_token_{}|>", num_base_tokens + static_cast<int64_t>(slot));
  if (config_text.empty()) return slots;
  GIMBAL_ASSIGN_OR_RETURN(const boost::json::value document, parse_json(config_text, path));
  const boost::json::value* added =
      document.is_object() ? document.get_object().if_contains("added_tokens_decoder") : nullptr;
  if (added == nullptr || added->is_null()) return slots;
  if (!added->is_object())
    return fail(Error::invalid(fmt::format("{}: added_tokens_decoder must be an object.", path)));
  for (const auto& entry : added->get_object()) {
    if (const Status status = read_special_token(entry.key(), entry.value(), num_base_tokens, slots); !status) {
      return fail(Error::invalid(fmt::format("{}: {}", path, status.error().message)));
    }
  }
  std::unordered_map<std::string_view, size_t> seen;
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    if (const auto [found, is_new] = seen.emplace(slots[slot].text, slot); !is_new) {
      return fail(Error::invalid(fmt::format("{}: the special token '{}' has two ids, {} and {}.", path,
                                             slots[slot].text, num_base_tokens + static_cast<int64_t>(found->second),
                                             num_base_tokens + static_cast<int64_t>(slot))));
    }
  }
  return slots;
}

}  // namespace gimbal
