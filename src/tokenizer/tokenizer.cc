#include "tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <unordered_map>

#include "base/file_text.h"
#include "tokenizer/byte_pair_encoder.h"
#include "tokenizer/character_classes.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/token_table.h"
#include "tokenizer/vocabulary_file.h"

namespace gimbal {
namespace {

// The reference wrapper's safety cuts: so many characters at a time, and so many of one class (space or not) in a row.
constexpr size_t kCharactersPerSlice = 400000;
constexpr size_t kLongestRun = 25000;

// Names and slots of the Kimi family, for a made-up vocabulary.
constexpr std::array<std::pair<int, const char*>, 23> kKimiSlots = {{{0, "[BOS]"},
                                                                     {1, "[EOS]"},
                                                                     {2, "<|im_end|>"},
                                                                     {3, "<|im_user|>"},
                                                                     {4, "<|im_assistant|>"},
                                                                     {6, "<|start_header_id|>"},
                                                                     {7, "<|end_header_id|>"},
                                                                     {9, "[EOT]"},
                                                                     {10, "<|im_system|>"},
                                                                     {11, "<|tool_calls_section_begin|>"},
                                                                     {12, "<|tool_calls_section_end|>"},
                                                                     {13, "<|tool_call_begin|>"},
                                                                     {14, "<|tool_call_argument_begin|>"},
                                                                     {15, "<|tool_call_end|>"},
                                                                     {17, "<|im_middle|>"},
                                                                     {18, "<|media_begin|>"},
                                                                     {19, "<|media_content|>"},
                                                                     {20, "<|media_end|>"},
                                                                     {21, "<|media_pad|>"},
                                                                     {22, "<think>"},
                                                                     {23, "</think>"},
                                                                     {254, "[UNK]"},
                                                                     {255, "[PAD]"}}};

}  // namespace

struct Tokenizer::Data {
  Data(std::vector<std::string> base_tokens, std::vector<SpecialToken> special_tokens)
      : tokens(std::move(base_tokens)), specials(std::move(special_tokens)), table(tokens), pre_tokenizer(classes) {
    for (size_t slot = 0; slot < specials.size(); ++slot) {
      const std::string& text = specials[slot].text;
      special_ids.emplace(text, static_cast<TokenId>(tokens.size() + slot));
      first_bytes.set(static_cast<uint8_t>(text.front()));
      if (std::find(special_sizes.begin(), special_sizes.end(), text.size()) == special_sizes.end())
        special_sizes.push_back(text.size());
    }
    std::sort(special_sizes.rbegin(), special_sizes.rend());  // the longest match wins
  }

  // The special that starts at `position`, if any.
  std::optional<std::pair<TokenId, size_t>> special_at(std::string_view text, size_t position) const {
    for (const size_t size : special_sizes) {
      if (size > text.size() - position) continue;
      const auto found = special_ids.find(text.substr(position, size));
      if (found != special_ids.end()) return std::pair{found->second, size};
    }
    return std::nullopt;
  }

  void encode_ordinary(std::string_view text, MergeScratch& scratch, std::vector<TokenId>& ids) const {
    while (!text.empty()) {
      const size_t size = pre_tokenizer.first_piece(text);
      encode_piece(table, text.substr(0, size), scratch, ids);
      text.remove_prefix(size);
    }
  }

  void encode_with_specials(std::string_view text, MergeScratch& scratch, std::vector<TokenId>& ids) const {
    size_t begin = 0;
    for (size_t position = 0; position < text.size();) {
      const auto special =
          first_bytes.test(static_cast<uint8_t>(text[position])) ? special_at(text, position) : std::nullopt;
      if (!special) {
        ++position;
        continue;
      }
      encode_ordinary(text.substr(begin, position - begin), scratch, ids);
      ids.push_back(special->first);
      position += special->second;
      begin = position;
    }
    encode_ordinary(text.substr(begin), scratch, ids);
  }

  // The end of the first slice of `text` under the safety cuts.
  size_t first_slice(std::string_view text, size_t& characters_left) const {
    size_t run = 0;
    uint8_t run_class = 0;
    for (size_t position = 0; position < text.size();) {
      if (characters_left == 0) {
        characters_left = kCharactersPerSlice;
        return position;
      }
      const Character c = pre_tokenizer.at(text, position);
      const uint8_t this_class = c.bits & CharacterClasses::kPythonSpace;
      run = run > 0 && this_class == run_class ? run + 1 : 1;
      run_class = this_class;
      if (run > kLongestRun) return position;
      position += c.size;
      --characters_left;
    }
    return text.size();
  }

