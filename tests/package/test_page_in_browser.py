"""Tests of the page of ``--html`` in a headless Chromium. It must draw every plot without an error
and without the network, in light and dark, on wide and narrow screens. It must run no text as a
script."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Route, expect, sync_playwright

from tests.testing.failing_cluster import fail_after
from tests.testing.traces import kvoxide, line, prompt, succeed, write_trace

BROWSER: Final = "KVOXIDE_BROWSER"
POLICIES: Final = ("--policy", "fifo", "--policy", "adaptive")
RUNS: Final[dict[str, tuple[str, ...]]] = {
    "one size": ("--blocks", "150", *POLICIES),
    "several sizes": ("--blocks", "150,300,4000", "--bound", *POLICIES),
    "a window": ("--preset", "gpt-oss", "--blocks", "300", "--policy", "interval=128", *POLICIES),
    "four instances": ("--blocks", "150", "--arrivals", "trace", "--instances", "4", *POLICIES),
    "times over sizes": ("--blocks", "150,300", "--arrivals", "trace", "--instances", "2"),
    "nothing served": ("--blocks", "8", "--arrivals", "trace"),
}
# A name that would become elements and scripts if it were not escaped.
NAME: Final = "<img src=x onerror=document.body.remove()><script>document.body.remove()<"
MINUTE: Final = 60_000
# Milliseconds between two checks of a page that is about to change.
SOON: Final = 20
WIDE: Final = 1280
NARROW: Final = 375

# Returns for each plot the marks that have an extent, and whether it must have any.
MARKS: Final = """boxes => boxes.map(box => {
    const marks = [...box.querySelectorAll(`.scatterlayer .js-line, .scatterlayer .js-fill,
        .fills path, .scatterlayer .point, .barlayer .point path`)];
    const seen = marks.filter(mark => {
        const {width, height} = mark.getBoundingClientRect();
        return width + height > 0;
    });
    return {
        title: box.getAttribute("aria-label"),
        marks: seen.length,
        ticks: box.querySelectorAll(".xtick text").length,
        wide: box.getBoundingClientRect().width,
    };
})"""
# Returns whether each plot has been drawn again for the present width of its box.
FITTING: Final = """() => [...document.querySelectorAll(".drawing")].every(box =>
    Math.abs(box.querySelector(".main-svg").getBoundingClientRect().width
        - box.getBoundingClientRect().width) < 1)"""
# Returns elements that reach beyond the screen and are not in a box that scrolls by itself.
BEYOND: Final = """() => [...document.body.querySelectorAll("*")].filter(element =>
    element.getBoundingClientRect().right > innerWidth + 0.5
    && !element.closest(".scroll table, svg")
).map(element => element.outerHTML.slice(0, 200))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start the browser that tests/run.sh installs, or else the one that Playwright installed."""
    with sync_playwright() as playwright:
        program = os.environ.get(BROWSER) or playwright.chromium.executable_path
        if not Path(program).exists():
            assert BROWSER not in os.environ, f"{BROWSER}: there is no {program}"
            pytest.skip(f"no browser: tests/run.sh brings one, or {BROWSER} names a Chromium")
        browser = playwright.chromium.launch(executable_path=program, timeout=3 * MINUTE)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write the pages of all :data:`RUNS`, of an experiment, and of a replay with missing runs."""
    folder = tmp_path_factory.mktemp("pages")
    records = [
        {**json.loads(line(prompt(0 if n % 2 else n % 10), 20)), "timestamp": 400 * n}
        for n in range(60)
    ]
    lines = [json.dumps(record).encode() + b"\n" for record in records]
    trace = write_trace(folder / NAME, *lines)
    paths = {name: folder / f"{number}.html" for number, name in enumerate(RUNS)}
    for name, arguments in RUNS.items():
        succeed("replay", trace, *arguments, "--html", paths[name])
    paths["experiment"] = folder / "experiment.html"
    succeed("experiment", "prefixes", "--policy", "fifo", "--html", paths["experiment"])
    paths["missing runs"] = folder / "missing.html"
    with pytest.MonkeyPatch.context() as monkeypatch:
        fail_after(monkeypatch, lambda run: (run.policy.name, run.blocks) != ("adaptive", 150))
        some = (*RUNS["several sizes"], "--arrivals", "trace")
        result = kvoxide("replay", trace, *some, "--html", paths["missing runs"])
        assert result.exit_code == 1
    return paths


