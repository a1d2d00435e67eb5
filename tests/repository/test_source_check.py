"""Every rule of tools/source_check has an example that passes and one that does not."""

import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "source_check"))

import code_rules  # noqa: E402
import header_check  # noqa: E402
import layering_rules  # noqa: E402
import project_rules  # noqa: E402
import ratchets  # noqa: E402
from cpp_outline import count_parameters, outline_of  # noqa: E402
from source_tree import Finding, SourceTree  # noqa: E402


class TreeTest(unittest.TestCase):
    def tree(self, files):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for name, text in files.items():
            path = Path(folder.name) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return SourceTree(folder.name)

    def places(self, rule, files):
        return [(finding.path, finding.line) for finding in rule(self.tree(files))]

    def assert_clean(self, rule, files):
        self.assertEqual([str(finding) for finding in rule(self.tree(files))], [])


class Layering(TreeTest):
    def test_left_includes_pass(self):
        self.assert_clean(
            layering_rules.folder_order,
            {"src/ops/a.cc": '#include "base/b.h"\n#include "ops/a.h"\n#include <vector>\n'},
        )

    def test_right_include_fails(self):
        files = {"src/base/a.cc": '\n#include "ops/b.h"\n'}
        self.assertEqual(self.places(layering_rules.folder_order, files), [("src/base/a.cc", 2)])

    def test_scheduler_sees_base_and_kv_cache_only(self):
        self.assert_clean(layering_rules.folder_order, {"src/scheduler/a.cc": '#include "kv_cache/page_pool.h"\n'})
        files = {"src/scheduler/a.cc": '#include "ops/matmul.h"\n'}
        self.assertEqual(self.places(layering_rules.folder_order, files), [("src/scheduler/a.cc", 1)])

    def test_server_never_sees_a_tensor(self):
        files = {"src/server/a.cc": '#include "engine/b.h"\n#include "tensor/data_type.h"\n'}
        self.assertEqual(self.places(layering_rules.folder_order, files), [("src/server/a.cc", 2)])

    def test_unknown_folder_fails(self):
        self.assertEqual(self.places(layering_rules.folder_order, {"src/attic/a.cc": ""}), [("src/attic/a.cc", 0)])

    def test_documents_repeat_the_order(self):
        order = project_rules.FOLDER_ORDER
        table = "".join(f"| `src/{name}/` | text |\n" for name in order)
        good = {"CMakeLists.txt": f"foreach(folder {' '.join(order)})\n", "docs/architecture.md": table}
        self.assert_clean(layering_rules.order_in_documents, good)
        bad = {
            "CMakeLists.txt": f"foreach(folder {' '.join(reversed(order))})\n",
            "docs/architecture.md": table + "| `src/attic/` | x |\n",
        }
        self.assertEqual(len(self.places(layering_rules.order_in_documents, bad)), 2)

    def test_named_files_exist(self):
        files = {"src/main.cc": "", "docs/architecture.md": "`src/main.cc` in `src/`\n`src/gone.cc`, `gimbal serve`\n"}
        self.assertEqual(self.places(layering_rules.named_files_exist, files), [("docs/architecture.md", 2)])

    def test_dead_files(self):
        good = {
            "src/a/CMakeLists.txt": "gimbal_folder(a SOURCES x.cc)",
            "src/a/x.cc": '#include "a/x.h"\n',
            "src/a/x.h": "",
        }
        self.assert_clean(layering_rules.dead_files, good)
        bad = {"src/a/CMakeLists.txt": "# x.cc\n", "src/a/x.cc": "", "src/a/y.h": ""}
        self.assertEqual(self.places(layering_rules.dead_files, bad), [("src/a/x.cc", 0), ("src/a/y.h", 0)])

    def test_op_stems(self):
        parts = {f"src/ops/norm{suffix}": "" for suffix in (".cc", "_cpu.cc", "_test.cc")}
        self.assert_clean(
            layering_rules.op_stems, {**parts, "src/ops/norm.h": "void norm_reference(const NormArgs& args);\n"}
        )
        del parts["src/ops/norm_test.cc"]
        self.assertEqual(len(self.places(layering_rules.op_stems, {**parts, "src/ops/norm.h": "void norm();\n"})), 2)


