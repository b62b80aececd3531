"""Computes fingerprints of Python code. Comments, docstrings, annotations and layout do not matter.

A fingerprint is computed from the syntax tree, in a form that CPython 3.11, 3.12 and 3.13 share.
"""

import ast
import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final

# Without what differs between versions of Python, or between equal code.
_LEFT_OUT: Final = {"ctx", "kind", "returns", "type_comment", "type_ignores", "type_params"}
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_DIGITS: Final = 16


def fingerprint(nodes: Iterable[ast.AST]) -> str:
    """Returns a short hash of pieces of code, in their order."""
    digest = hashlib.sha256()
    for node in nodes:
        _write(node, lambda text: digest.update(text.encode()), in_function=False)
    return digest.hexdigest()[:_DIGITS]


def runs(statement: ast.stmt) -> bool:
    """Returns whether a statement does anything: strings that stand alone, code for type checkers
    and overloads do not."""
    if isinstance(statement, ast.Expr):
        value = statement.value
        return not (isinstance(value, ast.Constant) and isinstance(value.value, str))
    if isinstance(statement, ast.If):
        return bool(statement.orelse) or _last_name(statement.test) != "TYPE_CHECKING"
    if isinstance(statement, _FUNCTIONS):
        return all(_last_name(name) != "overload" for name in statement.decorator_list)
    return True


def used_names(node: ast.AST, in_function: bool = False) -> Iterator[str]:
    """Yields the names that a piece of code reads when it runs, those in annotations left out."""
    if isinstance(node, ast.Name):
        yield node.id
        return
    in_function = in_function or isinstance(node, _FUNCTIONS)
    for _, value in _fields(node, in_function):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from used_names(child, in_function)


def _write(value: object, write: Callable[[str], None], in_function: bool) -> None:
    if isinstance(value, ast.AST):
        in_function = in_function or isinstance(value, _FUNCTIONS)
        write(type(value).__name__ + "(")
        for name, field in _fields(value, in_function):
            write(name + "=")
            _write(field, write, in_function)
        write(")")
    elif isinstance(value, list):
        write("[")
        for item in value:
            _write(item, write, in_function)
        write("]")
    else:
        write(f"{type(value).__name__}:{value!a},")


def _fields(node: ast.AST, in_function: bool) -> Iterator[tuple[str, object]]:
    """Yields the fields of a node that have a meaning. Annotations have one only in the body of a
    class, whose decorators and bases may read them."""
    for name, value in ast.iter_fields(node):
        if name in _LEFT_OUT or value is None or value == []:
            continue
        if name == "annotation" and (in_function or isinstance(node, ast.arg)):
            continue
        if isinstance(value, list) and isinstance(value[0], ast.stmt):
            value = [statement for statement in value if runs(statement)]
        if isinstance(node, ast.JoinedStr):
            # CPython 3.12 ends some with an empty text.
            value = [part for part in value if getattr(part, "value", None) != ""]
        yield name, value


def _last_name(node: ast.AST) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)