  std::vector<std::string> tokens;
  std::vector<SpecialToken> specials;
  TokenTable table;
  CharacterClasses classes;
  PreTokenizer pre_tokenizer;
  std::unordered_map<std::string_view, TokenId> special_ids;  // views into `specials`
  std::vector<size_t> special_sizes;
  std::bitset<256> first_bytes;
  std::vector<std::string> notes;
};

Tokenizer::Tokenizer(std::unique_ptr<const Data> data) : data_(std::move(data)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Result<Tokenizer> Tokenizer::parse(std::string_view tiktoken_text, std::string_view config_text,
                                   std::string_view directory) {
  const std::string prefix = directory.empty() ? "" : std::string(directory) + "/";
  GIMBAL_ASSIGN_OR_RETURN(std::vector<std::string> tokens,
                          parse_tiktoken_file(tiktoken_text, prefix + "tiktoken.model"));
  GIMBAL_ASSIGN_OR_RETURN(
      std::vector<SpecialToken> specials,
      parse_special_tokens(config_text, static_cast<int64_t>(tokens.size()), prefix + "tokenizer_config.json"));
  auto data = std::make_unique<Data>(std::move(tokens), std::move(specials));
  if (config_text.empty())
    data->notes.push_back("tokenizer: there is no tokenizer_config.json, special tokens have reserved names only");
  return Tokenizer(std::move(data));
}

Result<Tokenizer> Tokenizer::read(const std::filesystem::path& model_dir) {
  GIMBAL_ASSIGN_OR_RETURN(const std::string tiktoken_text, read_file_text(model_dir / "tiktoken.model"));
  const std::filesystem::path config_path = model_dir / "tokenizer_config.json";
  std::error_code code;
  std::string config_text;
  if (std::filesystem::exists(config_path, code)) {
    GIMBAL_ASSIGN_OR_RETURN(config_text, read_file_text(config_path));
    if (config_text.empty()) return fail(Error::invalid(fmt::format("{} is empty.", config_path.string())));
  }
  return parse(tiktoken_text, config_text, model_dir.string());
}

Result<Tokenizer> Tokenizer::synthetic(int64_t vocab_size) {
  const int64_t num_base = vocab_size - kNumSpecialSlots;
  if (num_base < 256) {
    return fail(
        Error::invalid(fmt::format("A made-up tokenizer needs a vocab_size of at least {}; config.json says {}.",
                                   256 + kNumSpecialSlots, vocab_size)));
  }
  std::vector<std::string> tokens;
  tokens.reserve(static_cast<size_t>(num_base));
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (int64_t id = 256; id < num_base; ++id) tokens.push_back(fmt::format(" w{}", id));
  std::vector<SpecialToken> specials(kNumSpecialSlots);
  for (size_t slot = 0; slot < specials.size(); ++slot)
    specials[slot].text = fmt::format("<|reserved_token_{}|>", num_base + static_cast<int64_t>(slot));
  for (const auto& [slot, name] : kKimiSlots) {
    specials[static_cast<size_t>(slot)] = {name, !std::string_view(name).ends_with("think>")};
  }
  return Tokenizer(std::make_unique<Data>(std::move(tokens), std::move(specials)));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, SpecialTokens special_tokens) const {
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3 + 8);
  MergeScratch scratch;
  size_t characters_left = kCharactersPerSlice;
  while (!text.empty()) {
    // No cut can fall into a text that is shorter in bytes than the shortest cut is in characters.
    const size_t size = text.size() <= kLongestRun && characters_left >= text.size()
                            ? text.size()
                            : data_->first_slice(text, characters_left);
    const std::string_view slice = text.substr(0, size);
    if (special_tokens == SpecialTokens::kRecognized) {
      data_->encode_with_specials(slice, scratch, ids);
    } else {
      data_->encode_ordinary(slice, scratch, ids);
    }
    text.remove_prefix(size);
  }
  return ids;
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  if (id < 0 || id >= vocab_size()) return {};
  if (is_special(id)) return data_->specials[static_cast<size_t>(id - base_vocab_size())].text;
  return data_->tokens[static_cast<size_t>(id)];
}

bool Tokenizer::is_special(TokenId id) const { return id >= base_vocab_size() && id < vocab_size(); }

bool Tokenizer::is_skipped_when_decoding(TokenId id) const {
  return is_special(id) && data_->specials[static_cast<size_t>(id - base_vocab_size())].is_skipped;
}

std::optional<TokenId> Tokenizer::special_id(std::string_view text) const {
  const auto found = data_->special_ids.find(text);
  if (found == data_->special_ids.end()) return std::nullopt;
  return found->second;
}

int64_t Tokenizer::base_vocab_size() const { return static_cast<int64_t>(data_->tokens.size()); }

int64_t Tokenizer::vocab_size() const { return base_vocab_size() + kNumSpecialSlots; }

int64_t Tokenizer::min_tokens_for(uint64_t bytes) const {
  const uint64_t longest = std::max<uint64_t>(data_->table.longest(), data_->special_sizes.front());
  return static_cast<int64_t>((bytes + longest - 1) / longest);
}

std::vector<std::string_view> Tokenizer::pre_tokenize(std::string_view text) const {
  return data_->pre_tokenizer.split(text);
}

const std::vector<std::string>& Tokenizer::notes() const { return data_->notes; }

}  // namespace gimbal
