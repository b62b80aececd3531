"""Splits a source file of vLLM into its relevant parts.

Each part has a short text. Equal texts mean equal parts:

- ``def name`` or ``def Class.method``: the fingerprint of a function
- ``class Name``: the fingerprint of a class's bases, decorators and fields
- ``attribute Class.name``: the fingerprint of the statements that set it
- ``name NAME``: the fingerprint of the statements that bind a constant
- ``import name``: the place that it is imported from, ``module`` or ``module:name``
- ``module level``: the fingerprint of the statements that change other names
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from kvoxide.vllm.environment.syntax import fingerprint, runs, used_names
from kvoxide.vllm.environment.tracked_code import IGNORED_NAMES, TrackedNames

Parts: TypeAlias = dict[str, str]

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_Import: TypeAlias = ast.Import | ast.ImportFrom

MODULE_LEVEL = "module level"


def parts_of(source: bytes, tracked: TrackedNames) -> Parts:
    """Returns the relevant parts of a file. Raises :class:`SyntaxError` or :class:`ValueError` for
    what is no Python source."""
    return _File(ast.parse(source), tracked).parts()


class _File:
    def __init__(self, tree: ast.Module, tracked: TrackedNames) -> None:
        self._tracked = tracked
        self._bound: dict[str, list[ast.stmt]] = defaultdict(list)
        self._imported: dict[str, str] = {}
        self._unbound: list[ast.stmt] = []
        for statement in filter(runs, tree.body):
            self._bind(statement)

    def _bind(self, statement: ast.stmt) -> None:
        if isinstance(statement, _Import):
            self._imported |= _origins(statement)
            if "*" not in self._imported:
                return
        elif isinstance(statement, _Function | ast.ClassDef):
            self._bound[statement.name].append(statement)
            return
        for name in set(_stored_names(statement)):
            self._bound[name].append(statement)
        if not _only_binds_names(statement):
            self._unbound.append(statement)

    def parts(self) -> Parts:
        parts: Parts = {}
        if self._unbound:
            parts[MODULE_LEVEL] = fingerprint(self._unbound)
        waiting = list(self._tracked.names)
        seen = set(IGNORED_NAMES)
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            for key, part, used in self._parts_of_name(name):
                parts[key] = part
                waiting += used
        return parts

    def _parts_of_name(self, name: str) -> Iterator[tuple[str, str, list[str]]]:
        """Yields the parts that define a name of the module, with the names that they use."""
        if name in self._imported:
            yield f"import {name}", self._imported[name], []
        statements = self._bound.get(name, [])
        if not statements:
            return
        if all(isinstance(statement, _Function) for statement in statements):
            yield _part(f"def {name}", statements)
        elif len(statements) == 1 and isinstance(statements[0], ast.ClassDef):
            yield from self._parts_of_class(statements[0])
        else:
            yield _part(f"name {name}", statements)

    def _parts_of_class(self, cls: ast.ClassDef) -> Iterator[tuple[str, str, list[str]]]:
        methods: dict[str, list[ast.AST]] = defaultdict(list)
        fields: list[ast.AST] = []
        for statement in filter(runs, cls.body):
            if isinstance(statement, _Function):
                methods[statement.name].append(statement)
            else:
                fields.append(statement)
        header = [*cls.decorator_list, *cls.bases, *cls.keywords]
        attributes = self._tracked.attributes.get(cls.name)
        yield _part(f"class {cls.name}", header + ([] if attributes else fields))
        wanted = self._tracked.methods
        for name, definitions in methods.items():
            if wanted is None or name in wanted:
                yield _part(f"def {cls.name}.{name}", definitions)
        if attributes:
            setting = _setting_statements(fields, methods.get("__init__", []))
            for name in attributes:
                if name in setting:
                    yield _part(f"attribute {cls.name}.{name}", setting[name])


def _part(key: str, nodes: list[ast.AST] | list[ast.stmt]) -> tuple[str, str, list[str]]:
    return key, fingerprint(nodes), [name for node in nodes for name in used_names(node)]


def _setting_statements(
    fields: list[ast.AST], constructors: list[ast.AST]
) -> Mapping[str, list[ast.AST]]:
    """Returns, for each attribute, the fields of a class and the statements of its constructor that
    set it."""
    setting: dict[str, list[ast.AST]] = defaultdict(list)
    for statement in fields:
        for name in _stored_names(statement):
            setting[name].append(statement)
    for constructor in constructors:
        for statement in getattr(constructor, "body", []):
            for name in set(_set_on_self(statement)):
                setting[name].append(statement)
    return setting


def _set_on_self(statement: ast.AST) -> Iterator[str]:
    for node in ast.walk(statement):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


def _only_binds_names(statement: ast.stmt) -> bool:
    """Returns whether a statement gives values to names of its module, and does nothing else."""
    if isinstance(statement, ast.Assign):
        return all(isinstance(target, ast.Name) for target in statement.targets)
    return isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)


def _stored_names(statement: ast.AST) -> Iterator[str]:
    """Yields the names that a statement and the statements inside it bind."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, _Function | ast.ClassDef):
            yield node.name
        elif isinstance(node, _Import):
            yield from _origins(node)


def _origins(statement: _Import) -> dict[str, str]:
    """Returns what each name of an import comes from."""
    if isinstance(statement, ast.ImportFrom):
        module = "." * statement.level + (statement.module or "")
        return {alias.asname or alias.name: f"{module}:{alias.name}" for alias in statement.names}
    return {
        alias.asname or alias.name.partition(".")[0]: (
            alias.name if alias.asname else alias.name.partition(".")[0]
        )
        for alias in statement.names
    }
