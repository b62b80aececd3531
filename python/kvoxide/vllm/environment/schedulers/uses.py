"""Finds the unsupported uses of a manager in the source of a scheduler class.

The names of vLLM's attributes show the role of an expression. The role is followed through local
variables and attributes of ``self``.
"""

import ast
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias

from kvoxide.vllm.environment.schedulers.roles import (
    BY_NAME,
    CHILDREN,
    ELEMENTS,
    OTHER_TYPES,
    OWN_TYPES,
    SHOWN,
    UNSERVED,
    WRITABLE,
    Role,
)
from kvoxide.vllm.environment.schedulers.vllm_names import is_vllms
from kvoxide.vllm.environment.syntax import used_names

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

_SAME_ELEMENTS = ("iter", "list", "reversed", "set", "sorted", "tuple")
_ROWS = ("get", "pop", "setdefault")
_SETTERS = {"setattr": "sets", "delattr": "deletes", "__setattr__": "sets"}


def unserved_uses(
    source: str, class_name: str, binders: Mapping[str, Role] = MappingProxyType({})
) -> list[str] | None:
    """Returns a phrase for each use in a class, by its qualified name, and in the functions of its
    module that it calls; None if the source has no such class. ``binders`` are methods whose first
    argument is known. Raises :class:`SyntaxError` or :class:`ValueError` for what is no Python
    source."""
    tree = ast.parse(source)
    body: ast.AST = tree
    for name in class_name.replace("<locals>.", "").split("."):
        inner = [node for node in _defined(body) if getattr(node, "name", None) == name]
        if not inner:
            return None
        body = inner[-1]
    aliases: dict[str, Role] = {}
    for _ in range(2):  # an attribute may stand for one that is set further down
        for function in _functions(body):
            aliases |= _Uses(function, aliases, binders.get(function.name)).attributes_of_self
    found: list[str] = []
    for function in _functions(body):
        uses = _Uses(function, aliases, binders.get(function.name))
        found += uses.found(f"{function.name}()")
    for function in _called_functions(tree, body):
        found += _Uses(function, {}).found(f"{function.name}() of its module")
    return found


def _called_functions(module: ast.Module, body: ast.AST) -> list[_Function]:
    """Returns the functions of a module that code in it names, and those that they name."""
    by_name = {function.name: function for function in _functions(module)}
    called: dict[str, _Function] = {}
    waiting = list(used_names(body))
    while waiting:
        name = waiting.pop()
        if name in by_name and name not in called:
            called[name] = by_name[name]
            waiting += used_names(by_name[name])
    return list(called.values())


def _functions(body: ast.AST) -> list[_Function]:
    return [node for node in _defined(body) if isinstance(node, _Function)]


def _defined(body: ast.AST) -> Iterator[ast.AST]:
    """Yields the classes and functions that are defined in a body, under conditions too."""
    for node in ast.iter_child_nodes(body):
        if isinstance(node, ast.ClassDef | _Function):
            yield node
        elif isinstance(node, ast.stmt | ast.excepthandler):
            yield from _defined(node)


