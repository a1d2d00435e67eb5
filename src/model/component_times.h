// ComponentTimes: where the time of a rank's steps went, since its start.
#pragma once

#include <chrono>
#include <cstdint>

namespace gimbal {

// Seconds. Communication inside the feed-forward part and the head is counted in both; CommState::seconds has it alone.
struct ComponentTimes {
  uint64_t steps = 0;
  double total_s = 0;
  double attention_s = 0;
  double feed_forward_s = 0;  // router, experts, dense layers, exchange
  double head_s = 0;
  double sampling_s = 0;
};

// Adds the time that it lives.
class ComponentTimer {
 public:
  explicit ComponentTimer(double& seconds) : seconds_(seconds), start_(std::chrono::steady_clock::now()) {}
  ~ComponentTimer() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  ComponentTimer(const ComponentTimer&) = delete;
  ComponentTimer& operator=(const ComponentTimer&) = delete;

 private:
  double& seconds_;
  const std::chrono::steady_clock::time_point start_;
};

}  // namespace gimbal