class Outline(unittest.TestCase):
    def test_finds_functions_of_all_shapes(self):
        text = """namespace a {
template <typename T, int N = 3>
Result<std::map<int, T>> free_function(const std::vector<std::pair<int, T>>& x, std::string text = {}) {
  auto lambda = [&](int y) { return y; };
  return "}{";  // }
}
class Thing {
 public:
  Thing(int a, int b) : a_{a}, b_(b) {}
  int get() const { return a_; }
  bool operator==(const Thing&) const = default;
  static Thing make(int a);
 private:
  int a_ = 0;
  std::function<void(int, int)> callback_;
};
extern "C" int entry(const char* data) { return 0; }
}  // namespace a
"""
        outline = outline_of(text)
        self.assertTrue(outline.is_balanced)
        found = {
            function.name: (function.first_line, function.num_lines, function.num_parameters)
            for function in outline.functions
        }
        self.assertEqual(found["free_function"], (2, 5, 2))
        self.assertEqual(found["Thing"], (9, 1, 2))
        self.assertEqual(found["get"], (10, 1, 0))
        self.assertEqual(found["make"], (12, 1, 1))
        self.assertEqual(found["entry"], (17, 1, 1))
        self.assertNotIn("callback_", found)
        self.assertEqual([kind.name for kind in outline.types], ["Thing"])

    def test_raw_strings_and_preprocessor_hide_their_braces(self):
        text = "#define OPEN {\nconst char* text = R\"(\n{ \" )\";\nvoid f() {\n  char c = '{';\n  int n = 1'000;\n}\n"
        outline = outline_of(text)
        self.assertTrue(outline.is_balanced)
        self.assertEqual([(function.name, function.num_lines) for function in outline.functions], [("f", 4)])

    def test_counts_parameters(self):
        self.assertEqual(count_parameters(""), 0)
        self.assertEqual(count_parameters("void"), 0)
        self.assertEqual(count_parameters("std::map<int, int> a, const std::function<void(int, int)>& b = {}"), 2)


def function_of(num_lines):
    return "void f() {\n" + "  call();\n" * (num_lines - 2) + "}\n"


class Code(TreeTest):
    def test_function_length(self):
        self.assert_clean(code_rules.function_length, {"src/a.cc": function_of(60)})
        self.assertEqual(
            self.places(code_rules.function_length, {"src/a.cc": "\n" + function_of(61)}), [("src/a.cc", 2)]
        )

    def test_device_functions_may_be_longer(self):
        self.assert_clean(code_rules.function_length, {"src/a.cu": "__global__ " + function_of(200)})
        self.assertEqual(
            self.places(code_rules.function_length, {"src/a.cu": "__global__ " + function_of(201)}), [("src/a.cu", 1)]
        )

    def test_parameter_count(self):
        self.assert_clean(code_rules.parameter_count, {"src/a.h": "int f(int a, int b, int c, int d, int e);\n"})
        files = {"src/a.h": "int f(int a, int b, int c, int d, int e, int g);\n"}
        self.assertEqual(self.places(code_rules.parameter_count, files), [("src/a.h", 1)])

    def test_file_length(self):
        self.assert_clean(code_rules.file_length, {"src/a.cc": "\n" * 800, "docs/long.md": "\n" * 900})
        self.assertEqual(self.places(code_rules.file_length, {"src/a.cc": "\n" * 801}), [("src/a.cc", 0)])

    def test_balanced_braces(self):
        self.assert_clean(code_rules.balanced_braces, {"src/a.cc": "void f() { if (x) { y(); } }\n"})
        self.assertEqual(
            self.places(code_rules.balanced_braces, {"src/a.cc": "void f() { if (x) {  }\n"}), [("src/a.cc", 0)]
        )

    def test_environment_access(self):
        files = {
            "src/settings/environment.cc": 'auto x = std::getenv("A");\n',
            "src/b.cc": "// getenv() is elsewhere\n",
        }
        self.assert_clean(code_rules.environment_access, files)
        self.assertEqual(
            self.places(code_rules.environment_access, {"src/b.cc": 'auto x = std::getenv("A");\n'}), [("src/b.cc", 1)]
        )

    def test_catch_all(self):
        code = "void f() { try { g(); } catch (...) { } }\n"
        self.assert_clean(code_rules.catch_all, {"src/main.cc": code, "src/b.cc": "// no catch (...) here\n"})
        self.assertEqual(self.places(code_rules.catch_all, {"src/b.cc": code}), [("src/b.cc", 1)])

    def test_unfinished_marks(self):
        self.assert_clean(
            code_rules.unfinished_marks, {"src/a.cc": "// Everything is done. XXXL\n", "docs/a.md": "todos are fine\n"}
        )
        for mark in ("TO" + "DO", "FIX" + "ME", "X" + "XX"):
            self.assertEqual(
                self.places(code_rules.unfinished_marks, {"docs/a.md": f"x\n{mark}: y\n"}), [("docs/a.md", 2)]
            )

    def test_commented_out_code(self):
        self.assert_clean(
            code_rules.commented_out_code,
            {"src/a.cc": "// for (every, row): the same order;\n// if it is so, return.\nint x;  // int\n"},
        )
        self.assertEqual(self.places(code_rules.commented_out_code, {"src/a.cc": "// return x;\n"}), [("src/a.cc", 1)])

    def test_foreign_words(self):
        self.assert_clean(
            code_rules.foreign_words, {"docs/a.md": "The framework/main loop; shared/ memory; a library.\n"}
        )
        bad = "see " + "../sha" + "red/facts\nand /wo" + "rk/main\n"
        self.assertEqual(
            self.places(code_rules.foreign_words, {"docs/a.md": bad}), [("docs/a.md", 1), ("docs/a.md", 2)]
        )

    def test_data_is_not_read(self):
        self.assert_clean(code_rules.foreign_words, {"models/m/config.json": "../sha" + "red/\n"})

    def test_banned_names(self):
        self.assert_clean(
            code_rules.banned_names,
            {
                "src/model/deepseek_v3/renewal.cc": "class Implicit {};\nstruct BaseImage2 {};\n".replace(
                    "BaseImage2", "Basement"
                )
            },
        )
        files = {"src/a/string_utils.h": "", "src/a/x.h": "class PageManager {};\nstruct BaseOp {};\n"}
        self.assertEqual(
            self.places(code_rules.banned_names, files),
            [("src/a/string_utils.h", 0), ("src/a/x.h", 1), ("src/a/x.h", 2)],
        )

    def test_tensor_shapes(self):
        good = "struct NormArgs {\n  const float* x = nullptr;  // [num_rows]\n  ThreadTeam* team = nullptr;\n  int64_t n = 0;\n};\nstruct Other {\n  float* y;\n};\n"
        self.assert_clean(code_rules.tensor_shapes, {"src/a.h": good})
        bad = "struct NormWeights {\n  const float* x = nullptr;  // the input\n  WeightMatrix w;\n  std::vector<float> b;  // [n]\n};\n"
        self.assertEqual(self.places(code_rules.tensor_shapes, {"src/a.h": bad}), [("src/a.h", 2), ("src/a.h", 3)])

    def test_mutable_globals(self):
        good = (
            "namespace n {\nconstexpr int kA = 1;\nconst std::string kB = f();\nusing X = int;\nclass Y;\nnamespace fs = std::filesystem;\n"
            "int f(int a);\nvoid g() {\n  static constexpr int kC = 2;\n  static const int kD = f(1);\n  int x = static_cast<int>(kC);\n}\n}\n"
        )
        self.assert_clean(code_rules.mutable_globals, {"src/a.cc": good})
        bad = "namespace n {\nint counter = 0;\nstd::vector<int> list;\nvoid g() {\n\n  static int calls = 0;\n}\nclass C {\n  static int s_;\n};\n}\n"
        self.assertEqual(
            self.places(code_rules.mutable_globals, {"src/a.cc": bad}), [("src/a.cc", line) for line in (2, 3, 9, 6)]
        )