@dataclass
class Watched:
    """A page that was opened, its errors, and the addresses that it asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def open(self, path: Path) -> None:
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.route("**/*", self._asked)
        self.page.goto(path.as_uri())
        for group in self.page.locator("details").all():
            group.evaluate("group => { group.open = true; }")
        expect(self.page.locator(".drawing:not(:has(.main-svg))")).to_have_count(0, timeout=MINUTE)

    def _heard(self, message: ConsoleMessage) -> None:
        self.complaints.append(f"{message.type}: {message.text}")

    def _asked(self, route: Route) -> None:
        if route.request.url.startswith("file:"):
            route.continue_()
        else:
            self.asked.append(route.request.url)
            route.abort()


@contextmanager
def opened(
    browser: Browser, path: Path, width: int = WIDE, scheme: Literal["light", "dark"] = "light"
) -> Iterator[Watched]:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
    )
    context.set_default_timeout(MINUTE)
    try:
        watched = Watched(context.new_page())
        watched.open(path)
        yield watched
    finally:
        context.close()


@pytest.fixture(scope="module")
def one_size(browser: Browser, pages: dict[str, Path]) -> Iterator[Watched]:
    """Open a page for the tests that leave it as it was. A browser takes seconds to draw one."""
    with opened(browser, pages["one size"]) as watched:
        yield watched


@pytest.mark.parametrize("name", [*RUNS, "experiment", "missing runs"])
def test_every_plot_is_drawn_without_a_complaint(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    with opened(browser, pages[name], NARROW) as watched:
        check_plots(watched.page, has_marks=name != "nothing served")
        check_that_only_tables_scroll(watched.page, NARROW)
        if name != "experiment":
            table = watched.page.locator(".scroll").last
            assert table.evaluate("box => box.scrollWidth > box.clientWidth")
        watched.page.set_viewport_size({"width": WIDE, "height": 900})
        watched.page.wait_for_function(FITTING)
        check_plots(watched.page, has_marks=name != "nothing served")
        check_that_only_tables_scroll(watched.page, WIDE)
        assert watched.complaints == []
        assert watched.asked == []


def check_plots(page: Page, *, has_marks: bool) -> None:
    plots: list[dict[str, Any]] = page.locator(".drawing").evaluate_all(MARKS)
    assert len(plots) == len(json.loads(page.locator("#data").text_content() or "{}")["plots"])
    assert plots
    for plot in plots:
        assert plot["ticks"] > 0, plot
        assert plot["wide"] > 200, plot
        assert plot["marks"] > 0 or not has_marks, plot


def check_that_only_tables_scroll(page: Page, width: int) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(BEYOND) == []


def test_light_and_dark(browser: Browser, pages: dict[str, Path]) -> None:
    def looks(watched: Watched) -> list[str]:
        return [
            watched.page.locator(place).first.evaluate(f"e => getComputedStyle(e)['{style}']")
            for place, style in (
                ("body", "backgroundColor"),
                ("h1", "color"),
                (".xtick text", "fill"),
                (".scatterlayer .js-line", "stroke"),
                (".legend i", "backgroundColor"),
            )
        ]

    def assert_soon_looks(watched: Watched, wanted: list[str]) -> None:
        deadline = time.monotonic() + MINUTE / 1000
        while looks(watched) != wanted and time.monotonic() < deadline:
            watched.page.wait_for_timeout(SOON)
        assert looks(watched) == wanted

    with (
        opened(browser, pages["one size"]) as watched,
        opened(browser, pages["one size"], scheme="dark") as opened_dark,
    ):
        light, dark = looks(watched), looks(opened_dark)
        assert all(a != b for a, b in zip(light, dark, strict=True))
        watched.page.emulate_media(color_scheme="dark")
        assert_soon_looks(watched, dark)
        opened_dark.page.emulate_media(media="print")
        opened_dark.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert_soon_looks(opened_dark, ["rgb(255, 255, 255)", *light[1:]])


def test_the_legend_hides_and_shows(one_size: Watched) -> None:
    plot = one_size.page.locator("figure", has_text="Evictions so far")
    lines = plot.locator(".scatterlayer .js-line")
    button = plot.get_by_role("button", name="fifo")
    assert lines.count() == 2
    for count, is_pressed in ((1, "false"), (2, "true")):
        button.click()
        assert button.get_attribute("aria-pressed") == is_pressed
        expect(lines).to_have_count(count)
    assert one_size.complaints == []


def test_names_are_no_elements(one_size: Watched) -> None:
    assert NAME in one_size.page.inner_text("h1")
    assert one_size.page.locator("img").count() == 0
    assert one_size.page.locator("script").count() == 3


def test_it_prints(one_size: Watched) -> None:
    assert one_size.page.pdf().startswith(b"%PDF-")
    assert one_size.complaints == []


def test_no_other_script_may_run(browser: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    text = pages["nothing served"].read_text(encoding="utf-8")
    path = tmp_path / "page.html"
    path.write_text(text.replace("<h1>", "<script>document.body.remove()</script><h1>"))
    with opened(browser, path) as watched:
        assert watched.page.locator(".drawing").count() > 0
        (complaint,) = watched.complaints
        assert "Content Security Policy" in complaint
