"""Tests that a vLLM's code is recognised from its source files. The files are changed copies of
known releases. Nothing of vLLM is imported."""

import ast
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from kvoxide.vllm.environment import UnreadableSourcesError, fingerprints
from kvoxide.vllm.environment.recognition import InstalledCode, Recognition
from kvoxide.vllm.environment.sources import package_folder
from kvoxide.vllm.environment.syntax import fingerprint
from kvoxide.vllm.environment.tracked_code import MANAGER_CODE

from tests.testing.vllm_environments import package_of
from tests.testing.vllm_releases import EVERY_RELEASE, INSTALLED, NEWEST

CORE = "v1/core"
POOL, UTILS = f"{CORE}/block_pool.py", f"{CORE}/kv_cache_utils.py"
GROUPS, MANAGER = f"{CORE}/single_type_kv_cache_manager.py", f"{CORE}/kv_cache_manager.py"
release = pytest.mark.parametrize("release", EVERY_RELEASE)


class Copy:
    """A copy of the relevant files of a release, which may be changed."""

    def __init__(self, release: str, folder: Path) -> None:
        self.folder = folder
        package = package_of(release)
        for path in MANAGER_CODE:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(package / path, folder / path)

    def recognise(self) -> Recognition:
        return InstalledCode({path: str(self.folder / path) for path in MANAGER_CODE}).recognition

    def edit(self, path: str, change: Callable[[str], str]) -> None:
        file = self.folder / path
        before = file.read_text(encoding="utf-8")
        after = change(before)
        assert after != before
        file.write_text(after, encoding="utf-8")

    def replace(self, path: str, old: str, new: str) -> None:
        self.edit(path, lambda text: text.replace(old, new, 1))

    def change_body(self, path: str, name: str) -> None:
        """Let a function do something else first."""
        *owners, function = name.split(".")

        def change(text: str) -> str:
            body: ast.AST = ast.parse(text)
            for each in (*owners, function):
                body = [n for n in ast.iter_child_nodes(body) if getattr(n, "name", "") == each][-1]
            assert isinstance(body, ast.FunctionDef)
            first = body.body[0]
            lines = text.splitlines(keepends=True)
            lines.insert(first.lineno - 1, " " * first.col_offset + "changed = True\n")
            return "".join(lines)

        self.edit(path, change)


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(NEWEST, tmp_path)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recognition]:
    """Return what is recognised in the unchanged files of each release."""
    return {name: Copy(name, tmp_path_factory.mktemp(name)).recognise() for name in EVERY_RELEASE}


@release
def test_the_code_of_a_release_is_known(release: str, unchanged: dict[str, Recognition]) -> None:
    found = unchanged[release]
    assert (found.release.version, found.is_known, found.differences) == (release, True, ())


@release
def test_other_comments_docstrings_and_layout_are_the_same_code(
    release: str, unchanged: dict[str, Recognition], tmp_path: Path
) -> None:
    copy = Copy(release, tmp_path)
    for path in MANAGER_CODE:
        copy.edit(path, lambda text: "# a vendor's\n" + _without_docstrings(text))
    assert copy.recognise() == unchanged[release]


