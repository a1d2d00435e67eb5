"""Compiles every header alone. Slow, so results are kept by content: a header is compiled again when it or anything it includes changes."""

import hashlib
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath

from layering_rules import includes_of
from source_tree import Finding

FLAGS = ("-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-DSPDLOG_FMT_EXTERNAL", '-DGIMBAL_SOURCE_DIR="."', "-x", "c++")


def _closure(tree, path, seen):
    if path in seen or not tree.exists(path):
        return
    seen.add(path)
    here = PurePosixPath(path).parent
    for _, name in includes_of(tree, path):
        _closure(tree, "src/" + name, seen)
        _closure(tree, (here / name).as_posix(), seen)


def _key(tree, path):
    seen = set()
    _closure(tree, path, seen)
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for name in sorted(seen):
        digest.update(name.encode() + b"\0" + (tree.text(name) or "").encode())
    return digest.hexdigest()


def _compile(tree, path, cache):
    mark = cache / _key(tree, path)
    if mark.exists():
        return None
    source = f'#include "{path.removeprefix("src/")}"\n#include "{path.removeprefix("src/")}"\n'
    compiler = subprocess.run(
        ["g++", *FLAGS, f"-I{tree.root / 'src'}", "-"], input=source, capture_output=True, text=True, check=False
    )
    if compiler.returncode == 0:
        mark.touch()
        return None
    first = next((line for line in compiler.stderr.splitlines() if "error" in line), compiler.stderr.strip()[:200])
    return Finding("header-alone", path, 0, f"does not compile alone: {first}")


def check_headers(tree):
    cache = tree.root / "build" / "source_check_headers"
    cache.mkdir(parents=True, exist_ok=True)
    # Highway's -inl.h files are meant to be included once per instruction set, inside a .cc.
    headers = [path for path in tree.cpp_paths("src/") if path.endswith(".h") and not path.endswith("-inl.h")]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        results = list(pool.map(lambda path: _compile(tree, path, cache), headers))
    return [finding for finding in results if finding is not None]
