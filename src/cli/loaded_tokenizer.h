// The tokenizer a command works with, from the settings.
#pragma once

#include "base/result.h"
#include "model_config/model_config.h"
#include "settings/settings.h"
#include "tokenizer/tokenizer.h"

namespace gimbal {

// --tokenizer-path or --model-path. With --load-format dummy and no tokenizer files: a made-up vocabulary, with a line
// in `notes`. A vocabulary larger than the model's is refused.
Result<Tokenizer> load_tokenizer(const Settings& settings, const ModelConfig& config, std::vector<std::string>& notes);

// Kimi's models end a turn with <|im_end|> and a text with [EOS], whatever config.json lists: both become end tokens
// where the vocabulary has them, with a line in `notes` for each that was not listed.
void add_end_tokens(const Tokenizer& tokenizer, ModelConfig& config, std::vector<std::string>& notes);

}  // namespace gimbal
