"""Counts the text that docs/STYLE.md asks us to avoid: ``python -m tests.testing.style [FOLDER]``.

Text is what people read: pages, docstrings and comments. Code inside of them is left out.
:func:`messages` yields the texts of a program instead: log messages, errors, help and output.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.testing.paths import ROOT

PATTERNS: Final = {
    "noun clauses": re.compile(r"\A(What|Where|Who|Whose|Which)\b[^?]*\Z", re.DOTALL),
    "words of rule 5": re.compile(r"\b(behind|beside|told|stands|nobody|goes\s+on)\b", re.I),
    "those of": re.compile(r"\b(those\s+of|that\s+of|of\s+which)\b", re.I),
}
MAX_WORDS: Final = 20
"""The most words in a sentence of a message."""
_OUTSIDE: Final = ("docs/lab/", "docs/STYLE.md", "tests/testing/style.py")
_DOCUMENTED: Final = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_CODE: Final = re.compile(r"^```.*?^```|``[^`]*``|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_RUST_TOKEN: Final = re.compile(
    r"""//[^\n]*|/\*.*?\*/|b?r(?P<hashes>\#*)".*?"(?P=hashes)|'(?:[^'\\\n]|\\[^'\n]+|\\')'"""
    r"""|(?P<reason>reason\s*=\s*)?b?"(?P<text>(?:[^"\\]|\\.)*)\"""",
    re.DOTALL,
)


def counts(folder: str = "") -> dict[str, Counter[str]]:
    """Return what was found in each top folder: pattern -> number of times."""
    found: dict[str, Counter[str]] = {}
    for path in _files(folder):
        for kind, text in texts(path):
            for name in matches(kind, text):
                found.setdefault(path.relative_to(ROOT).parts[0], Counter())[name] += 1
    return found


def matches(kind: str, text: str) -> Iterator[str]:
    """Yield the name of a pattern for each time that it matches. Only a docstring can be a noun
    clause."""
    for name, pattern in PATTERNS.items():
        if name != "noun clauses":
            yield from (name for _ in pattern.finditer(text))
        elif kind == "docstring" and pattern.match(text.split("\n\n")[0]):
            yield name


def texts(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each text of a file, with its kind: "docstring", "comment" or "page"."""
    source = path.read_text(encoding="utf-8")
    readers = {".py": _of_python, ".pyi": _of_python, ".rs": _of_rust}
    for kind, text in readers.get(path.suffix, _of_page)(source):
        yield kind, _CODE.sub("", text)


def messages(*paths: str) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each string with several words in files, or in the files of
    folders. A computed part of a text is one word."""
    for path in [file for each in paths for file in _files(each)]:
        read = {".py": _strings_of_python, ".rs": _strings_of_rust}.get(path.suffix)
        for line, text in read(path.read_text(encoding="utf-8")) if read else ():
            if len(text.split()) > 2:
                yield f"{path.relative_to(ROOT)}:{line}", text


def pages(folder: str) -> list[str]:
    """Return the pages of a folder, by their paths in the repository."""
    paths = (path for path in _files(folder) if path.suffix == ".md")
    return [str(path.relative_to(ROOT)) for path in paths]


def faults(message: str) -> list[str]:
    """Return which rules for messages a text breaks."""
    text = _CODE.sub("x", message).removeprefix("kvoxide: ")
    sentences = re.split(r"(?<=[.!?;:])\s+", text)
    found = [
        name
        for name, pattern in PATTERNS.items()
        # A message may begin with a small letter.
        if any(pattern.search(sentence[:1].upper() + sentence[1:]) for sentence in sentences)
    ]
    # A semicolon joins sentences that are counted as one.
    whole = re.split(r"(?<=[.!?:])\s+|(?:\n\s*)+", text)
    too_long = [sentence for sentence in whole if len(sentence.split()) > MAX_WORDS]
    return found + [f"more than {MAX_WORDS} words in a sentence" for _ in too_long]


def _files(folder: str) -> list[Path]:
    listed = [
        "git",
        "ls-files",
        "--",
        *(f"{folder}*{end}" for end in (".py", ".pyi", ".rs", ".md")),
    ]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in done.stdout.split() if not name.startswith(_OUTSIDE)]


def _of_page(source: str) -> Iterator[tuple[str, str]]:
    yield "page", source


def _of_python(source: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            yield "docstring", text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield "comment", token.string


def _strings_of_python(source: str) -> Iterator[tuple[int, str]]:
    tree = ast.parse(source)
    left_out = {id(inner) for node in ast.walk(tree) for inner in _inside(node)}
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (
                str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values
            )
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.FunctionDef) and _is_command(node):
            yield node.lineno, ast.get_docstring(node) or ""


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the strings inside ``node`` that are no messages of their own: docstrings, patterns,
    lists of names, and the parts of a string."""
    if isinstance(node, ast.JoinedStr):
        yield from (part for part in node.values if isinstance(part, ast.Constant))
        specs = (part.format_spec for part in node.values if isinstance(part, ast.FormattedValue))
        yield from (spec for spec in specs if spec is not None)
    elif isinstance(node, ast.Expr):
        yield node.value
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "re.compile":
        yield from ast.walk(node)
    elif isinstance(node, ast.Attribute) and node.attr == "split":
        yield node.value


def _is_command(function: ast.FunctionDef) -> bool:
    """Return whether ``--help`` shows the docstring of a function."""
    decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
    return any(re.search(r"\b(command|group)\(", decorator) for decorator in decorators)


def _strings_of_rust(source: str) -> Iterator[tuple[int, str]]:
    """Strings in comments, in modules of tests and in the reasons of lints are left out, and so
    are raw strings."""
    code = re.split(r"^#\[cfg\(test\)\]\nmod \w+ \{", source, maxsplit=1, flags=re.MULTILINE)[0]
    for found in _RUST_TOKEN.finditer(code):
        if found["text"] is not None and not found["reason"]:
            text = re.sub(r"\\\n\s*", "", found["text"]).replace("\\n", "\n")
            yield code[: found.start()].count("\n") + 1, re.sub(r"\{[^{}]*\}", "x", text)


def _of_rust(source: str) -> Iterator[tuple[str, str]]:
    """Lines of comments that follow each other are one text."""
    for block in re.finditer(r"(?:^[ \t]*(//[/!]?)(?!/).*\n)+", source, re.MULTILINE):
        text = re.sub(r"^[ \t]*//[/!]? ?", "", block[0], flags=re.MULTILINE)
        yield ("comment" if block[1] == "//" else "docstring"), text


def main() -> None:
    """Print where each pattern matches, then the counts."""
    folder = sys.argv[1] if len(sys.argv) > 1 else ""
    for path in _files(folder):
        for kind, text in texts(path):
            for name in matches(kind, text):
                print(f"{path.relative_to(ROOT)}: {name}: {' '.join(text.split())[:100]}")
    for top, found in counts(folder).items():
        print(top, dict(found))


if __name__ == "__main__":
    main()
