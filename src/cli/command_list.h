// The commands of the program, in one list.
#pragma once

#include <span>
#include <string_view>

#include "settings/settings.h"

namespace gimbal {

struct Command {
  std::string_view name;
  std::string_view description;
  int (*run)(const Settings& settings);  // returns the exit code
};

std::span<const Command> command_list();

}  // namespace gimbal
