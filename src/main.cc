// Picks a subcommand.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

// Other users of the machine see the arguments of a process; a key must not stand there.
void hide_keys(std::span<char* const> arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--api-key" || argument == "--admin-api-key") {
      if (i + 1 < arguments.size()) std::memset(arguments[i + 1], '*', std::strlen(arguments[i + 1]));
    } else if (argument.starts_with("--api-key=") || argument.starts_with("--admin-api-key=")) {
      const size_t begin = argument.find('=') + 1;
      std::memset(arguments[i] + begin, '*', argument.size() - begin);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<char* const> given(argv + 1, static_cast<size_t>(argc > 0 ? argc - 1 : 0));
  const std::vector<std::string> copies(given.begin(), given.end());
  const std::vector<const char*> arguments = [&] {
    std::vector<const char*> pointers;
    for (const std::string& copy : copies) pointers.push_back(copy.c_str());
    return pointers;
  }();
  hide_keys(given);
  if (const std::optional<int> code = gimbal::supervise_rank()) return *code;
  std::signal(SIGPIPE, SIG_IGN);  // a reader that left is an error of that write, not the end of the program
  try {
    return run(arguments);
  } catch (const std::exception& exception) {
    fmt::print(stderr, "gimbal: internal error: {}\n", exception.what());
    return 1;
  }
}
