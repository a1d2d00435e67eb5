#include "cli/score_command.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/command_error.h"
#include "cli/expert_load_file.h"
#include "cli/jsonl_input.h"
#include "cli/loaded_tokenizer.h"
#include "cli/model_command.h"
#include "cli/progress_bar.h"
#include "cli/sequence_scorer.h"

namespace gimbal {
namespace {

constexpr int64_t kDefaultTopLogits = 8;

Result<std::vector<ScoredSequence>> read_sequences(const Settings& settings, const TokenSource& source,
                                                   int64_t context_length) {
  GIMBAL_ASSIGN_OR_RETURN(const std::vector<JsonLine> lines, read_json_lines(settings.input));
  std::vector<ScoredSequence> sequences;
  for (const JsonLine& line : lines) {
    ScoredSequence sequence;
    GIMBAL_ASSIGN_OR_RETURN(sequence.id, read_line_id(line));
    GIMBAL_ASSIGN_OR_RETURN(sequence.ids, read_line_tokens(line, source));
    const auto length = static_cast<int64_t>(sequence.ids.size());
    if (length == 0)
      return fail(Error::invalid(fmt::format("{}: there is nothing to score, the text is empty.", line.where)));
    if (length > context_length) {
      return fail(Error::invalid(fmt::format("{}: {} tokens do not fit the context length of {} tokens.", line.where,
                                             length, context_length)));
    }
    sequences.push_back(std::move(sequence));
  }
  return sequences;
}

// Floats are written with the fewest digits that read back as the same value.
void write_sequence(std::ofstream& output, const ScoredSequence& sequence) {
  std::string text =
      fmt::format("{{\"id\":{},\"ids\":[{}],\"nll\":[null",
                  boost::json::serialize(boost::json::string_view(sequence.id)), fmt::join(sequence.ids, ","));
  for (const double nll : sequence.nll) fmt::format_to(std::back_inserter(text), ",{}", nll);
  std::string ids, logits;
  for (const std::vector<TopLogit>& row : sequence.top) {
    ids += ids.empty() ? "[" : ",[";
    logits += logits.empty() ? "[" : ",[";
    for (size_t i = 0; i < row.size(); ++i) {
      fmt::format_to(std::back_inserter(ids), "{}{}", i == 0 ? "" : ",", row[i].id);
      fmt::format_to(std::back_inserter(logits), "{}{}", i == 0 ? "" : ",", row[i].logit);
    }
    ids += ']';
    logits += ']';
  }
  output << text << "],\"top_ids\":[" << ids << "],\"top_logits\":[" << logits << "]}\n";
}

Status write_scores(const Settings& settings, RankExecutor& executor, std::vector<ScoredSequence> sequences) {
  // Written beside and renamed at the end, so that a file with the wanted name is always complete.
  const std::string partial = settings.output + ".partial";
  std::ofstream output(partial, std::ios::binary);
  if (!output) return fail(Error::invalid(fmt::format("--output {} cannot be written.", settings.output), "--output"));
  double total_nll = 0.0;
  int64_t num_tokens = 0;
  bool is_finite = true;
  ProgressBar progress("score", static_cast<int64_t>(sequences.size()), "sequences");
  SequenceScorer scorer(executor, settings.top_logits < 0 ? kDefaultTopLogits : settings.top_logits);
  Status status = scorer.run(std::move(sequences), [&](const ScoredSequence& sequence) {
    for (const double nll : sequence.nll) {
      total_nll += nll;
      is_finite = is_finite && std::isfinite(nll);
    }
    num_tokens += static_cast<int64_t>(sequence.nll.size());
    write_sequence(output, sequence);
    progress.advance(1);
  });
  progress.finish();
  std::error_code code;
  if (!status) {
    std::filesystem::remove(partial, code);
    return status;
  }
  const double mean = num_tokens > 0 ? total_nll / static_cast<double>(num_tokens) : 0.0;
  output << fmt::format("{{\"perplexity\":{},\"tokens\":{}}}\n", std::exp(mean), num_tokens);
  output.close();
  if (!is_finite) {
    std::filesystem::remove(partial, code);
    return fail(
        Error::failed("The model computed values that are not numbers; the weights or the machine are at fault. Check "
                      "the files with `gimbal check`."));
  }
  if (output) std::filesystem::rename(partial, settings.output, code);
  if (!output || code)
    return fail(Error::failed(fmt::format("{} could not be written completely; is the disk full?", settings.output)));
  fmt::print(stderr, "perplexity {:.4f} over {} tokens, written to {}\n", std::exp(mean), num_tokens, settings.output);
  return {};
}

Status score(const Settings& settings, const ModelConfig& config, MpiSession* mpi) {
  GIMBAL_RETURN_IF_ERROR(check_expert_load_path(settings.expert_load_output));
  std::vector<std::string> notes;
  GIMBAL_ASSIGN_OR_RETURN(const Tokenizer tokenizer, load_tokenizer(settings, config, notes));
  const int64_t context_length = settings.context_length > 0 ? settings.context_length : config.max_position_embeddings;
  GIMBAL_ASSIGN_OR_RETURN(
      std::vector<ScoredSequence> sequences,
      read_sequences(settings, {.tokenizer = &tokenizer, .vocab_size = config.vocab_size}, context_length));
  GIMBAL_ASSIGN_OR_RETURN(const std::unique_ptr<RankExecutor> executor, RankExecutor::start(settings, config, mpi));
  notes.insert(notes.end(), executor->description().notes.begin(), executor->description().notes.end());
  print_notes(notes);
  GIMBAL_RETURN_IF_ERROR(write_scores(settings, *executor, std::move(sequences)));
  if (settings.expert_load_output.empty()) return {};
  GIMBAL_ASSIGN_OR_RETURN(const std::vector<RankReport> reports, executor->reports());
  return write_expert_load(settings.expert_load_output, reports);
}

}  // namespace

int run_score_command(const Settings& settings) {
  return report_status("score", run_model_command(settings, [&](const ModelConfig& config, MpiSession* mpi) {
                         return score(settings, config, mpi);
                       }));
}

}  // namespace gimbal
