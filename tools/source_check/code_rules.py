"""Sizes, names, state and marks inside C++ files and other texts."""

import re
from pathlib import PurePosixPath

import project_rules
from cpp_outline import blank_comments_and_strings, outline_of
from source_tree import Finding

_MARKS = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX")) + r")\b")
_CONSTANT = re.compile(r"\b(?:const|constexpr|constinit)\b")
_NOT_A_VARIABLE = re.compile(
    r"^(?:(?:using|typedef|static_assert|friend|namespace|extern|class|struct|union|enum|template|concept)\b|[A-Z][A-Z0-9_]+\s*\()"
)
_NUMBER = r"(?:float|double|u?int(?:8|16|32|64)_t|size_t|std::byte|hwy::bfloat16_t|TokenId|PageId)"
_SHAPED_FIELD = re.compile(
    rf"^\s*(?:(?:const\s+)?{_NUMBER}\s*(?:const\s*)?\*\s*\w+|std::vector<{_NUMBER}>\s+\w+|std::span<(?:const\s+)?{_NUMBER}>\s+\w+"
    r"|WeightMatrix\s+\w+)\s*(?:=[^;]*|\{\})?;\s*(//.*)?$"
)
_CODE_IN_COMMENT = re.compile(
    r"^\s*//\s*(?:return\b[^.]*;|(?:if|for|while)\s*\(.*\)\s*(?:\{|(?:return|continue|break)\b.*;|[\w:.>-]+\(.*\);)"
    r"|(?:auto|const|int|float|double|void|bool|std::[\w:<>]+)\s.*(?:=.*;|\(.*\);|\)\s*\{)|GIMBAL_\w+\(.*;"
    r"|#\s*(?:include|if|define)\b.*|[{}];?)\s*$"
)


def outlines(tree):
    for path in tree.cpp_paths():
        yield path, outline_of(tree.text(path))


def function_length(tree):
    for path, outline in outlines(tree):
        for function in outline.functions:
            device = function.is_device or path.endswith((".cu", ".cuh")) and function.is_device
            limit = project_rules.MAX_DEVICE_FUNCTION_LINES if device else project_rules.MAX_HOST_FUNCTION_LINES
            if function.is_definition and function.num_lines > limit:
                message = f"{function.name} has {function.num_lines} lines; the limit is {limit}"
                yield Finding("function-length", path, function.first_line, message)


def parameter_count(tree):
    limit = project_rules.MAX_HOST_PARAMETERS
    for path, outline in outlines(tree):
        for function in outline.functions:
            is_macro = function.name.isupper()
            if function.num_parameters > limit and not function.is_device and not is_macro:
                message = f"{function.name} has {function.num_parameters} parameters; above {limit} use an args struct"
                yield Finding("parameter-count", path, function.first_line, message)


def file_length(tree):
    for path in tree.text_paths():
        is_code = (
            path.endswith((".h", ".cc", ".cu", ".cuh", ".py", ".cmake", ".sh"))
            or PurePosixPath(path).name == "CMakeLists.txt"
        )
        count = len(tree.lines(path)) if is_code else 0
        if count > project_rules.MAX_FILE_LINES:
            yield Finding("file-length", path, 0, f"{count} lines; the limit is {project_rules.MAX_FILE_LINES}")


def balanced_braces(tree):
    for path, outline in outlines(tree):
        if not outline.is_balanced:
            yield Finding("balanced-braces", path, 0, "braces do not balance, so the other rules cannot see this file")


def _code_matches(tree, pattern, folder="src/"):
    for path in tree.cpp_paths(folder):
        for number, line in enumerate(blank_comments_and_strings(tree.text(path)).splitlines(), 1):
            if pattern.search(line):
                yield path, number


def environment_access(tree):
    for path, line in _code_matches(tree, re.compile(r"\b(?:secure_)?getenv\s*\(|\benviron\b")):
        if path != project_rules.ENVIRONMENT_FILE:
            message = f"the environment is read in {project_rules.ENVIRONMENT_FILE} only; take a setting instead"
            yield Finding("environment-access", path, line, message)