class Headers(TreeTest):
    def test_compiles_each_alone_and_remembers(self):
        tree = self.tree(
            {
                "src/a/good.h": "#pragma once\n#include <string>\nstd::string f();\n",
                "src/a/bad.h": "#pragma once\nUnknown g();\n",
            }
        )
        self.assertEqual([finding.path for finding in header_check.check_headers(tree)], ["src/a/bad.h"])
        self.assertEqual(len(list((tree.root / "build" / "source_check_headers").iterdir())), 1)


class Ratchets(unittest.TestCase):
    FINDINGS = [Finding("rule", "a.cc", 1, "x"), Finding("rule", "a.cc", 2, "y")]

    def test_allowed_counts_pass(self):
        self.assertEqual(ratchets.apply_ratchets(self.FINDINGS, {"rule": {"a.cc": 2}}), [])

    def test_more_than_allowed_fails(self):
        self.assertEqual(ratchets.apply_ratchets(self.FINDINGS, {"rule": {"a.cc": 1}}), self.FINDINGS)

    def test_a_count_that_fell_must_be_lowered(self):
        self.assertEqual([finding.rule for finding in ratchets.apply_ratchets([], {"rule": {"a.cc": 2}})], ["ratchets"])
        self.assertEqual(ratchets.lowered(self.FINDINGS, {"rule": {"a.cc": 3, "b.cc": 1}}), {"rule": {"a.cc": 2}})
        self.assertEqual(ratchets.lowered(self.FINDINGS, {}), {})

    def test_a_count_may_not_rise_between_revisions(self):
        self.assertEqual(ratchets.raised({"rule": {"a.cc": 2}}, {"rule": {"a.cc": 1}}), [])
        self.assertEqual(len(ratchets.raised({"rule": {"a.cc": 2}}, {"rule": {"a.cc": 3, "b.cc": 1}})), 2)


if __name__ == "__main__":
    unittest.main()
