"""The tools beside the sources: what they print and how they end."""

import importlib.machinery
import importlib.util
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True


def load_tool(name):
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "tools" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = module
    loader.exec_module(module)
    return module


class InstallDependencies(unittest.TestCase):
    def run_tool(self, *arguments, path=None):
        environment = {"PATH": path} if path else None
        return subprocess.run(
            ["/bin/bash", str(ROOT / "tools" / "install_dependencies"), *arguments],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )

    def test_lists_each_package_once_with_a_reason(self):
        lines = self.run_tool("--list", "--with-tests").stdout.splitlines()
        names = [line.split()[0] for line in lines]
        self.assertEqual(len(names), len(set(names)))
        self.assertIn("libboost1.81-dev", names)
        self.assertIn("python3-pytest", names)
        self.assertTrue(all(len(line.split()) > 1 for line in lines))
        self.assertNotIn("python3-pytest", self.run_tool("--list").stdout)

    def test_unknown_option_is_refused(self):
        result = self.run_tool("--everything")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--everything", result.stderr)

    def test_system_without_apt_is_told_so(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "cat").symlink_to("/bin/cat")
            result = self.run_tool("--check", path=folder)
        self.assertEqual(result.returncode, 1)
        self.assertIn("apt-get", result.stderr)

    def test_check_of_missing_packages_fails_and_names_them(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, body in (("dpkg-query", "exit 1"), ("apt-get", "exit 99")):
                (Path(folder) / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
                (Path(folder) / name).chmod(0o755)
            result = self.run_tool("--check", path=f"{folder}:/usr/bin:/bin")
        self.assertEqual(result.returncode, 1)
        self.assertIn("libhwy-dev", result.stdout)
        self.assertIn("missing", result.stderr)


CTEST_REPORT = """<testsuite>
  <testcase name="A.One" status="run"/><testcase name="A.Two" status="fail"><failure message=""/></testcase>
  <testcase name="A.Three" status="notrun"><skipped message="SKIP"/></testcase>
  <testcase name="b_test_NOT_BUILT" status="notrun"><skipped message=""/></testcase>
  <testcase name="python.golden" status="run"/><testcase name="source_check" status="run"/>
</testsuite>"""
PYTEST_REPORT = """<testsuites><testsuite>
  <testcase name="a"/><testcase name="b"/><testcase name="c"><skipped/></testcase>
</testsuite></testsuites>"""


class RunTests(unittest.TestCase):
    def test_counts_python_cases_one_by_one(self):
        run_tests = load_tool("run_tests")
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "ctest.xml").write_text(CTEST_REPORT, encoding="utf-8")
            (Path(folder) / "golden.xml").write_text(PYTEST_REPORT, encoding="utf-8")
            groups = run_tests.read_counts(Path(folder) / "ctest.xml", Path(folder))
        units = groups["unit tests"]
        self.assertEqual((units.passed, units.skipped, units.failed), (1, 1, ["A.Two", "b_test_NOT_BUILT"]))
        self.assertEqual((groups["python.golden"].passed, groups["python.golden"].skipped), (2, 1))
        self.assertEqual(groups["source_check"].passed, 1)

    def test_python_test_that_died_counts_as_failed(self):
        run_tests = load_tool("run_tests")
        report = '<testsuite><testcase name="python.golden" status="fail"><failure/></testcase></testsuite>'
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "ctest.xml").write_text(report, encoding="utf-8")
            groups = run_tests.read_counts(Path(folder) / "ctest.xml", Path(folder))
        self.assertEqual(groups["python.golden"].failed, ["python.golden"])


class RunFuzzers(unittest.TestCase):
    def run_program(self, script, with_corpus=True):
        run_fuzzers = load_tool("run_fuzzers")
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            program = root / "file_fuzzer"
            program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
            program.chmod(0o755)
            run_fuzzers.CORPUS = root / "corpus"
            if with_corpus:
                (root / "corpus" / "file").mkdir(parents=True)
                (root / "corpus" / "file" / "one").write_text("x", encoding="utf-8")
            return run_fuzzers.run_one(program, root / "work", 1)

    def test_counts_executions(self):
        self.assertEqual(self.run_program("echo 'stat::number_of_executed_units: 42' >&2"), (42, None))

    def test_crash_fails(self):
        executions, error = self.run_program("echo 'stat::number_of_executed_units: 7' >&2; exit 77")
        self.assertEqual(executions, 7)
        self.assertIn("77", error)

    def test_nothing_executed_or_no_corpus_fails(self):
        self.assertEqual(self.run_program("exit 0"), (0, "executed nothing"))
        self.assertIn("corpus", self.run_program("exit 0", with_corpus=False)[1])


class ContinuousIntegration(unittest.TestCase):
    def run_ci(self, makefile):
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / ".ci" / "run"
            script.parent.mkdir()
            script.write_bytes((ROOT / ".ci" / "run").read_bytes())
            (Path(folder) / "Makefile").write_text(makefile, encoding="utf-8")
            return subprocess.run(
                ["/bin/bash", str(script)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
            )

    def test_sums_the_tests_of_all_stages(self):
        result = self.run_ci(
            "test asan:\n\t@echo 10 passed, 0 failed\nformat-check source-check tidy tsan fuzz:\n\t@echo fine\n"
        )
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(result.stdout.splitlines()[-1], "25 passed, 0 failed")

    def test_one_bad_stage_fails_all_and_the_rest_still_runs(self):
        result = self.run_ci(
            "test tidy:\n\t@echo 10 passed, 2 failed; exit 1\nformat-check source-check:\n\t@exit 1\nasan tsan fuzz:\n\t@echo fine\n"
        )
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stdout.splitlines()[-1], "23 passed, 6 failed")


if __name__ == "__main__":
    unittest.main()
