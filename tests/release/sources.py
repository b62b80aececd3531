"""The source text of a part of vLLM's code, by the names that fingerprints have."""

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import TypeAlias

from kvoxide.vllm.environment.definitions import MODULE_LEVEL

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def source_of(text: str, key: str) -> str:
    """Return the lines of a part such as ``def Class.method`` or ``name CONSTANT``, empty if the
    file has none."""
    if key == MODULE_LEVEL:
        return ""
    lines = text.splitlines(keepends=True)
    spans = (_span(node) for node in _nodes(_parsed(text), key))
    return "".join("".join(lines[first - 1 : last]) for first, last in spans)


# Callers ask about one part of a file after the other, in one file or in two at a time.
@lru_cache(maxsize=2)
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _span(node: ast.stmt) -> tuple[int, int]:
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    return first, node.end_lineno or node.lineno


def _nodes(tree: ast.Module, key: str) -> Iterator[ast.stmt]:
    kind, _, name = key.partition(" ")
    owner, _, member = name.rpartition(".")
    match kind:
        case "def":
            body = tree.body if not owner else _class_body(tree, owner)
            yield from (n for n in body if isinstance(n, _Function) and n.name == member)
        case "class":
            yield from _without_methods(tree, name)
        case "attribute":
            yield from (n for n in _statements(tree, owner) if member in _set_names(n))
        case "name" | "import":
            yield from (n for n in tree.body if name in _set_names(n))


def _class_body(tree: ast.Module, name: str) -> list[ast.stmt]:
    return next((n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name), [])


def _without_methods(tree: ast.Module, name: str) -> Iterator[ast.stmt]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            # A statement of the first line alone, for the bases.
            yield ast.Pass(lineno=node.lineno, end_lineno=max(node.lineno, node.body[0].lineno - 1))
            yield from (n for n in node.body if not isinstance(n, _Function))


def _statements(tree: ast.Module, owner: str) -> Iterator[ast.stmt]:
    for node in _class_body(tree, owner):
        if not isinstance(node, _Function):
            yield node
        elif node.name == "__init__":
            yield from node.body


def _set_names(statement: ast.stmt) -> set[str]:
    names = set()
    for node in ast.walk(statement):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
            case ast.alias(name=name, asname=other):
                names.add(other or name)
    return names
