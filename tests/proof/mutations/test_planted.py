"""Tests that the list of planted errors fits the sources. ``python -m tests.proof.mutations``
plants them."""

import re

import pytest

from tests.testing.paths import ROOT

from .planted import Mutation, mutations


def test_the_list_is_whole() -> None:
    found = mutations()
    assert len(found) == 39
    assert len({mutation.about for mutation in found}) == 39
    assert len({mutation.old for mutation in found}) == 39


@pytest.mark.parametrize("mutation", mutations(), ids=lambda mutation: mutation.about)
def test_the_line_is_there_once_and_so_is_the_test(mutation: Mutation) -> None:
    assert "\n" not in mutation.old + mutation.new
    assert mutation.old != mutation.new
    assert mutation.fits((ROOT / mutation.file).read_text(encoding="utf-8"))

    function = mutation.test.name.split("::")[-1]
    source = (ROOT / mutation.test.source).read_text(encoding="utf-8")
    assert len(re.findall(rf"#\[test\]\s+fn {function}\(", source)) == 1