def catch_all(tree):
    for path, line in _code_matches(tree, re.compile(r"\bcatch\s*\(\s*\.\.\.\s*\)")):
        if path not in project_rules.CATCH_ALL_FILES:
            yield Finding(
                "catch-all", path, line, "catches everything away from a thread or request boundary; name the exception"
            )


def unfinished_marks(tree):
    for path in tree.text_paths():
        for number, line in enumerate(tree.lines(path), 1):
            match = _MARKS.search(line)
            if match:
                yield Finding(
                    "unfinished-marks", path, number, f"{match.group(1)}: finish it, or file it where work is tracked"
                )


def commented_out_code(tree):
    for path in tree.cpp_paths():
        for number, line in enumerate(tree.lines(path), 1):
            if _CODE_IN_COMMENT.match(line):
                yield Finding("commented-out-code", path, number, "looks like code in a comment; delete it")


def foreign_words(tree):
    pattern = re.compile("|".join(project_rules.FOREIGN_WORDS), re.IGNORECASE)
    for path in tree.paths:
        if pattern.search(path):
            yield Finding("foreign-words", path, 0, "the path names something outside the product")
    for path in tree.text_paths():
        for number, line in enumerate(tree.lines(path), 1):
            match = pattern.search(line)
            if match:
                yield Finding("foreign-words", path, number, f"'{match.group(0)}' is outside the product")


def _banned_parts(words):
    return [word for word in words if word in project_rules.BANNED_NAME_PARTS]


def banned_names(tree):
    for path in tree.paths:
        if not path.startswith(("src/", "tools/", "tests/", "benchmarks/", "cmake/")) or path.startswith(
            "tests/golden/data/"
        ):
            continue
        for part in PurePosixPath(path).parts:
            name = part.split(".")[0]
            banned = [] if name in project_rules.ALLOWED_NAMES else _banned_parts(re.split(r"[_-]", name))
            if banned:
                yield Finding("banned-names", path, 0, f"'{part}' says {', '.join(banned)}: name what it holds")
    for path, outline in outlines(tree):
        for kind in outline.types:
            parts = [part.lower() for part in re.findall(r"[A-Z][a-z0-9]*|[a-z0-9]+", kind.name)]
            banned = _banned_parts(parts) + (["base"] if parts[:1] == ["base"] and len(parts) > 1 else [])
            if banned:
                yield Finding(
                    "banned-names", path, kind.first_line, f"type {kind.name} says {', '.join(banned)}: name what it is"
                )


def tensor_shapes(tree):
    for path, outline in outlines(tree):
        lines = tree.lines(path)
        for kind in outline.types:
            if not kind.name.endswith(("Weights", "Args")):
                continue
            for number in range(kind.first_line, kind.last_line + 1):
                match = _SHAPED_FIELD.match(lines[number - 1])
                if match and "[" not in (match.group(1) or ""):
                    yield Finding(
                        "tensor-shapes", path, number, f"field of {kind.name} has no [shape] in a trailing comment"
                    )


def mutable_globals(tree):
    for path, outline in outlines(tree):
        for statement in outline.statements:
            text = statement.text
            if _NOT_A_VARIABLE.match(text) or _CONSTANT.search(text):
                continue
            is_static_member = statement.scope == "type" and re.match(r"^(?:inline\s+)?static\b", text)
            is_global = statement.scope == "namespace" and re.search(r"\w[\w:<>,*&\s]*[\s*&>]\w+\s*(?:=|\{|\[|$)", text)
            if is_static_member or is_global:
                yield Finding(
                    "mutable-globals", path, statement.line, "state that any code can change; pass it down instead"
                )
        for function in outline.functions:
            for match in re.finditer(r"^[ \t]*(?:static|thread_local)\b(?P<rest>[^;({]*)", function.body, re.MULTILINE):
                if not _CONSTANT.search(match.group("rest")):
                    line = function.last_line - function.body.count("\n", match.start())
                    yield Finding(
                        "mutable-globals", path, line, f"static state inside {function.name}; pass it down instead"
                    )


RULES = (
    function_length,
    parameter_count,
    file_length,
    balanced_braces,
    environment_access,
    catch_all,
    unfinished_marks,
    commented_out_code,
    foreign_words,
    banned_names,
    tensor_shapes,
    mutable_globals,
)
