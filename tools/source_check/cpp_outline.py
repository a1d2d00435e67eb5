"""Finds functions, types and namespace-scope statements of a C++ file without a compiler.

It reads braces, so it needs no headers and survives half-written code. It knows what the project's style uses; it is not
a parser of all of C++.
"""

import re
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/"
    r'|R"(?P<tag>[^\s()\\]{0,16})\(.*?\)(?P=tag)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE | re.DOTALL)
_TYPE_HEAD = re.compile(r"^(?:typedef\s+)?(?:class|struct|union|enum)\b")
_CONTROL = {
    "if",
    "for",
    "while",
    "switch",
    "return",
    "catch",
    "sizeof",
    "alignof",
    "decltype",
    "static_assert",
    "noexcept",
    "requires",
}


def _blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def blank_comments_and_strings(text):
    """Same length and lines; comments and literals become spaces (the quotes of a literal stay)."""

    def replace(match):
        found = match.group(0)
        if found.startswith("/"):
            return _blank(match)
        return '"' + re.sub(r"[^\n]", " ", found[1:-1]) + '"'

    return _TOKEN.sub(replace, text)


@dataclass
class Function:
    name: str
    first_line: int
    last_line: int  # of the definition; equal to the line of the ';' for a declaration
    num_parameters: int
    is_definition: bool
    is_device: bool
    body: str = ""

    @property
    def num_lines(self):
        return self.last_line - self.first_line + 1


@dataclass
class Statement:
    """Something that ends in ';' at namespace or class scope and is not a function."""

    text: str
    line: int
    scope: str  # "namespace" or "type"


@dataclass
class Type:
    name: str
    first_line: int
    last_line: int


@dataclass
class Outline:
    functions: list = field(default_factory=list)
    statements: list = field(default_factory=list)
    types: list = field(default_factory=list)
    is_balanced: bool = True


def _skip_angles(text, position):
    """Position after the '>' that closes the '<' at `position`, or position + 1 when it does not close."""
    depth = 0
    parens = 0
    for index in range(position, len(text)):
        char = text[index]
        if char == "(":
            parens += 1
        elif char == ")":
            parens -= 1
            if parens < 0:
                return position + 1
        elif parens:
            continue
        elif char == "<":
            depth += 1
        elif char == ">" and text[index - 1] != "-":
            depth -= 1
            if depth == 0:
                return index + 1
        elif char in ";{}":
            return position + 1
    return position + 1


def _without_template_heads(head):
    while True:
        match = re.match(r"\s*(?:export\s+)?template\s*(?=<)", head)
        if not match:
            return head
        end = _skip_angles(head, match.end())
        head = re.sub(r"[^\n]", " ", head[:end]) + head[end:]
        head = head.lstrip()


def _matching(text, position, opening="(", closing=")"):
    depth = 0
    for index in range(position, len(text)):
        if text[index] == opening:
            depth += 1
        elif text[index] == closing:
            depth -= 1
            if depth == 0:
                return index
    return -1


def count_parameters(parameters):
    """Number of top-level comma-separated parts of a parameter list, without its parentheses."""
    if parameters.strip() in ("", "void"):
        return 0
    count, depth, index = 1, 0, 0
    while index < len(parameters):
        char = parameters[index]
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "<":
            end = _skip_angles(parameters, index)
            index = end
            continue
        elif char == "," and depth == 0:
            count += 1
        index += 1
    return count


def _split_function_head(head):
    """(name, parameters, rest after the parameter list) of a function head, or None."""
    index = 0
    while index < len(head):
        char = head[index]
        if char == "<" and not re.search(r"operator\s*<?$", head[:index]):
            index = _skip_angles(head, index)
            continue
        if char == "=" and not re.search(r"operator\s*[=!<>+\-*/%&|^]*$", head[:index]):
            return None
        if char == "[" and head[index : index + 2] == "[[":
            index = max(head.find("]]", index) + 2, index + 2)
            continue
        if char == "(":
            before = head[:index].rstrip()
            name = re.search(
                r"((?:[A-Za-z_][\w]*(?:<[^()]*>)?::)*(?:~?[A-Za-z_]\w*|operator\s*(?:\(\s*\)|[^\s\w(]+|[\w:<>*& ]+)))$",
                before,
            )
            close = _matching(head, index)
            if close < 0:
                return None
            found = name.group(1) if name else ""
            if re.search(r"\boperator$", before) and head[index : close + 1].replace(" ", "") == "()":
                index = close + 1
                continue
            if found in ("alignas", "__attribute__", "decltype", "explicit", "noexcept", "requires"):
                index = close + 1
                continue
            if not found or found in _CONTROL:
                return None
            return found, head[index + 1 : close], head[close + 1 :]
        index += 1
    return None


