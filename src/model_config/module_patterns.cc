#include "model_config/module_patterns.h"

#include <fmt/format.h>
#include <unicode/regex.h>

namespace gimbal {

struct ModulePatterns::Pattern {
  std::string name;     // exact name; empty for an expression
  std::string literal;  // text that every match contains; may be empty
  std::unique_ptr<icu::RegexPattern> expression;
};

namespace {

constexpr size_t kLongestEntry = 1000;
constexpr size_t kMostEntries = 100000;
constexpr int32_t kStepLimit = 100;  // ICU counts in units of some thousand steps

// The longest run of plain characters that every match must contain. Looks at the top level only and gives up on
// alternatives.
std::string required_literal(std::string_view expression) {
  std::string best, run;
  int depth = 0;
  const auto close_run = [&] {
    if (run.size() > best.size()) best = run;
    run.clear();
  };
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '|' || c == '[' || c == '^' || c == '$') return {};
    if (c == '(') {
      ++depth;
      close_run();
    } else if (c == ')') {
      --depth;
    } else if (c == '*' || c == '?' || c == '{' || c == '+') {
      if (!run.empty()) run.pop_back();  // the character before may be absent
      close_run();
      if (c == '{') return {};
    } else if (c == '\\' && i + 1 < expression.size() && expression[i + 1] == '.') {
      ++i;
      if (depth == 0) run += '.';
    } else if (c == '\\') {
      return {};
    } else if (c == '.') {
      close_run();
    } else if (depth == 0) {
      run += c;
    }
  }
  close_run();
  return best;
}

// True, false, or an ICU error.
UErrorCode match(const icu::RegexPattern& expression, std::string_view module, bool& is_match) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::UnicodeString text = icu::UnicodeString::fromUTF8({module.data(), static_cast<int32_t>(module.size())});
  const std::unique_ptr<icu::RegexMatcher> matcher(expression.matcher(text, status));
  if (U_FAILURE(status)) return status;
  matcher->setTimeLimit(kStepLimit, status);
  is_match = matcher->lookingAt(status) != 0;
  return status;
}

}  // namespace

Result<ModulePatterns> ModulePatterns::compile(const std::vector<std::string>& entries) {
  ModulePatterns result;
  if (entries.size() > kMostEntries) {
    return fail(Error::invalid(fmt::format("has {} entries; at most {} are read", entries.size(), kMostEntries)));
  }
  for (const std::string& entry : entries) {
    auto pattern = std::make_shared<Pattern>();
    if (!entry.starts_with("re:")) {
      pattern->name = entry;
      result.patterns_.push_back(std::move(pattern));
      continue;
    }
    if (entry.size() > kLongestEntry) {
      return fail(Error::invalid(
          fmt::format("has an expression of {} characters; at most {} are read", entry.size(), kLongestEntry)));
    }
    const std::string_view expression = std::string_view(entry).substr(3);
    UErrorCode status = U_ZERO_ERROR;
    UParseError where;
    pattern->expression.reset(icu::RegexPattern::compile(
        icu::UnicodeString::fromUTF8({expression.data(), static_cast<int32_t>(expression.size())}), where, status));
    bool is_match = false;
    if (U_SUCCESS(status)) {
      status = match(*pattern->expression, "model.layers.60.mlp.experts.383.gate_proj", is_match);
    }
    if (U_FAILURE(status)) {
      return fail(Error::invalid(
          fmt::format("holds '{}', which is not a usable regular expression ({})", entry, u_errorName(status))));
    }
    pattern->literal = required_literal(expression);
    result.patterns_.push_back(std::move(pattern));
  }
  return result;
}

bool ModulePatterns::matches(std::string_view module) const {
  for (const auto& pattern : patterns_) {
    if (pattern->expression == nullptr) {
      if (pattern->name == module) return true;
      continue;
    }
    if (module.find(pattern->literal) == std::string_view::npos) continue;
    bool is_match = false;
    if (U_SUCCESS(match(*pattern->expression, module, is_match)) && is_match) return true;
  }
  return false;
}

}  // namespace gimbal
