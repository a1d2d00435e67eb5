#include "cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <CLI/CLI.hpp>

#include "base/nearest_name.h"
#include "cli/command_list.h"
#include "settings/settings_table.h"
#include "settings/sglang_flags.h"

namespace gimbal {
namespace {

// Values as they were typed, per flag as it is declared.
using TypedValues = std::map<std::string, std::vector<std::string>>;

bool is_boolean(const Setting& setting) { return std::holds_alternative<bool Settings::*>(setting.member); }

std::vector<std::string> flags_of(const Setting& setting) {
  std::vector<std::string> flags = {std::string(setting.flag)};
  flags.insert(flags.end(), setting.aliases.begin(), setting.aliases.end());
  return flags;
}

std::string general_help() {
  std::string text =
      "Gimbal: an inference server for large Mixture-of-Experts language models.\n\nusage: gimbal COMMAND "
      "[settings]\n\n";
  for (const Command& command : command_list()) text += fmt::format("  {:<10} {}\n", command.name, command.description);
  return text +
         "\n`gimbal COMMAND --help` lists a command's settings; docs/settings.md explains them. `gimbal --version` "
         "prints the version.\n";
}

std::string command_help(const Command& command, CommandBit bit) {
  std::string text = fmt::format("usage: gimbal {} [settings]\n{}\n", command.name, command.description);
  std::string_view section;
  for (const Setting& setting : settings_table()) {
    if ((setting.commands & bit) == 0) continue;
    if (setting.section != section) text += fmt::format("\n{}\n", section = setting.section);
    const std::string value =
        is_boolean(setting) ? "" : fmt::format(" {}", setting.placeholder.empty() ? "VALUE" : setting.placeholder);
    text += fmt::format("  {}{}\n      {}\n", fmt::join(flags_of(setting), ", "), value, setting.doc);
    if (is_boolean(setting)) continue;
    text += fmt::format("      {}{}\n", describe_allowed(setting),
                        setting.default_value.empty() ? "" : fmt::format("; default {}", setting.default_value));
  }
  return text;
}

// "--max_running_requests=4" to "--max-running-requests=4"; what was changed is noted.
std::vector<std::string> with_dashes(std::span<const char* const> arguments, std::vector<std::string>& notes) {
  std::vector<std::string> result;
  for (std::string argument : arguments) {
    const size_t end = std::min(argument.find('='), argument.size());
    if (argument.starts_with("--") && argument.find('_') < end) {
      const std::string typed = argument.substr(0, end);
      std::replace(argument.begin(), argument.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
      notes.push_back(fmt::format("{} is read as {}", typed, argument.substr(0, end)));
    }
    result.push_back(std::move(argument));
  }
  return result;
}

// Every flag this command may meet, for suggestions.
std::vector<std::string> known_flags(CommandBit bit) {
  std::vector<std::string> flags = {"--help"};
  for (const Setting& setting : settings_table()) {
    if ((setting.commands & bit) == 0) continue;
    const auto names = flags_of(setting);
    flags.insert(flags.end(), names.begin(), names.end());
  }
  if (bit == kServe) {
    for (const SglangFlag& flag : sglang_flags()) flags.emplace_back(flag.flag);
  }
  return flags;
}

std::string describe_unknown(const std::string& argument, const Command& command, CommandBit bit) {
  if (!argument.starts_with("-"))
    return fmt::format("'{}' stands alone; values follow their flag (--flag value)", argument);
  const std::string name = argument.substr(0, argument.find('='));
  for (const RenamedFlag& renamed : renamed_flags()) {
    if (renamed.flag == name) return fmt::format("{} is not a flag of this version. {}", name, renamed.hint);
  }
  for (const Setting& setting : settings_table()) {
    const auto names = flags_of(setting);
    if (std::find(names.begin(), names.end(), name) != names.end())
      return fmt::format("{} is not a flag of `{}`", name, command.name);
  }
  const auto near = nearest_names(name, known_flags(bit));
  if (near.empty()) return fmt::format("{} is unknown; `gimbal {} --help` lists the flags", name, command.name);
  return fmt::format("{} is unknown; did you mean {}?", name, fmt::join(near, " or "));
}

// Carries one parse: CLI11 cuts the arguments into flags and values, the tables give them meaning.
class CommandParser {
 public:
  CommandParser(const Command& command, CommandBit bit) : command_(command), bit_(bit) { app_.set_help_flag(); }

  Result<CommandLine> parse(std::span<const char* const> arguments) {
    CommandLine line{.command = std::string(command_.name), .settings = default_settings(), .text = std::nullopt};
    std::vector<std::string> typed = with_dashes(arguments, line.settings.notes);
    declare();
    app_.allow_extras();
    try {
      std::reverse(typed.begin(), typed.end());  // CLI11 takes them from the back
      app_.parse(typed);
    } catch (const CLI::ParseError& error) {
      problems_.emplace_back(error.what());
    }
    if (wants_help_) {
      line.text = command_help(command_, bit_);
      return line;
    }
    note_unknown();
    assign(line.settings);
    judge_sglang_flags(line.settings.notes);
    require_inputs(line.settings);
    if (problems_.empty()) return line;
    std::string message = problems_.size() > 1 ? "the command line cannot be used:\n  " : "";
    message += fmt::format("{}", fmt::join(problems_, "\n  "));
    for (const std::string& note : line.settings.notes) message += fmt::format("\nnote: {}", note);
    return fail(Error::invalid(std::move(message)));
  }

 private:
  void declare() {
    app_.add_flag("--help,-h", wants_help_);
    for (const Setting& setting : settings_table()) {
      if ((setting.commands & bit_) == 0) continue;
      const std::string names = fmt::format("{}", fmt::join(flags_of(setting), ","));
      declare_flag(names, std::string(setting.flag), !is_boolean(setting));
    }
    if (bit_ != kServe) return;
    for (const SglangFlag& flag : sglang_flags())
      declare_flag(std::string(flag.flag), std::string(flag.flag), flag.takes_value);
  }

  void declare_flag(const std::string& names, const std::string& key, bool takes_value) {
    if (takes_value) {
      app_.add_option(names, values_[key])
          ->expected(1)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
          ->allow_extra_args(false);
    } else {
      app_.add_flag(names, counts_[key])->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    }
  }

  void note_unknown() {
    std::set<std::string> seen;
    bool skip_value = false;
    for (const std::string& argument : app_.remaining()) {
      const bool is_flag = argument.starts_with("-") && argument != "-";
      if (!is_flag && skip_value) {
        skip_value = false;
        continue;  // the value of an unknown flag
      }
      skip_value = is_flag && argument.find('=') == std::string::npos;
      if (problems_.size() < kMostProblems && seen.insert(argument).second)
        problems_.push_back(describe_unknown(argument, command_, bit_));
    }
  }

  void assign(Settings& settings) {
    for (const Setting& setting : settings_table()) {
      const std::string key(setting.flag);
      if (const auto count = counts_.find(key); count != counts_.end() && count->second > 0)
        (void)assign_setting(setting, "true", settings);
      const auto typed = values_.find(key);
      if (typed == values_.end() || typed->second.empty()) continue;
      const std::string& value = typed->second.front();
      if (std::any_of(typed->second.begin(), typed->second.end(),
                      [&](const std::string& other) { return other != value; })) {
        problems_.push_back(
            fmt::format("{} is given more than once with different values: {}", key, fmt::join(typed->second, ", ")));
        continue;
      }
      if (const Status status = assign_setting(setting, value, settings); !status)
        problems_.push_back(status.error().message);
    }
  }

  void judge_sglang_flags(std::vector<std::string>& notes) {
    for (const SglangFlag& flag : sglang_flags()) {
      const std::string key(flag.flag);
      const auto typed = values_.find(key);
      const auto count = counts_.find(key);
      const bool is_given =
          (typed != values_.end() && !typed->second.empty()) || (count != counts_.end() && count->second > 0);
      if (!is_given) continue;
      if (flag.kind == SglangFlag::Kind::kRefused) {
        problems_.push_back(fmt::format("{}: {}", flag.flag, flag.reason));
        continue;
      }
      if (flag.kind == SglangFlag::Kind::kOnlyValues) {
        const std::string& value = typed->second.back();
        if (std::find(flag.values.begin(), flag.values.end(), value) == flag.values.end()) {
          problems_.push_back(fmt::format("{} {}: required {}, offered {}; {}", flag.flag, value, value,
                                          fmt::join(flag.values, ", "), flag.reason));
          continue;
        }
      }
      notes.push_back(fmt::format("{} has no effect: {}", flag.flag, flag.reason));
    }
  }

  void require_inputs(const Settings& settings) {
    const auto require = [&](bool is_missing, std::string_view what) {
      if (is_missing && problems_.empty()) problems_.push_back(fmt::format("{} is needed", what));
    };
    if (bit_ != kSynth)
      require(settings.model_path.empty(),
              "--model-path DIR (the folder with config.json; models/kimi-k2-mini comes with Gimbal)");
    if (bit_ == kSynth) require(settings.model_config.empty(), "--model-config FILE");
    if (bit_ == kScore || bit_ == kRender) require(settings.input.empty(), "--input FILE.jsonl");
    if (bit_ == kScore || bit_ == kSynth) require(settings.output.empty(), "--output PATH");
  }

  static constexpr size_t kMostProblems = 8;
  const Command& command_;
  CommandBit bit_;
  CLI::App app_;
  bool wants_help_ = false;
  TypedValues values_;
  std::map<std::string, int> counts_;
  std::vector<std::string> problems_;
};

}  // namespace

std::string version_text() { return "gimbal " GIMBAL_VERSION "\n"; }

Result<CommandLine> parse_command_line(std::span<const char* const> arguments) {
  const std::string_view name = arguments.empty() ? "--help" : std::string_view(arguments[0]);
  if (name == "--help" || name == "-h" || name == "help")
    return CommandLine{.command = "help", .settings = {}, .text = general_help()};
  if (name == "--version") return CommandLine{.command = "version", .settings = {}, .text = version_text()};
  if (name == "settings-page") return CommandLine{.command = "settings-page", .settings = {}, .text = settings_page()};
  std::vector<std::string> names;
  for (const Command& command : command_list()) {
    names.emplace_back(command.name);
    if (command.name == name) return CommandParser(command, *command_bit(name)).parse(arguments.subspan(1));
  }
  const auto near = nearest_names(name, names, 1);
  return fail(Error::invalid(fmt::format("there is no command '{}'.{} Commands: {}.", name,
                                         near.empty() ? "" : fmt::format(" Did you mean '{}'?", near.front()),
                                         fmt::join(names, ", "))));
}

}  // namespace gimbal
