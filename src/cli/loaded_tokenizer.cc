#include "cli/loaded_tokenizer.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

namespace gimbal {

Result<Tokenizer> load_tokenizer(const Settings& settings, const ModelConfig& config, std::vector<std::string>& notes) {
  const std::string& directory = settings.tokenizer_path.empty() ? settings.model_path : settings.tokenizer_path;
  const bool has_files = std::filesystem::exists(std::filesystem::path(directory) / "tiktoken.model");
  if (!has_files && settings.load_format == "dummy" && settings.tokenizer_path.empty()) {
    notes.push_back("tokenizer: no tiktoken.model in " + directory + ", a made-up vocabulary is used");
    return Tokenizer::synthetic(config.vocab_size);
  }
  GIMBAL_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::read(directory));
  if (tokenizer.vocab_size() > config.vocab_size) {
    return fail(Error::invalid(
        fmt::format("The tokenizer in {} has {} ids, more than the model's vocab_size {}. They do not belong together.",
                    directory, tokenizer.vocab_size(), config.vocab_size)));
  }
  return tokenizer;
}

void add_end_tokens(const Tokenizer& tokenizer, ModelConfig& config, std::vector<std::string>& notes) {
  for (const char* name : {"[EOS]", "<|im_end|>"}) {
    const auto id = tokenizer.special_id(name);
    auto& ids = config.eos_token_ids;
    if (!id || std::find(ids.begin(), ids.end(), *id) != ids.end()) continue;
    ids.push_back(*id);
    notes.push_back(fmt::format("{} ({}) ends answers too, although the config does not list it", name, *id));
  }
}

}  // namespace gimbal
