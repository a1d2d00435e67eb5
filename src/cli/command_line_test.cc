#include "cli/command_line.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "settings/settings_table.h"
#include "settings/sglang_flags.h"

namespace gimbal {
namespace {

using testing::HasSubstr;

Result<CommandLine> parse(std::vector<const char*> arguments) { return parse_command_line(arguments); }

std::string message_of(std::vector<const char*> arguments) {
  const auto line = parse(std::move(arguments));
  EXPECT_FALSE(line.has_value());
  return line.has_value() ? std::string() : line.error().message;
}

TEST(CommandLine, ReadsValuesInBothForms) {
  const auto line = parse(
      {"serve", "--model", "m", "--port=7", "--context-length", "-1", "--mem-fraction-static=0.5", "--deterministic"});
  ASSERT_TRUE(line.has_value()) << line.error().message;
  EXPECT_EQ(line->command, "serve");
  EXPECT_EQ(line->settings.model_path, "m");
  EXPECT_EQ(line->settings.port, 7);
  EXPECT_EQ(line->settings.context_length, -1);
  EXPECT_DOUBLE_EQ(line->settings.mem_fraction_static, 0.5);
  EXPECT_TRUE(line->settings.deterministic);
  EXPECT_FALSE(line->settings.ignore_eos);
  EXPECT_TRUE(line->settings.notes.empty());
}

TEST(CommandLine, EverySettingReachesItsMember) {
  for (const Setting& setting : settings_table()) {
    if (std::holds_alternative<bool Settings::*>(setting.member)) continue;
    const char* command = (setting.commands & kServe) != 0      ? "serve"
                          : (setting.commands & kGenerate) != 0 ? "generate"
                          : (setting.commands & kScore) != 0    ? "score"
                                                                : "synth";
    const std::string value = !setting.choices.empty() ? std::string(setting.choices.back())
                              : std::holds_alternative<std::string Settings::*>(setting.member) ? "text"
                              : setting.also_allowed.empty() ? fmt::format("{:.0f}", std::max(setting.least, 1.0))
                                                             : "1";
    std::vector<const char*> arguments = {command, "--model-path",   "m", "--input", "i", "--output",
                                          "o",     "--model-config", "c"};
    if (std::string_view(command) == "serve") arguments.resize(3);
    if (std::string_view(command) == "generate") arguments.resize(3);
    if (std::string_view(command) == "score") arguments.resize(7);
    if (std::string_view(command) == "synth") arguments.erase(arguments.begin() + 1, arguments.begin() + 5);
    const std::string flag(setting.flag);
    std::erase_if(arguments, [&, skip = false](const char* argument) mutable {
      const bool is_drop = skip || flag == argument;
      skip = !skip && flag == argument;
      return is_drop;
    });
    arguments.push_back(flag.c_str());
    arguments.push_back(value.c_str());
    const auto line = parse(arguments);
    ASSERT_TRUE(line.has_value()) << setting.flag << ": " << line.error().message;
    Settings expected = line->settings;
    ASSERT_TRUE(assign_setting(setting, value, expected).has_value());
    std::visit([&](const auto member) { EXPECT_EQ(line->settings.*member, expected.*member) << setting.flag; },
               setting.member);
  }
}

TEST(CommandLine, UnderscoresAreReadAsDashesWithANote) {
  const auto line = parse({"serve", "--model_path", "a_b", "--max_running_requests=4"});
  ASSERT_TRUE(line.has_value()) << line.error().message;
  EXPECT_EQ(line->settings.model_path, "a_b");
  EXPECT_EQ(line->settings.max_running_requests, 4);
  EXPECT_THAT(line->settings.notes, testing::ElementsAre("--model_path is read as --model-path",
                                                         "--max_running_requests is read as --max-running-requests"));
}

TEST(CommandLine, UnknownFlagsGetTheNearestName) {
  EXPECT_THAT(message_of({"serve", "--model", "m", "--tp-szie", "8"}),
              HasSubstr("--tp-szie is unknown; did you mean --tp-size"));
  EXPECT_THAT(message_of({"serve", "--model", "m", "--mem-fraction", "0.8"}), HasSubstr("--mem-fraction-static"));
  EXPECT_THAT(message_of({"serve", "--model", "m", "--enable-ep-moe"}), HasSubstr("--ep-size"));
  EXPECT_THAT(message_of({"serve", "--model", "m", "--enable-deepep-moe"}), HasSubstr("--moe-a2a-backend"));
  EXPECT_THAT(message_of({"serve", "--model", "m", "--quux-zzz"}), HasSubstr("`gimbal serve --help`"));
  EXPECT_THAT(message_of({"serve", "--model", "m", "--prompt", "x"}), HasSubstr("--prompt is not a flag of `serve`"));
  EXPECT_THAT(message_of({"serve", "m"}), HasSubstr("'m' stands alone"));
}

TEST(CommandLine, ReportsEverythingAtOnce) {
  const std::string message =
      message_of({"serve", "--model", "m", "--port", "99999", "--load-format", "pt", "--bogus"});
  EXPECT_THAT(message, HasSubstr("--port is 99999"));
  EXPECT_THAT(message, HasSubstr("--load-format is pt"));
  EXPECT_THAT(message, HasSubstr("--bogus"));
}

TEST(CommandLine, AFlagGivenTwiceMustAgree) {
  EXPECT_TRUE(parse({"serve", "--model", "m", "--port", "5", "--port", "5"}).has_value());
  EXPECT_THAT(message_of({"serve", "--model", "m", "--port", "5", "--port", "6"}),
              HasSubstr("--port is given more than once"));
  EXPECT_THAT(message_of({"serve", "--model", "m", "--model-path", "n"}),
              HasSubstr("--model-path is given more than once"));
}

TEST(CommandLine, NeededInputsAreNamed) {
  EXPECT_THAT(message_of({"serve"}), HasSubstr("--model-path DIR"));
  EXPECT_THAT(message_of({"score", "--model", "m"}), HasSubstr("--input"));
  EXPECT_THAT(message_of({"synth"}), HasSubstr("--model-config"));
  EXPECT_THAT(message_of({"serve", "--model"}), HasSubstr("--model"));
}

TEST(CommandLine, SglangFlagsAreAcceptedWithOneLineOrRefusedWithAReason) {
  const auto line = parse({"serve", "--model", "m", "--trust-remote-code", "--max-prefill-tokens", "300",
                           "--elastic-ep-backend", "none", "--port", "1"});
  ASSERT_TRUE(line.has_value()) << line.error().message;
  EXPECT_EQ(line->settings.port, 1);
  EXPECT_EQ(line->settings.notes.size(), 3u);
  EXPECT_THAT(message_of({"serve", "--model", "m", "--elastic-ep-backend", "nixl"}),
              HasSubstr("required nixl, offered none"));
  EXPECT_THAT(message_of({"serve", "--model", "m", "--speculative-algorithm", "EAGLE"}),
              HasSubstr("speculative decoding is not in this build"));
  const auto parallel =
      parse({"serve", "--model", "m", "--tp", "8", "--ep", "8", "--dp", "4", "--enable-dp-attention"});
  ASSERT_TRUE(parallel.has_value()) << parallel.error().message;
  EXPECT_EQ(parallel->settings.tp_size, 8);
  EXPECT_EQ(parallel->settings.ep_size, 8);
  EXPECT_EQ(parallel->settings.dp_size, 4);
  EXPECT_TRUE(parallel->settings.enable_dp_attention);
}

TEST(CommandLine, HelpAndVersionAreTexts) {
  EXPECT_THAT(*parse({})->text, HasSubstr("usage: gimbal COMMAND"));
  EXPECT_THAT(*parse({"--version"})->text, HasSubstr("gimbal 0."));
  const std::string help = *parse({"serve", "--help"})->text;
  EXPECT_THAT(help, HasSubstr("--port"));
  EXPECT_THAT(help, HasSubstr("default 30000"));
  EXPECT_THAT(help, testing::Not(HasSubstr("--prompt")));
  EXPECT_THAT(message_of({"sevre"}), HasSubstr("Did you mean 'serve'?"));
}

TEST(CommandLine, RandomArgumentsNeverCrash) {
  const unsigned seed = 101;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::vector<std::string> words = {"serve", "generate", "score",   "--",      "-",         "--=", "=",
                                    "",      "-1",       "--port",  "--port=", "--no-such", "-x",  "1e9",
                                    "nan",   "\xff\xfe", "--model", "m",       "--help",    "-h"};
  for (const Setting& setting : settings_table()) words.emplace_back(setting.flag);
  for (const SglangFlag& flag : sglang_flags()) words.emplace_back(flag.flag);
  int num_parsed = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<const char*> arguments;
    for (size_t i = random() % 7; i > 0; --i) arguments.push_back(words[random() % words.size()].c_str());
    num_parsed += parse(arguments).has_value() ? 1 : 0;
  }
  EXPECT_GT(num_parsed, 0);
}

}  // namespace
}  // namespace gimbal
