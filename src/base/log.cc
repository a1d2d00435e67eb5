#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

namespace gimbal {

void start_log(spdlog::level::level_enum level) {
  auto logger = spdlog::stderr_color_mt("gimbal");
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%-5l%$ %v");
  logger->set_level(level);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace gimbal
