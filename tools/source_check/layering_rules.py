"""Folder order, dead files, op stems, and the documentation that repeats them."""

import re
from pathlib import PurePosixPath

import project_rules
from source_tree import Finding

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
_HWY_SELF = re.compile(r"^\s*#\s*define\s+HWY_TARGET_INCLUDE")
ARCHITECTURE = "docs/architecture.md"


def folder_of(path):
    parts = PurePosixPath(path).parts
    return parts[1] if len(parts) > 2 and parts[0] == "src" else None


def includes_of(tree, path):
    """(line number, included name) of every quoted include."""
    for number, line in enumerate(tree.lines(path), 1):
        match = _INCLUDE.match(line)
        if match:
            yield number, match.group(1)


def _refusal(folder, target):
    """Why `folder` may not include `target`, or None."""
    order = project_rules.FOLDER_ORDER
    if target == folder or target not in order:
        return None
    if order.index(target) > order.index(folder):
        return f"{folder} may not include {target}: {target} stands to its right in the include order"
    only = project_rules.ONLY_INCLUDES.get(folder)
    if only is not None and target not in only:
        return f"{folder} may include only {', '.join(only)}; this includes {target}"
    if target in project_rules.NEVER_INCLUDES.get(folder, ()):
        return f"{folder} may never include {target}"
    return None


def folder_order(tree):
    for path in tree.cpp_paths("src/"):
        folder = folder_of(path)
        if folder is None:
            continue
        if folder not in project_rules.FOLDER_ORDER:
            message = f"folder {folder} has no place in the include order of project_rules.py and {ARCHITECTURE}"
            yield Finding("folder-order", path, 0, message)
            continue
        for line, name in includes_of(tree, path):
            message = _refusal(folder, name.split("/")[0])
            if message:
                yield Finding("folder-order", path, line, message)


def order_in_documents(tree):
    """The order is told three times: to this tool, to CMake and to people. They agree."""
    expected = list(project_rules.FOLDER_ORDER)
    cmake = re.search(r"foreach\(folder\s+(.*?)\)", tree.text("CMakeLists.txt") or "", re.DOTALL)
    if cmake and cmake.group(1).split() != expected:
        yield Finding(
            "order-in-documents",
            "CMakeLists.txt",
            0,
            "foreach(folder ...) differs from FOLDER_ORDER of project_rules.py",
        )
    if not tree.exists(ARCHITECTURE):
        return
    rows = re.findall(r"^\|\s*`src/(\w+)/`\s*\|", tree.text(ARCHITECTURE), re.MULTILINE)
    if rows != expected:
        difference = sorted(set(rows) ^ set(expected)) or "the sequence"
        yield Finding(
            "order-in-documents", ARCHITECTURE, 0, f"include order table differs from FOLDER_ORDER: {difference}"
        )


def named_files_exist(tree):
    pattern = re.compile(r"`((?:src|tests|tools|docs|cmake|models|share|benchmarks|\.ci)/[\w./-]*)`")
    for number, line in enumerate(tree.lines(ARCHITECTURE), 1):
        for name in pattern.findall(line):
            if not tree.exists(name):
                yield Finding("named-files-exist", ARCHITECTURE, number, f"names {name}, which does not exist")


def _listed_sources(tree):
    """Paths of the C++ sources that some CMakeLists.txt names, relative to the root."""
    listed = set()
    for path in tree.paths:
        if PurePosixPath(path).name != "CMakeLists.txt":
            continue
        folder = PurePosixPath(path).parent
        for word in re.findall(r"[\w./-]+", re.sub(r"#.*", "", tree.text(path) or "")):
            listed.add((folder / word).as_posix())
            listed.add((folder / (word + ".cc")).as_posix())
    return listed


def dead_files(tree):
    listed = _listed_sources(tree)
    included = set()
    for path in tree.cpp_paths():
        here = PurePosixPath(path).parent
        for _, name in includes_of(tree, path):
            included.add("src/" + name)
            included.add((here / name).as_posix())
            included.add(name)
    for path in tree.cpp_paths():
        if path.endswith((".cc", ".cu")) and path not in listed:
            yield Finding("dead-files", path, 0, "no CMakeLists.txt lists this source")
        if path.endswith((".h", ".cuh")) and path not in included:
            yield Finding("dead-files", path, 0, "no source includes this header")


def op_stems(tree):
    for path in tree.cpp_paths("src/ops/"):
        stem = PurePosixPath(path).stem
        if not path.endswith(".h") or stem in project_rules.OPS_HEADERS_WITHOUT_OP:
            continue
        for suffix in (".cc", "_cpu.cc", "_test.cc"):
            if not tree.exists(f"src/ops/{stem}{suffix}"):
                yield Finding("op-stems", path, 0, f"op {stem} has no src/ops/{stem}{suffix}")
        if not re.search(r"\w+_reference\s*\(", tree.text(path)):
            yield Finding("op-stems", path, 0, f"op {stem} declares no *_reference peer")


RULES = (folder_order, order_in_documents, named_files_exist, dead_files, op_stems)
