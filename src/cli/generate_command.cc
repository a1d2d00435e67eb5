#include "cli/generate_command.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/command_error.h"
#include "cli/expert_load_file.h"
#include "cli/jsonl_input.h"
#include "cli/loaded_tokenizer.h"
#include "cli/model_command.h"
#include "cli/progress_bar.h"
#include "engine/engine.h"
#include "tokenizer/incremental_detokenizer.h"

namespace gimbal {
namespace {

struct Prompt {
  std::string id;
  std::vector<TokenId> ids;
};

// What came of one prompt. Written by the engine's thread, read after is_done under the mutex.
struct Continuation {
  std::vector<TokenId> ids;
  std::vector<std::vector<TopLogit>> top;  // [ids][--top-logits]
  std::string text;
  std::optional<FinishReason> finish;
  std::optional<Error> error;
  bool is_done = false;
};

Result<std::vector<Prompt>> read_prompts(const Settings& settings, const Tokenizer& tokenizer,
                                         const ModelConfig& config) {
  if (settings.input.empty() == settings.prompt.empty()) {
    return fail(Error::invalid("Exactly one of --prompt TEXT and --input FILE.jsonl is needed.", "--prompt"));
  }
  if (settings.input.empty())
    return std::vector<Prompt>{{"0", tokenizer.encode(settings.prompt, SpecialTokens::kRecognized)}};
  GIMBAL_ASSIGN_OR_RETURN(const std::vector<JsonLine> lines, read_json_lines(settings.input));
  std::vector<Prompt> prompts;
  for (const JsonLine& line : lines) {
    Prompt prompt;
    GIMBAL_ASSIGN_OR_RETURN(prompt.id, read_line_id(line));
    const char* text_key = line.object.contains("prompt") ? "prompt" : "text";
    GIMBAL_ASSIGN_OR_RETURN(
        prompt.ids,
        read_line_tokens(line, {.tokenizer = &tokenizer, .vocab_size = config.vocab_size, .text_key = text_key}));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

SamplingOptions sampling_of(const Settings& settings) {
  return {.temperature = static_cast<float>(settings.temperature),
          .top_p = static_cast<float>(settings.top_p),
          .top_k = static_cast<int32_t>(settings.top_k),
          .min_p = static_cast<float>(settings.min_p),
          .seed = static_cast<uint64_t>(settings.seed),
          .max_new_tokens = settings.max_new_tokens,
          .ignore_eos = settings.ignore_eos};
}

// ,"top_ids":[[..]..],"top_logits":[[..]..], or nothing when none were asked for.
std::string top_logits_text(const Continuation& continuation) {
  std::string ids, logits;
  for (const std::vector<TopLogit>& row : continuation.top) {
    std::string row_ids, row_logits;
    for (const TopLogit& top : row) {
      row_ids += fmt::format("{}{}", row_ids.empty() ? "" : ",", top.id);
      row_logits += fmt::format("{}{}", row_logits.empty() ? "" : ",", top.logit);
    }
    ids += fmt::format("{}[{}]", ids.empty() ? "" : ",", row_ids);
    logits += fmt::format("{}[{}]", logits.empty() ? "" : ",", row_logits);
  }
  return ids.empty() ? "" : fmt::format(",\"top_ids\":[{}],\"top_logits\":[{}]", ids, logits);
}

void print_json_line(const Prompt& prompt, const Continuation& continuation) {
  fmt::print("{{\"id\":{},\"prompt_ids\":[{}],\"output_ids\":[{}],\"text\":{},\"finish_reason\":\"{}\"{}}}\n",
             boost::json::serialize(boost::json::string_view(prompt.id)), fmt::join(prompt.ids, ","),
             fmt::join(continuation.ids, ","), boost::json::serialize(boost::json::string_view(continuation.text)),
             name_of(*continuation.finish), top_logits_text(continuation));
  std::fflush(stdout);
}

// Runs all prompts through the engine and prints each when it and those before it are done.
class GenerateRun {
 public:
  GenerateRun(Engine& engine, const Tokenizer& tokenizer, const Settings& settings)
      : engine_(engine), tokenizer_(tokenizer), settings_(settings) {}

  Status run(const std::vector<Prompt>& prompts) {
    continuations_.resize(prompts.size());
    ProgressBar progress("generate", static_cast<int64_t>(prompts.size()), "prompts");
    size_t num_submitted = 0;
    for (size_t i = 0; i < prompts.size(); ++i) {
      for (; num_submitted < prompts.size() && num_submitted < i + kMaxInFlight; ++num_submitted) {
        GIMBAL_RETURN_IF_ERROR(submit(prompts[num_submitted], num_submitted));
      }
      const Continuation& continuation = wait_for(i);
      if (continuation.error) return fail(*continuation.error);
      if (is_streaming()) {
        fmt::print("\n");
      } else {
        print_json_line(prompts[i], continuation);
      }
      if (!is_streaming()) progress.advance(1);
    }
    progress.finish();
    return {};
  }

 private:
  static constexpr size_t kMaxInFlight = 64;

  bool is_streaming() const { return settings_.input.empty() && !settings_.print_json; }

  Status submit(const Prompt& prompt, size_t index) {
    auto detokenizer = std::make_shared<IncrementalDetokenizer>(tokenizer_, /*skip_special_tokens=*/true);
    return engine_.gateway().submit(
        {.request_id = fmt::format("{}", index),
         .prompt_ids = prompt.ids,
         .sampling = sampling_of(settings_),
         .num_top_logits = std::max<int64_t>(settings_.top_logits, 0)},
        [this, index, detokenizer](const TokenEvent& event) { take(index, event, *detokenizer); });
  }

  void take(size_t index, const TokenEvent& event, IncrementalDetokenizer& detokenizer) {
    std::string text;
    if (event.token_id && !event.is_end_token) text = detokenizer.append(*event.token_id);
    if (event.finish) text += detokenizer.flush();
    if (is_streaming()) {
      fmt::print("{}", text);
      std::fflush(stdout);
    }
    const std::lock_guard lock(mutex_);
    Continuation& continuation = continuations_[index];
    if (event.token_id) continuation.ids.push_back(*event.token_id);
    if (!event.score.top.empty()) continuation.top.push_back(event.score.top);
    continuation.text += text;
    continuation.finish = event.finish;
    continuation.error = event.error;
    continuation.is_done = event.finish.has_value() || event.error.has_value();
    if (continuation.is_done) done_.notify_all();
  }

  const Continuation& wait_for(size_t index) {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return continuations_[index].is_done; });
    return continuations_[index];
  }

  Engine& engine_;
  const Tokenizer& tokenizer_;
  const Settings& settings_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<Continuation> continuations_;  // guarded by mutex_ until is_done
};

Status generate(const Settings& settings, const ModelConfig& model_config, MpiSession* mpi) {
  ModelConfig config = model_config;
  GIMBAL_RETURN_IF_ERROR(check_expert_load_path(settings.expert_load_output));
  std::vector<std::string> notes;
  GIMBAL_ASSIGN_OR_RETURN(const Tokenizer tokenizer, load_tokenizer(settings, config, notes));
  add_end_tokens(tokenizer, config, notes);
  GIMBAL_ASSIGN_OR_RETURN(const std::vector<Prompt> prompts, read_prompts(settings, tokenizer, config));
  GIMBAL_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::start(settings, config, mpi));
  notes.insert(notes.end(), engine->description().notes.begin(), engine->description().notes.end());
  print_notes(notes);
  // A run that ends early must not leave callbacks that point to it: the engine stops first.
  GenerateRun run(*engine, tokenizer, settings);
  Status status = run.run(prompts);
  engine->stop();
  if (!status || settings.expert_load_output.empty()) return status;
  GIMBAL_ASSIGN_OR_RETURN(const std::vector<RankReport> reports, engine->reports());
  return write_expert_load(settings.expert_load_output, reports);
}

}  // namespace

int run_generate_command(const Settings& settings) {
  return report_status("generate", run_model_command(settings, [&](const ModelConfig& config, MpiSession* mpi) {
                         return generate(settings, config, mpi);
                       }));
}

}  // namespace gimbal
