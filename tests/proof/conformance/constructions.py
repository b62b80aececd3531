"""Finds on which manager vLLM's own tests run. It is a pytest plugin that notes the managers, and a
command that counts them.

    PYTHONPATH=.../tests/proof/conformance python -m pytest -p constructions --junitxml OUT.xml ...
    python tests/proof/conformance/constructions.py OUT.xml

Each test case of the JUnit file gets properties ``kvoxide``: ``native``, ``shadow`` or
``fallback: REASON``, one for each manager that it constructed.
"""

import argparse
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kvoxide.vllm.plugin import decision
from kvoxide.vllm.plugin import entry_point as plugin
from vllm.plugins import load_general_plugins

PROPERTY = "kvoxide"


def pytest_sessionstart() -> None:
    """Load the plugins. vLLM's processes do this; its tests do not."""
    load_general_plugins()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    note = item.user_properties.append
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugin, "build_manager", _noting_build(note))
        patch.setattr(decision, "fall_back", _noting_fall_back(note))
        return (yield)


def _noting_build(note: Any) -> Any:
    original = decision.build_manager

    def build_manager(stock: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        made = original(stock, args, kwargs)
        module = type(made).__mro__[1].__module__
        if module.startswith("kvoxide."):
            note((PROPERTY, "shadow" if module.endswith(".shadow") else "native"))
        return made

    return build_manager


def _noting_fall_back(note: Any) -> Any:
    original = decision.fall_back

    def fall_back(reasons: Any, *args: Any, **kwargs: Any) -> None:
        note((PROPERTY, f"fallback: {'; '.join(reasons)}"))
        original(reasons, *args, **kwargs)

    return fall_back


def main() -> None:
    parser = argparse.ArgumentParser(description="On which manager vLLM's own tests ran.")
    parser.add_argument("junit", type=Path, help="JUnit file of a run with this plugin")
    parser.add_argument("--by-test", action="store_true", help="a line for each test as well")
    arguments = parser.parse_args()
    managers = managers_by_test(arguments.junit)
    if arguments.by_test:
        for test, made in managers.items():
            print(test, "|", ", ".join(f"{n} {what}" for what, n in sorted(made.items())))
    print(summary(managers))


def managers_by_test(junit: Path) -> dict[str, Counter[str]]:
    """Return for each test id what it constructed, and how often. The count is empty if it
    constructed no manager."""
    found = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        made = (p.get("value", "") for p in case.iter("property") if p.get("name") == PROPERTY)
        found[f"{case.get('classname')}::{case.get('name')}"] = Counter(made)
    return found


def summary(managers: dict[str, Counter[str]]) -> str:
    kinds = Counter(_kind(made) for made in managers.values())
    reasons = Counter(_shortened(what) for made in managers.values() for what in made)
    del reasons["native"]
    lines = [f"{count:5} tests: {kind}" for kind, count in kinds.most_common()]
    return "\n".join([*lines, *(f"{n:5} of them with {what}" for what, n in reasons.most_common())])


def _shortened(what: str) -> str:
    """Return the first reason, without the list of kinds after it."""
    return what.split("; ")[0].split(" is not among ")[0]


def _kind(made: Counter[str]) -> str:
    if not made:
        return "no manager constructed"
    if set(made) == {"native"}:
        return "native"
    return "native and other" if "native" in made else "fallback"


if __name__ == "__main__":
    main()