class _Uses:
    """The uses in one function."""

    def __init__(
        self, function: _Function, aliases: dict[str, Role], argument: Role | None = None
    ) -> None:
        self._function = function
        self._aliases = aliases
        self._locals: dict[str, Role] = {}
        if argument is not None and len(function.args.args) > 1:
            self._locals[function.args.args[1].arg] = argument
        self.attributes_of_self: dict[str, Role] = {}
        for _ in range(2):  # in a loop, a variable may stand for one that is bound further down
            for node in ast.walk(function):
                self._note_bindings(node)

    def found(self, where: str) -> Iterator[str]:
        for node in sorted(ast.walk(self._function), key=lambda node: getattr(node, "lineno", 0)):
            for what in self._uses(node):
                yield f"{what} in {where}, line {getattr(node, 'lineno', '?')}"

    def _note_bindings(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, self._role(node.value))
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            self._bind(node.target, self._role(node.value))
        elif isinstance(node, ast.For | ast.comprehension):
            self._bind_elements(node.target, node.iter)

    def _bind(self, target: ast.expr, role: Role | None) -> None:
        if role is None:
            return
        match target:
            case ast.Name(id=name):
                self._locals[name] = role
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                self.attributes_of_self[name] = role

    def _bind_elements(self, target: ast.expr, walked: ast.expr) -> None:
        match target, walked:
            case ast.Tuple(elts=[_, second]), ast.Call(
                func=ast.Name(id="enumerate"), args=[of, *_]
            ):
                self._bind_elements(second, of)
            case ast.Tuple(elts=targets), ast.Call(func=ast.Name(id="zip"), args=sequences):
                for each, sequence in zip(targets, sequences, strict=False):
                    self._bind_elements(each, sequence)
            case ast.Tuple(elts=[_, second]), ast.Call(func=ast.Attribute(value=of, attr="items")):
                self._bind(second, "row" if self._role(of) == "tables" else None)
            case _, ast.Call(func=ast.Attribute(value=of, attr="values")):
                self._bind(target, "row" if self._role(of) == "tables" else None)
            case _:
                role = self._role(walked)
                self._bind(target, None if role is None else ELEMENTS.get(role))

    def _role(self, node: ast.expr) -> Role | None:
        match node:
            case ast.Name(id=name):
                return self._locals.get(name)
            case ast.NamedExpr(value=value):
                return self._role(value)
            case ast.IfExp(body=body, orelse=orelse):
                return self._role(body) or self._role(orelse)
            case ast.Attribute(value=of, attr=name):
                return self._role_of_attribute(of, name)
            case ast.Call(
                func=ast.Name(id="getattr"), args=[of, ast.Constant(value=str(name)), *_]
            ):
                return self._role_of_attribute(of, name)
            case ast.Call(func=ast.Name(id=name), args=[of, *_]) if name in _SAME_ELEMENTS:
                return self._role(of)
            case ast.Call(func=ast.Attribute(value=of, attr=name)) if name in _ROWS:
                return "row" if self._role(of) == "tables" else None
            case ast.Subscript(value=of, slice=index):
                role = self._role(of)
                if role == "tables":
                    return "row"
                is_part = isinstance(index, ast.Slice)
                return None if role is None or is_part else ELEMENTS.get(role)
        return None

    def _role_of_attribute(self, of: ast.expr, name: str) -> Role | None:
        role = self._role(of)
        if role is not None and name in CHILDREN.get(role, {}):
            return CHILDREN[role][name]
        if isinstance(of, ast.Name) and of.id == "self" and name in self._aliases:
            return self._aliases[name]
        return BY_NAME.get(name)

    def _uses(self, node: ast.AST) -> Iterator[str]:
        match node:
            case ast.Attribute(value=of, attr=name, ctx=context):
                yield from self._uses_of_attribute(of, name, context)
            case ast.Subscript(value=of, ctx=ast.Store() | ast.Del()) if self._role(of) == "blocks":
                yield f"changes {SHOWN['blocks']}"
            case ast.Call(
                func=ast.Name(id=setter) | ast.Attribute(attr=setter), args=[of, name, *_]
            ) if setter in _SETTERS:
                yield from self._uses_of_setter(_SETTERS[setter], of, name)
            case ast.Call(func=ast.Name(id="isinstance"), args=[of, types]):
                role = self._role(of)
                if role is not None:
                    for name in sorted(OTHER_TYPES.get(role, frozenset()) & set(used_names(types))):
                        yield f"asks whether {SHOWN[role]} is a {name}"
            case ast.Compare(
                left=ast.Call(func=ast.Name(id="type"), args=[of]),
                ops=[ast.Is() | ast.IsNot() | ast.Eq() | ast.NotEq() | ast.In() | ast.NotIn()],
            ) if (role := self._role(of)) in OWN_TYPES:
                yield f"compares the type of {SHOWN[role]}"

    def _uses_of_attribute(
        self, of: ast.expr, name: str, context: ast.expr_context
    ) -> Iterator[str]:
        role = self._role(of)
        if role is None:
            return
        if isinstance(context, ast.Load):
            if name in UNSERVED.get(role, ()):
                yield f"uses {SHOWN[role]}.{name}"
        else:
            yield from _changes("sets" if isinstance(context, ast.Store) else "deletes", role, name)

    def _uses_of_setter(self, verb: str, of: ast.expr, name: ast.expr) -> Iterator[str]:
        role = self._role(of)
        if role is None:
            return
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            yield from _changes(verb, role, name.value)
        else:
            yield f"{verb} attributes of {SHOWN[role]} by computed names"


def _changes(verb: str, role: Role, name: str) -> Iterator[str]:
    if name not in WRITABLE.get(role, ()) and is_vllms(name):
        yield f"{verb} {SHOWN[role]}.{name}"
