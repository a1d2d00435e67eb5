#include "settings/settings_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/file_text.h"
#include "settings/sglang_flags.h"

namespace gimbal {
namespace {

const Setting& setting_of(std::string_view flag) {
  for (const Setting& setting : settings_table()) {
    if (setting.flag == flag) return setting;
  }
  ADD_FAILURE() << "no setting " << flag;
  return settings_table().front();
}

TEST(SettingsTable, EveryRowIsCompleteAndItsDefaultIsAllowed) {
  Settings settings;
  for (const Setting& setting : settings_table()) {
    EXPECT_TRUE(setting.flag.starts_with("--")) << setting.flag;
    EXPECT_EQ(setting.flag.find('_'), std::string_view::npos) << setting.flag;
    EXPECT_TRUE(setting.doc.ends_with(".")) << setting.flag;
    EXPECT_FALSE(setting.section.empty()) << setting.flag;
    EXPECT_NE(setting.commands, 0u) << setting.flag;
    if (!setting.default_value.empty()) {
      const Status status = assign_setting(setting, setting.default_value, settings);
      EXPECT_TRUE(status.has_value()) << status.error().message;
    }
  }
}

TEST(SettingsTable, NoFlagIsDeclaredTwiceAnywhere) {
  std::set<std::string_view> flags;
  for (const Setting& setting : settings_table()) {
    EXPECT_TRUE(flags.insert(setting.flag).second) << setting.flag;
    for (const std::string_view alias : setting.aliases) EXPECT_TRUE(flags.insert(alias).second) << alias;
  }
  for (const SglangFlag& flag : sglang_flags()) EXPECT_TRUE(flags.insert(flag.flag).second) << flag.flag;
  for (const RenamedFlag& flag : renamed_flags()) EXPECT_TRUE(flags.insert(flag.flag).second) << flag.flag;
}

TEST(SettingsTable, ReadsValuesOfEveryKind) {
  Settings settings = default_settings();
  EXPECT_EQ(settings.port, 30000);
  EXPECT_EQ(settings.host, "127.0.0.1");
  EXPECT_EQ(settings.context_length, -1);
  EXPECT_DOUBLE_EQ(settings.mem_fraction_static, 0.8);
  EXPECT_FALSE(settings.deterministic);
  ASSERT_TRUE(assign_setting(setting_of("--port"), "0", settings).has_value());
  ASSERT_TRUE(assign_setting(setting_of("--context-length"), "4096", settings).has_value());
  ASSERT_TRUE(assign_setting(setting_of("--mem-fraction-static"), "0.25", settings).has_value());
  ASSERT_TRUE(assign_setting(setting_of("--deterministic"), "true", settings).has_value());
  ASSERT_TRUE(assign_setting(setting_of("--load-format"), "dummy", settings).has_value());
  EXPECT_EQ(settings.port, 0);
  EXPECT_EQ(settings.context_length, 4096);
  EXPECT_DOUBLE_EQ(settings.mem_fraction_static, 0.25);
  EXPECT_TRUE(settings.deterministic);
  EXPECT_EQ(settings.load_format, "dummy");
}

TEST(SettingsTable, RefusesWithWhatWasFoundAndWhatIsAllowed) {
  Settings settings;
  const auto message = [&](std::string_view flag, std::string_view text) {
    const Status status = assign_setting(setting_of(flag), text, settings);
    EXPECT_FALSE(status.has_value()) << flag << " " << text;
    return status.has_value() ? std::string() : status.error().message;
  };
  EXPECT_EQ(message("--port", "65536"), "--port is 65536; allowed: an integer from 0 to 65535");
  EXPECT_EQ(message("--load-format", "pt"), "--load-format is pt; allowed: one of auto, safetensors, dummy");
  for (const char* text : {"", "1.5", "1e3", "0x10", " 1", "1 ", "+1", "99999999999999999999", "nan"})
    message("--port", text);
  for (const char* text : {"", "nan", "inf", "-inf", "0.5x", "2", "-0.5"}) message("--mem-fraction-static", text);
  message("--context-length", "0");
  message("--context-length", "-2");
  message("--tp-size", "0");
  message("--tp-size", "4097");
  message("--deepep-mode", "fast");
}

TEST(SettingsTable, TheCommittedPageIsTheGeneratedOne) {
  const auto page = read_file_text(std::string(GIMBAL_SOURCE_DIR) + "/docs/settings.md");
  ASSERT_TRUE(page.has_value()) << page.error().message;
  EXPECT_EQ(*page, settings_page()) << "write it again with: gimbal settings-page > docs/settings.md";
}

}  // namespace
}  // namespace gimbal
