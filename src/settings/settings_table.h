// The settings table: each setting declared once. Parsing, defaults, validation, --help and docs/settings.md all come
// from it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "settings/settings.h"

namespace gimbal {

// The commands that take a setting, as bits.
enum CommandBit : uint32_t {
  kServe = 1,
  kGenerate = 2,
  kScore = 4,
  kCheck = 8,
  kSynth = 16,
  kRender = 32,
  kModelCommands = kServe | kGenerate | kScore,  // those that compute
  kAllCommands = kModelCommands | kCheck | kSynth | kRender,
};

// Where the value goes; its type is the setting's type. A bool takes no value on the command line.
using SettingMember = std::variant<std::string Settings::*, int64_t Settings::*, double Settings::*, bool Settings::*>;

struct Setting {
  std::string_view flag;  // "--port"
  SettingMember member;
  std::string_view default_value;  // as one would type it; empty: nothing
  uint32_t commands = kAllCommands;
  std::string_view section;
  std::string_view doc;
  std::vector<std::string_view> aliases = {};
  std::vector<std::string_view> choices = {};  // text settings: the only values; empty: any
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  std::vector<double> also_allowed = {};  // numbers outside the range with a meaning of their own (-1)
  std::string_view placeholder = {};      // how the value is called in help: "DIR"
};

// All settings, in the order of the help.
std::span<const Setting> settings_table();

// The bit of a command's name; nullopt for an unknown one.
std::optional<CommandBit> command_bit(std::string_view command);

// Settings with every default.
Settings default_settings();

// Reads `text` as the setting's value into `settings`; refused with what was found and what is allowed.
Status assign_setting(const Setting& setting, std::string_view text, Settings& settings);

// What is allowed, in words: "an integer from 1 to 65535", "one of auto, cpu".
std::string describe_allowed(const Setting& setting);

// The text of docs/settings.md.
std::string settings_page();

}  // namespace gimbal
