#include "engine/rank_messages.h"

#include <cstring>
#include <type_traits>

#include "base/check.h"

namespace gimbal {
namespace {

class ByteWriter {
 public:
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  template <typename T>
  void put_all(const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    put<uint64_t>(values.size());
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}
  template <typename T>
  T get() {
    T value;
    read(&value, sizeof(T));
    return value;
  }
  template <typename T>
  std::vector<T> get_all() {
    const auto count = get<uint64_t>();
    GIMBAL_CHECK_LE(count, bytes_.size() / sizeof(T));
    std::vector<T> values(count);
    read(values.data(), count * sizeof(T));
    return values;
  }

 private:
  void read(void* target, size_t count) {
    GIMBAL_CHECK_LE(count, bytes_.size());
    if (count > 0) std::memcpy(target, bytes_.data(), count);
    bytes_.remove_prefix(count);
  }
  std::string_view bytes_;
};

void put_sampling(ByteWriter& writer, const SamplingPlan& sampling) {
  writer.put(sampling.temperature);
  writer.put(sampling.top_k);
  writer.put(sampling.top_p);
  writer.put(sampling.min_p);
  writer.put(sampling.seed);
  writer.put(sampling.position);
  writer.put_all(sampling.forbidden_ids);
  writer.put_all(sampling.biases);
  writer.put_all(sampling.seen);
  writer.put(sampling.repetition_penalty);
  writer.put(sampling.frequency_penalty);
  writer.put(sampling.presence_penalty);
}

SamplingPlan get_sampling(ByteReader& reader) {
  SamplingPlan sampling;
  sampling.temperature = reader.get<float>();
  sampling.top_k = reader.get<int32_t>();
  sampling.top_p = reader.get<float>();
  sampling.min_p = reader.get<float>();
  sampling.seed = reader.get<uint64_t>();
  sampling.position = reader.get<int64_t>();
  sampling.forbidden_ids = reader.get_all<int32_t>();
  sampling.biases = reader.get_all<LogitBias>();
  sampling.seen = reader.get_all<TokenCount>();
  sampling.repetition_penalty = reader.get<float>();
  sampling.frequency_penalty = reader.get<float>();
  sampling.presence_penalty = reader.get<float>();
  return sampling;
}

PlannedSequence get_sequence(ByteReader& reader) {
  PlannedSequence sequence;
  sequence.sequence_id = reader.get<uint64_t>();
  sequence.dp_group = reader.get<int32_t>();
  sequence.token_ids = reader.get_all<int32_t>();
  sequence.first_position = reader.get<int64_t>();
  sequence.pages = reader.get_all<PageId>();
  sequence.is_prefill = reader.get<uint8_t>() != 0;
  sequence.logit_rows = static_cast<LogitRows>(reader.get<uint8_t>());
  sequence.wants_token = reader.get<uint8_t>() != 0;
  if (reader.get<uint8_t>() != 0) sequence.sampling = get_sampling(reader);
  sequence.wants_log_probability = reader.get<uint8_t>() != 0;
  sequence.num_top_logits = reader.get<int32_t>();
  sequence.target_ids = reader.get_all<int32_t>();
  return sequence;
}

}  // namespace

std::string encode_command(RankCommand command) { return std::string(1, static_cast<char>(command)); }

RankCommand command_of(std::string_view message) {
  GIMBAL_CHECK(!message.empty());
  return static_cast<RankCommand>(message[0]);
}

std::string encode_step(const StepPlan& plan) {
  ByteWriter writer;
  writer.put(RankCommand::kStep);
  writer.put(plan.step);
  writer.put_all(plan.moves);
  writer.put<uint64_t>(plan.sequences.size());
  for (const PlannedSequence& sequence : plan.sequences) {
    writer.put(sequence.sequence_id);
    writer.put(sequence.dp_group);
    writer.put_all(sequence.token_ids);
    writer.put(sequence.first_position);
    writer.put_all(sequence.pages);
    writer.put<uint8_t>(sequence.is_prefill ? 1 : 0);
    writer.put(static_cast<uint8_t>(sequence.logit_rows));
    writer.put<uint8_t>(sequence.wants_token ? 1 : 0);
    writer.put<uint8_t>(sequence.sampling ? 1 : 0);
    if (sequence.sampling) put_sampling(writer, *sequence.sampling);
    writer.put<uint8_t>(sequence.wants_log_probability ? 1 : 0);
    writer.put(sequence.num_top_logits);
    writer.put_all(sequence.target_ids);
  }
  return writer.take();
}

StepPlan decode_step(std::string_view message) {
  ByteReader reader(message);
  GIMBAL_CHECK(reader.get<RankCommand>() == RankCommand::kStep);
  StepPlan plan;
  plan.step = reader.get<uint64_t>();
  plan.moves = reader.get_all<PageMove>();
  const auto count = reader.get<uint64_t>();
  for (uint64_t i = 0; i < count; ++i) plan.sequences.push_back(get_sequence(reader));
  return plan;
}

std::string encode_result(const StepResult& result) {
  ByteWriter writer;
  writer.put(result.step);
  writer.put<uint64_t>(result.sequences.size());
  for (const SequenceResult& sequence : result.sequences) {
    writer.put(sequence.sequence_id);
    writer.put<uint8_t>(sequence.is_finite ? 1 : 0);
    writer.put<uint8_t>(sequence.token_id ? 1 : 0);
    writer.put(sequence.token_id.value_or(0));
    writer.put(sequence.log_probability);
    writer.put<uint64_t>(sequence.rows.size());
    for (const RowScore& row : sequence.rows) {
      writer.put_all(row.top);
      writer.put(row.log_sum_exp);
      writer.put(row.log_probability);
    }
  }
  return writer.take();
}

StepResult decode_result(std::string_view message) {
  ByteReader reader(message);
  StepResult result{.step = reader.get<uint64_t>()};
  const auto count = reader.get<uint64_t>();
  for (uint64_t i = 0; i < count; ++i) {
    SequenceResult sequence{.sequence_id = reader.get<uint64_t>()};
    sequence.is_finite = reader.get<uint8_t>() != 0;
    const bool has_token = reader.get<uint8_t>() != 0;
    const auto token = reader.get<int32_t>();
    if (has_token) sequence.token_id = token;
    sequence.log_probability = reader.get<double>();
    const auto num_rows = reader.get<uint64_t>();
    for (uint64_t row = 0; row < num_rows; ++row) {
      RowScore score{.top = reader.get_all<TopLogit>()};
      score.log_sum_exp = reader.get<double>();
      score.log_probability = reader.get<double>();
      sequence.rows.push_back(std::move(score));
    }
    result.sequences.push_back(std::move(sequence));
  }
  return result;
}

std::string encode_report(const RankReport& report) {
  ByteWriter writer;
  writer.put<uint64_t>(report.expert_load.size());
  for (const std::vector<uint64_t>& layer : report.expert_load) writer.put_all(layer);
  writer.put(report.exchange);
  writer.put_all(report.comm_bytes);
  writer.put_all(report.comm_seconds);
  writer.put(report.times);
  return writer.take();
}

RankReport decode_report(std::string_view message) {
  ByteReader reader(message);
  RankReport report;
  const auto count = reader.get<uint64_t>();
  for (uint64_t i = 0; i < count; ++i) report.expert_load.push_back(reader.get_all<uint64_t>());
  report.exchange = reader.get<ExchangeCounters>();
  report.comm_bytes = reader.get_all<uint64_t>();
  report.comm_seconds = reader.get_all<double>();
  report.times = reader.get<ComponentTimes>();
  return report;
}

}  // namespace gimbal
