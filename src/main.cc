// Picks a subcommand.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <optional>
#include <span>

#include "base/log.h"
#include "cli/command_error.h"
#include "cli/command_line.h"
#include "cli/command_list.h"
#include "cli/rank_supervisor.h"

namespace {

int run(std::span<const char* const> arguments) {
  const auto line = gimbal::parse_command_line(arguments);
  if (!line) {
    const bool has_command = !arguments.empty();
    fmt::print(stderr, "gimbal{}{}: {}\n", has_command ? " " : "", has_command ? arguments[0] : "",
               line.error().message);
    return gimbal::exit_code(line.error().kind);
  }
  if (line->text) {
    std::fputs(line->text->c_str(), stdout);
    return 0;
  }
  gimbal::print_notes(line->settings.notes);
  gimbal::start_log(spdlog::level::from_str(line->settings.log_level));
  for (const gimbal::Command& command : gimbal::command_list()) {
    if (command.name == line->command) return command.run(line->settings);
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (const std::optional<int> code = gimbal::supervise_rank()) return *code;
  std::signal(SIGPIPE, SIG_IGN);  // a reader that left is an error of that write, not the end of the program
  try {
    return run(std::span<const char* const>(argv + 1, static_cast<size_t>(argc > 0 ? argc - 1 : 0)));
  } catch (const std::exception& exception) {
    fmt::print(stderr, "gimbal: internal error: {}\n", exception.what());
    return 1;
  }
}
