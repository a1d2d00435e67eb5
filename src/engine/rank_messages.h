// Messages between the engine's rank 0 and the other ranks, as bytes. Both sides are the same program, so the format
// has no versions; a message that cannot be read is a programmer's error or damaged memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/step_result.h"
#include "model/component_times.h"
#include "moe/exchange/token_exchange.h"
#include "scheduler/step_plan.h"

namespace gimbal {

enum class RankCommand : uint8_t { kStep, kReport, kStop };

// What a rank has counted since it started.
struct RankReport {
  std::vector<std::vector<uint64_t>> expert_load =
      {};                                 // [num_layers][num_experts], zero where the rank counted nothing
  ExchangeCounters exchange = {};         // of both modes
  std::vector<uint64_t> comm_bytes = {};  // by CommVerb
  std::vector<double> comm_seconds = {};  // by CommVerb
  ComponentTimes times = {};
};

std::string encode_command(RankCommand command);
std::string encode_step(const StepPlan& plan);
std::string encode_result(const StepResult& result);
std::string encode_report(const RankReport& report);

RankCommand command_of(std::string_view message);
StepPlan decode_step(std::string_view message);
StepResult decode_result(std::string_view message);
RankReport decode_report(std::string_view message);

}  // namespace gimbal
