// The command line: arguments to a command and its settings.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "settings/settings.h"

namespace gimbal {

struct CommandLine {
  std::string command;
  Settings settings;
  std::optional<std::string> text;  // help or version: print it and be done
};

// `arguments` without the program's name. All problems are reported in one error.
//   --name value, --name=value; `_` is read as `-` in names, with a note; no prefix guessing; a flag given twice with
//   two values is refused; unknown flags get the nearest known names.
Result<CommandLine> parse_command_line(std::span<const char* const> arguments);

// "gimbal 0.1.0".
std::string version_text();

}  // namespace gimbal
