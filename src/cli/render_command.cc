#include "cli/render_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/json/serialize.hpp>

#include "cli/command_error.h"
#include "cli/jsonl_input.h"
#include "cli/loaded_tokenizer.h"
#include "conversation/chat_request.h"

namespace gimbal {
namespace {

Status render(const Settings& settings) {
  GIMBAL_ASSIGN_OR_RETURN(const ModelConfig config, read_model_config(settings.model_path));
  std::vector<std::string> notes;
  GIMBAL_ASSIGN_OR_RETURN(const Tokenizer tokenizer, load_tokenizer(settings, config, notes));
  GIMBAL_ASSIGN_OR_RETURN(const ChatTemplateKind kind,
                          parse_chat_template(settings.chat_template, config.has_vision_part));
  GIMBAL_ASSIGN_OR_RETURN(const std::vector<JsonLine> lines, read_json_lines(settings.input));
  std::string output;  // printed only when every line is sound
  for (const JsonLine& line : lines) {
    const auto request = read_chat_request(line.object);
    if (!request) return fail(Error::invalid(fmt::format("{}: {}", line.where, request.error().message)));
    const std::vector<PromptSegment> segments = render_chat(kind, request->messages, request->options);
    output += fmt::format("{{\"rendered\":{},\"ids\":[{}]}}\n",
                          boost::json::serialize(boost::json::string_view(join_segments(segments))),
                          fmt::join(encode_segments(segments, tokenizer), ","));
  }
  print_notes(notes);
  fmt::print("{}", output);
  return {};
}

}  // namespace

int run_render_command(const Settings& settings) { return report_status("render", render(settings)); }

}  // namespace gimbal
