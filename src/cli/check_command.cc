#include "cli/check_command.h"

#include <map>
#include <string>
#include <string_view>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "base/byte_size.h"
#include "checkpoint/checkpoint_survey.h"
#include "cli/command_error.h"
#include "model_config/model_config.h"

namespace gimbal {
namespace {

constexpr int kExitSound = 0;
constexpr int kExitUnsound = 2;

std::string_view part_of(WeightRole role) {
  switch (role) {
    case WeightRole::kEmbedding:
      return "embedding";
    case WeightRole::kOutputHead:
      return "output head";
    case WeightRole::kQueryDown:
    case WeightRole::kQueryUp:
    case WeightRole::kKeyValueDown:
    case WeightRole::kKeyValueUp:
    case WeightRole::kAttentionOutput:
      return "attention";
    case WeightRole::kDenseGate:
    case WeightRole::kDenseUp:
    case WeightRole::kDenseDown:
      return "dense layers";
    case WeightRole::kRouter:
    case WeightRole::kRouterBias:
      return "router";
    case WeightRole::kSharedGate:
    case WeightRole::kSharedUp:
    case WeightRole::kSharedDown:
      return "shared experts";
    case WeightRole::kExpertGate:
    case WeightRole::kExpertUp:
    case WeightRole::kExpertDown:
      return "experts";
    case WeightRole::kFinalNorm:
    case WeightRole::kInputNorm:
    case WeightRole::kPostAttentionNorm:
    case WeightRole::kQueryNorm:
    case WeightRole::kKeyValueNorm:
      break;
  }
  return "norms";
}

// What is stored of one part of the model.
struct PartSize {
  uint64_t num_tensors = 0;
  uint64_t bytes = 0;
  std::map<WeightFormat, uint64_t> num_weights;
};

std::map<std::string_view, PartSize> measure_parts(const CheckpointSurvey& survey) {
  std::map<std::string_view, PartSize> parts;
  for (const PlannedWeight& weight : survey.plan.weights) {
    PartSize& part = parts[part_of(weight.role)];
    bool is_stored = false;
    for (const PlannedTensor& tensor : weight.tensors) {
      const SafetensorsEntry* entry = survey.find(tensor.name);
      if (entry == nullptr) continue;
      is_stored = true;
      ++part.num_tensors;
      part.bytes += entry->bytes;
    }
    if (is_stored) ++part.num_weights[weight.format];
  }
  return parts;
}

struct CheckReport {
  std::string model;  // architecture and dimensions; empty when config.json could not be read
  CheckpointSurvey survey;
};

CheckReport make_report(const std::string& model_path) {
  CheckReport report;
  const auto config = read_model_config(model_path);
  if (!config) {
    report.survey.problems.push_back({"config", 1, "config.json", config.error().message});
    return report;
  }
  report.model =
      fmt::format("{} ({}), {} layers, hidden size {}, {} experts, vocabulary {}", config->architecture,
                  config->model_type, config->num_layers, config->hidden_size, config->num_experts, config->vocab_size);
  report.survey = survey_checkpoint(model_path, *config);
  report.survey.notes.insert(report.survey.notes.begin(), config->notes.begin(), config->notes.end());
  return report;
}

void print_text(const std::string& model_path, const CheckReport& report) {
  const CheckpointSurvey& survey = report.survey;
  fmt::print("checkpoint  {}\n", model_path);
  if (!report.model.empty()) {
    fmt::print("model       {}\n", report.model);
    fmt::print("stored      {} tensors in {} shards, {}\n", survey.num_tensors, survey.shards.size(),
               format_bytes(survey.total_bytes));
    for (const auto& [name, part] : measure_parts(survey)) {
      std::string formats;
      for (const auto& [format, count] : part.num_weights) {
        formats += fmt::format("{}{} x {}", formats.empty() ? "" : ", ", count, name_of(format));
      }
      fmt::print("  {:<15} {:>10}  {:>8} tensors  {}\n", name, format_bytes(part.bytes), part.num_tensors, formats);
    }
  }
  for (const std::string& note : survey.notes) fmt::print("note        {}\n", note);
  for (const CheckpointProblem& problem : survey.problems)
    fmt::print("problem     [{}] {}\n", problem.kind, problem.message);
  if (survey.problems.empty()) {
    fmt::print("result      sound: headers, index and config.json agree (values were not read)\n");
  } else {
    fmt::print("result      not usable: {} problem{}\n", survey.problems.size(),
               survey.problems.size() == 1 ? "" : "s");
  }
}

void print_json(const std::string& model_path, const CheckReport& report) {
  const CheckpointSurvey& survey = report.survey;
  boost::json::array problems;
  for (const CheckpointProblem& problem : survey.problems) {
    problems.push_back(boost::json::object{
        {"kind", problem.kind}, {"count", problem.count}, {"example", problem.example}, {"message", problem.message}});
  }
  boost::json::object parts;
  for (const auto& [name, part] : measure_parts(survey)) {
    parts[name] = boost::json::object{{"tensors", part.num_tensors}, {"bytes", part.bytes}};
  }
  const boost::json::object result = {{"ok", survey.problems.empty()},
                                      {"model_path", model_path},
                                      {"model", report.model},
                                      {"shards", survey.shards.size()},
                                      {"tensors", survey.num_tensors},
                                      {"total_bytes", survey.total_bytes},
                                      {"parts", std::move(parts)},
                                      {"problems", std::move(problems)},
                                      {"notes", boost::json::array(survey.notes.begin(), survey.notes.end())}};
  fmt::print("{}\n", boost::json::serialize(result));
}

}  // namespace

int run_check_command(const Settings& settings) {
  if (settings.model_path.empty()) {
    return report_status(
        "check",
        fail(Error::invalid("--model-path DIR is needed: the folder of the checkpoint to check.", "--model-path")));
  }
  const CheckReport report = make_report(settings.model_path);
  if (settings.print_json) {
    print_json(settings.model_path, report);
  } else {
    print_text(settings.model_path, report);
  }
  return report.survey.problems.empty() ? kExitSound : kExitUnsound;
}

}  // namespace gimbal