def _without_docstrings(text: str) -> str:
    """Return the code as Python prints it. That drops comments and changes the layout."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            node.body[0] = ast.parse("'''Another.'''").body[0]
    return ast.unparse(tree)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (MANAGER, "KVCacheManager.get_computed_blocks"),
        (POOL, "BlockPool.free_blocks"),
        (UTILS, "FreeKVCacheBlockQueue.append_n"),
        (GROUPS, "SlidingWindowManager.get_num_skipped_tokens"),
        (UTILS, "hash_block_tokens"),
    ],
)
def test_a_changed_body_is_named(path: str, name: str, copy: Copy) -> None:
    copy.change_body(path, name)
    found = copy.recognise()
    assert found.release.version == NEWEST
    assert not found.is_known
    assert found.differences == (f"{path}: {name} has changed",)


@release
def test_random_changed_bodies_are_named(release: str, tmp_path: Path) -> None:
    rng = random.Random(36)
    known = fingerprints.load(release)
    functions = [
        (path, key.removeprefix("def "))
        for path in MANAGER_CODE
        for key in known[path].parts
        if key.startswith("def ")
    ]
    copy = Copy(release, tmp_path)
    expected = set()
    for path, name in rng.sample(functions, 10):
        copy.change_body(path, name)
        expected.add(f"{path}: {name} has changed")
    found = copy.recognise()
    assert set(found.differences) == expected
    assert (found.release.version, found.is_known) == (release, False)


@pytest.mark.parametrize(
    ("path", "old", "new", "difference"),
    [
        (
            POOL,
            "    def touch(",
            "    def __len__(self):\n        return 3\n\n    def touch(",
            "BlockPool.__len__ is new",
        ),
        (POOL, "    def get_usage(", "    def usage(", "BlockPool.get_usage is missing"),
        (POOL, "class BlockPool:", "class BlockPool(dict):", "BlockPool has changed"),
        (UTILS, "    ref_cnt: int = 0", "    ref_cnt: int = 1", "KVCacheBlock has changed"),
        (UTILS, '"vllm-none-hash"', '"other"', "DEFAULT_NONE_HASH_SEED has changed"),
        (
            MANAGER,
            "from vllm.utils.math_utils import cdiv",
            "from vendor.math import cdiv",
            "cdiv comes from vendor.math:cdiv, not from vllm.utils.math_utils:cdiv",
        ),
        (
            GROUPS,
            "import itertools\n",
            "import itertools\nfrom vendor.math import min\n",
            "min comes from vendor.math:min, not from builtins:min",
        ),
        (
            POOL,
            "class BlockPool:",
            "BlockHashToBlockMap.pop = None\n\n\nclass BlockPool:",
            "code outside of functions is new",
        ),
        (
            "v1/request.py",
            "self.num_computed_tokens = 0",
            "self.num_computed_tokens = 1",
            "Request.num_computed_tokens has changed",
        ),
        (
            "v1/kv_cache_interface.py",
            "class CrossAttentionSpec(AttentionSpec):\n",
            "class CrossAttentionSpec(AttentionSpec):\n    prefix_cacheable = False\n",
            "CrossAttentionSpec has changed",
        ),
    ],
)
def test_other_changes_are_named(
    path: str, old: str, new: str, difference: str, copy: Copy
) -> None:
    copy.replace(path, old, new)
    found = copy.recognise()
    assert f"{path}: {difference}" in found.differences
    assert len(found.differences) <= 2


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        (POOL, "class BlockPool:", "def nobody_calls_this():\n    pass\n\n\nclass BlockPool:"),
        (POOL, "class BlockPool:", "if TYPE_CHECKING:\n    import vendor\n\n\nclass BlockPool:"),
        (POOL, "import", "import vendor\nimport"),
        (
            UTILS,
            "def hash_block_tokens(",
            "def get_kv_cache_configs_(): ...\ndef hash_block_tokens(",
        ),
        ("v1/request.py", "self.client_index = client_index", "self.client_index = 5"),
        ("v1/kv_cache_interface.py", "def max_memory_usage_bytes(", "def max_bytes("),
        (MANAGER, "-> int:", '-> "int":'),
    ],
)
def test_what_decides_nothing_may_change(
    path: str, old: str, new: str, copy: Copy, unchanged: dict[str, Recognition]
) -> None:
    copy.replace(path, old, new)
    assert copy.recognise() == unchanged[NEWEST]


def test_the_nearest_release_has_the_fewest_differences(tmp_path: Path) -> None:
    copy = Copy(INSTALLED, tmp_path)
    copy.change_body(POOL, "BlockPool.touch")
    found = copy.recognise()
    assert (found.release.version, found.is_known) == (INSTALLED, False)
    assert found.differences == (f"{POOL}: BlockPool.touch has changed",)


def test_the_digest_is_that_of_the_code(unchanged: dict[str, Recognition], tmp_path: Path) -> None:
    digests = {found.sources_digest for found in unchanged.values()}
    for release in EVERY_RELEASE:
        copy = Copy(release, tmp_path / release)
        copy.change_body(POOL, "BlockPool.touch")
        digests.add(copy.recognise().sources_digest)
    assert len(digests) == 2 * len(EVERY_RELEASE)


def test_a_missing_file_is_named(copy: Copy) -> None:
    (copy.folder / POOL).unlink()
    assert copy.recognise().differences == (f"{POOL} is missing",)


def test_sources_that_cannot_be_read_are_refused(copy: Copy, tmp_path: Path) -> None:
    file = copy.folder / POOL
    source = file.read_bytes()
    file.write_bytes(b"def (")
    with pytest.raises(
        UnreadableSourcesError, match=r"cannot parse .*block_pool\.py: invalid syntax"
    ):
        copy.recognise()
    file.unlink()
    for compiled in ("block_pool.cpython-311-x86_64-linux-gnu.so", "block_pool.pyc"):
        file.with_name(compiled).touch()
        with pytest.raises(UnreadableSourcesError, match=r"block_pool.* it is compiled; install"):
            copy.recognise()
        file.with_name(compiled).unlink()
    file.mkdir()
    with pytest.raises(UnreadableSourcesError, match=r"block_pool\.py cannot be read: Is a dir"):
        copy.recognise()
    file.rmdir()
    file.write_bytes(source)
    assert copy.recognise().is_known
    copy.folder = tmp_path / "archive.zip" / "vllm"
    copy.folder.parent.touch()
    with pytest.raises(UnreadableSourcesError, match=r"archive\.zip.* it is in an archive"):
        copy.recognise()


def test_without_vllm_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnreadableSourcesError, match="vLLM is not installed here"):
        package_folder()


def test_every_relevant_name_is_in_a_release() -> None:
    known = [fingerprints.load(version) for version in EVERY_RELEASE]
    for path, relevant in MANAGER_CODE.items():
        keys = {key.partition(" ")[2] for code in known for key in code[path].parts}
        assert set(relevant.names or ()) <= keys, path
        for cls, attributes in relevant.attributes.items():
            assert {f"{cls}.{attribute}" for attribute in attributes} <= keys, path


@release
def test_what_the_core_reads_of_specs_is_relevant(release: str) -> None:
    """Every method of the specs whose name vLLM's core uses must be among the relevant ones."""
    package = package_of(release)
    interface = "v1/kv_cache_interface.py"
    methods = {
        node.name
        for cls in ast.parse((package / interface).read_bytes()).body
        if isinstance(cls, ast.ClassDef)
        for node in cls.body
        if isinstance(node, ast.FunctionDef)
    }
    used = {
        node.attr
        for path in MANAGER_CODE
        if path.startswith(CORE) and path != UTILS
        for node in ast.walk(ast.parse((package / path).read_bytes()))
        if isinstance(node, ast.Attribute)
    }
    assert methods & used <= set(MANAGER_CODE[interface].methods or ())


def test_fingerprints_do_not_depend_on_the_version_of_python() -> None:
    source = '''
@decorated(1, *a, **b)
async def f(x: int, /, y: "str" = 1.5, *, z=(1,)) -> None:
    """Docs."""
    count: int = 3
    text = f"a{x!r:>{width}}b" rf"\\d{y=}" if x else b"\\x00"
    match x:
        case {"k": [1, *rest], **others} | C(a=-1):
            return lambda *p: (yield p)
    try:
        async with a as b, c: pass
    except* (A, B) as error:
        raise error from None
    return [i async for i in x if (j := i) is not None], x[1:, ::2], "é\\u2028", 1j, not x
'''
    assert fingerprint(ast.parse(source).body) == "6106d764d728b7a1"
