// ServerMetrics: what /metrics shows, under SGLang's names where they have a meaning here.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "engine/request_gateway.h"

namespace gimbal {

struct EndedRequest {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t generated_tokens = 0;
  double seconds = 0;
  bool is_aborted = false;
};

// Sizes and times that do not change after start.
struct EngineFacts {
  int64_t context_length = 0;
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  double load_seconds = 0;
};

// Used on the I/O thread.
class ServerMetrics {
 public:
  explicit ServerMetrics(const std::string& model_name);
  ~ServerMetrics();
  ServerMetrics(const ServerMetrics&) = delete;
  ServerMetrics& operator=(const ServerMetrics&) = delete;

  void set_facts(const EngineFacts& facts);
  void count_request();
  void count_first_token(double queue_s, double first_token_s);
  void count_next_token(double seconds);
  void count_end(const EndedRequest& request);
  void count_response(unsigned status);
  void count_active(int64_t change);  // exchanges that are being answered

  // The text format of Prometheus. `reports` may be empty: then the values of the last call stay.
  std::string text(const EngineState& state, const std::vector<RankReport>& reports);

 private:
  struct Families;
  void set_state(const EngineState& state);
  void set_step_totals(const EngineState& state);
  void set_reports(const std::vector<RankReport>& reports);
  std::unique_ptr<Families> families_;
};

}  // namespace gimbal
