#include "cli/command_list.h"

#include <array>

#include "cli/check_command.h"
#include "cli/generate_command.h"
#include "cli/render_command.h"
#include "cli/score_command.h"
#include "cli/serve_command.h"
#include "cli/synth_command.h"

namespace gimbal {

std::span<const Command> command_list() {
  static constexpr std::array<Command, 6> kCommands = {{
      {"serve", "answer requests over HTTP (OpenAI's and SGLang's forms)", run_serve_command},
      {"generate", "continue prompts without a server", run_generate_command},
      {"score", "negative log-likelihoods and top logits of texts", run_score_command},
      {"check", "compare a checkpoint's headers with its config, without reading weights", run_check_command},
      {"synth", "write a random checkpoint of any dimensions", run_synth_command},
      {"render", "show the prompt text and ids of chat requests", run_render_command},
  }};
  return kCommands;
}

}  // namespace gimbal
