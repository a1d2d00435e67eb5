"""The files of the repository, as the rules see them."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

CPP_SUFFIXES = (".h", ".cc", ".cu", ".cuh")
# Data that comes from outside or is generated: no rule of ours reads it.
DATA_FOLDERS = ("models/", "share/models/", "tests/golden/data/", "tests/fuzz/corpus/")
SKIPPED_FOLDERS = {".git", "build", ".venv", ".cache", "__pycache__", ".pytest_cache"}


@dataclass(frozen=True)
class Finding:
    """One broken rule. `line` is 1-based; 0 means the file as a whole."""

    rule: str
    path: str
    line: int
    message: str

    def __str__(self):
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place}: [{self.rule}] {self.message}"


class SourceTree:
    """Paths are relative to the root, with forward slashes. Files are read once."""

    def __init__(self, root):
        self.root = Path(root)
        self._texts = {}
        self.paths = sorted(self._list())
        self._path_set = set(self.paths)

    def _list(self):
        git = (
            subprocess.run(
                [
                    "git",
                    "-c",
                    f"safe.directory={self.root.resolve()}",
                    "-C",
                    str(self.root),
                    "ls-files",
                    "-z",
                    "--cached",
                    "--others",
                    "--exclude-standard",
                ],
                capture_output=True,
                check=False,
            )
            if (self.root / ".git").exists()
            else None
        )
        if git is not None and git.returncode == 0:
            names = git.stdout.decode().split("\0")
            return {name for name in names if name and (self.root / name).is_file()}
        return {
            path.relative_to(self.root).as_posix()
            for path in self.root.rglob("*")
            if path.is_file() and not SKIPPED_FOLDERS.intersection(path.relative_to(self.root).parts)
        }

    def exists(self, path):
        name = path.rstrip("/")
        return name in self._path_set or any(known.startswith(name + "/") for known in self.paths)

    def text(self, path):
        """The text of a file, or None when it is not there or is not text."""
        if path not in self._texts:
            try:
                self._texts[path] = (self.root / path).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                self._texts[path] = None
        return self._texts[path]

    def lines(self, path):
        return (self.text(path) or "").splitlines()

    def cpp_paths(self, folder=""):
        return [
            path for path in self.paths if path.startswith(folder) and path.endswith(CPP_SUFFIXES) and not is_data(path)
        ]

    def text_paths(self):
        return [path for path in self.paths if not is_data(path) and self.text(path) is not None]


def is_data(path):
    return path.startswith(DATA_FOLDERS)
