// Limits of connections, from the settings.
#pragma once

#include <chrono>
#include <cstdint>

namespace gimbal {

struct ServerLimits {
  int64_t max_body_bytes = 8 << 20;
  int64_t max_header_bytes = 64 << 10;
  int64_t max_connections = 1024;
  std::chrono::milliseconds idle_timeout{60000};
  std::chrono::milliseconds request_timeout{
      30000};  // for head and body to arrive, and for a reader to take what is sent
};

}  // namespace gimbal
