// The program's log: spdlog to stderr, one line per event. Results go to stdout, never the log.
#pragma once

#include <spdlog/spdlog.h>

namespace gimbal {

// Sends the log to stderr in the form "2026-01-31 12:00:00.123 info  text". Call once, from main.
void start_log(spdlog::level::level_enum level);

}  // namespace gimbal