class _Scanner:
    def __init__(self, text):
        self.code = _DIRECTIVE.sub(_blank, blank_comments_and_strings(text))
        self.outline = Outline()
        self.scopes = []  # (kind, payload)
        self.head_start = 0
        self.position = 0

    def line_at(self, position):
        return self.code.count("\n", 0, position) + 1

    def first_line_of_head(self):
        head = self.code[self.head_start : self.position]
        return self.line_at(self.head_start + len(head) - len(head.lstrip()))

    def kind(self):
        return self.scopes[-1][0] if self.scopes else "namespace"

    def scan(self):
        parens = 0
        while self.position < len(self.code):
            char = self.code[self.position]
            if self.kind() in ("namespace", "type"):
                parens += (char == "(") - (char == ")")
                if parens <= 0:
                    self.step_outside(char)
            elif char == "{":
                self.scopes.append(("block", None))
            elif char == "}":
                self.close()
            self.position += 1
        self.outline.is_balanced = self.outline.is_balanced and not self.scopes
        return self.outline

    def step_outside(self, char):
        if char == "{":
            self.open()
        elif char == "}":
            self.close()
        elif char == ";":
            self.end_statement()
            self.head_start = self.position + 1
        elif char == ":" and self.kind() == "type":
            head = self.code[self.head_start : self.position].strip()
            if head in ("public", "private", "protected"):
                self.head_start = self.position + 1

    def open(self):
        raw = self.code[self.head_start : self.position]
        head = _without_template_heads(raw.strip()).strip()
        if re.match(r"^(?:inline\s+)?namespace\b", head) or re.fullmatch(r'extern\s*"[^"]*"', head):
            self.scopes.append(("namespace", None))
            self.head_start = self.position + 1
            return
        if _TYPE_HEAD.match(head) and not (_split_function_head(head) and head.rstrip().endswith((")", "const"))):
            name = (
                re.sub(r"\b(?:class|struct|union|enum|final|alignas\s*\([^)]*\)|\[\[.*?\]\])", " ", head)
                .split(":")[0]
                .split()
            )
            scope = "block" if head.startswith("enum") else "type"
            self.scopes.append((scope, Type(name[-1] if name else "", self.first_line_of_head(), 0)))
            self.head_start = self.position + 1
            return
        split = _split_function_head(head)
        if split is None or self.is_member_initializer(split[2]):
            # An initializer in braces: the statement goes on after it.
            end = _matching(self.code, self.position, "{", "}")
            if end < 0:
                self.outline.is_balanced = False
                end = len(self.code) - 1
            self.position = end
            return
        self.scopes.append(("function", self.make_function(split, head)))
        self.head_start = self.position + 1

    @staticmethod
    def is_member_initializer(rest):
        """True for the brace of `: member_{...}` in a constructor's initializer list."""
        starts_list = re.match(r"^\s*(?:noexcept(?:\s*\([^)]*\))?\s*)?:(?!:)", rest)
        return bool(starts_list) and bool(re.search(r"[\w>]$", rest.rstrip()))

    def make_function(self, split, head):
        name, parameters, _ = split
        is_device = bool(re.search(r"\b__(?:global|device)__\b", head))
        return Function(
            name, self.first_line_of_head(), 0, count_parameters(parameters), True, is_device, str(self.position)
        )

    def close(self):
        if not self.scopes:
            self.outline.is_balanced = False
            return
        kind, payload = self.scopes.pop()
        if kind == "function":
            payload.body = self.code[int(payload.body) : self.position + 1]
            payload.last_line = self.line_at(self.position)
            self.outline.functions.append(payload)
        elif isinstance(payload, Type):
            payload.last_line = self.line_at(self.position)
            if payload.name:
                self.outline.types.append(payload)
        if self.kind() in ("namespace", "type"):
            self.head_start = self.position + 1

    def end_statement(self):
        text = _without_template_heads(self.code[self.head_start : self.position].strip()).strip()
        if not text:
            return
        line = self.first_line_of_head()
        split = None if re.match(r"^(?:using|typedef|static_assert|friend)\b", text) else _split_function_head(text)
        if split is not None and (self.kind() == "type" or re.search(r"[\s*&>]", text[: text.find(split[0])] + "")):
            is_device = bool(re.search(r"\b__(?:global|device)__\b", text))
            last = self.line_at(self.position)
            self.outline.functions.append(Function(split[0], line, last, count_parameters(split[1]), False, is_device))
        else:
            self.outline.statements.append(Statement(" ".join(text.split()), line, self.kind()))


def outline_of(text):
    return _Scanner(text).scan()
