"""The page in a real browser: it runs, stays offline, answers its controls, and can be used by everybody."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ringfence.cli import app
from ringfence.data import load_dataset
from ringfence.procedures import Sequential, TwoSided
from ringfence.report.page import report_page
from ringfence.report.reading import load
from ringfence.store import RunFolder
from ringfence.store.attack import AttackResult, Broken, write_attack

FakeRun = Callable[..., RunFolder]
pytestmark = pytest.mark.slow

VIDEO_CNN = Path(__file__).resolve().parents[2] / "reproduce" / "joshi2022-smooth-reduce" / "video_cnn.py"
THETAS = ("theta=0.10", "theta=0.50", "theta=0.90")
HOSTILE = "<img src=x onerror=alert(1)></script>"


@pytest.fixture(scope="module")
def report(fake_run: FakeRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with every section."""
    folder = tmp_path_factory.mktemp("report")
    fake_run(folder / "fixed", 120, names=[HOSTILE, "plain.png"])
    fake_run(folder / "two", 120, TwoSided(n=500), seed=5, mechanisms=("neyman_pearson", "renyi"))
    fake_run(folder / "sequential", 120, Sequential(radius=0.3, n=2000))
    fake_run(folder / "aces", 120, lanes=THETAS)
    train = folder / "train"
    train.mkdir()
    (train / "log.csv").write_text("epoch,loss,noisy_accuracy\n1,2,0.5\n2,1,0.7\n")
    settings = {"steps": 20, "copies": 32, "box": False, "n": 1000, "recheck": 100_000, "seed": 1}
    about = {"run": HOSTILE, "config_hash": "0", "lane": "main", "sigma": 0.5, "alpha": 0.001, "inputs": 120}
    shares = {"radii": (0.25, 0.5, 1.0), "certified": (0.8, 0.7, 0.1), "empirical": (0.9, 0.85, 0.4)}
    point = {"certified_class": 1, "radius": 0.5, "distance": 0.49, "attacked_class": 2, "votes": 600, "draws": 1000}
    broken = tuple(Broken(input_id=k, **point) for k in (3, 17))
    found = AttackResult(attack="pgd", attacked=99, broken=broken, **settings, **about, **shares)
    write_attack(found, {}, folder / "attack")
    names = ("fixed", "two", "sequential", "aces", "train", "attack")
    out = folder / "report.html"
    out.write_text(report_page(load([folder / name for name in names]), "A <b>title</b>"))
    return out


class Opened:
    """A page in the browser, with what it complained about and asked for."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        context = browser.new_context(**options)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.page: Any = context.new_page()
        self.page.set_default_timeout(120_000)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type != "log" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda shown: (self.complaints.append(shown.message), shown.dismiss()))
        self.page.on("request", lambda asked: self.requests.append(asked.url))
        self.page.goto(path.as_uri())
        # Not wait_for_function: it polls by evaluating text, which the page's policy forbids.
        self.page.locator("html[data-gallery=ready]").wait_for(state="attached")
        self.page.evaluate("ringfence.ready")

    def texts(self, selector: str) -> list[str]:
        found: list[str] = self.page.locator(selector).all_inner_texts()
        return found

    def drawn(self, script: str, whole: Callable[[Any], bool]) -> Any:
        """What is in the canvases once it is whole, or long after it should be: pictures come after the page."""
        until = time.monotonic() + 120
        while not whole(found := self.page.evaluate(script)) and time.monotonic() < until:
            self.page.wait_for_timeout(50)
        return found


@pytest.fixture
def opened(browser: Any, report: Path) -> Any:
    made = Opened(browser, report)
    yield made
    made.page.context.close()


def test_it_loads_without_a_complaint_or_a_request(opened: Opened, report: Path) -> None:
    opened.page.locator(".card").first.click()
    opened.page.wait_for_selector("dialog .chart svg.marks")
    opened.page.keyboard.press("Escape")
    opened.page.wait_for_timeout(300)
    assert opened.complaints == []
    local = (report.as_uri(), "data:", "blob:")
    assert [asked for asked in opened.requests if not asked.startswith(local)] == []
    assert opened.page.title() == "A <b>title</b>"
    assert opened.page.locator("img").count() == 0, "hostile names stay text"


def test_charts_have_marks_for_each_run(opened: Opened) -> None:
    curve = opened.page.locator("#chart-answer-0")
    assert curve.locator("g.mark-line path").count() == 5, "fixed, two and three thetas"
    assert curve.locator("g.mark-symbol.role-mark path").count() == 2, "the radii 0 and 0.3 that were tried"
    assert opened.page.locator("#chart-accuracy-1 g.mark-line path").count() == 6, "beside the outcomes of known radii"
    drawn = opened.page.locator(".chart svg.marks").count()
    assert drawn == opened.page.locator(".chart").count() >= 8


def test_sorting_the_table(opened: Opened) -> None:
    first = opened.texts("#table tbody th")
    opened.page.locator("#table thead button", has_text="ACR").click()
    values = [text for text in opened.texts("#table tbody td:nth-child(3)") if text != "-"]
    assert [float(text) for text in values] == sorted((float(text) for text in values), reverse=True)
    assert opened.texts("#table tbody td:nth-child(3)")[-1] == "-", "what is unknown comes last"
    assert opened.page.locator("#table th[aria-sort=descending]").count() == 1
    opened.page.locator("#table thead button", has_text="run").click()
    assert opened.texts("#table tbody th") == sorted(first)


def test_copying_the_table(opened: Opened) -> None:
    rows = len(opened.texts("#table tbody tr"))
    csv, latex, markdown = (opened.page.evaluate(f"ringfenceTable('{form}')") for form in ("csv", "latex", "markdown"))
    assert len(csv.strip().split("\n")) == rows + 1
    assert latex.count(r"\\") == rows + 2, "radii stand under one heading"
    assert r"\multicolumn{6}{c}{Certified accuracy (\%) at radius}" in latex
    assert "draws" not in latex, "what the sampling cost is in no paper's table"
    assert "draws/s" in csv
    assert len(markdown.strip().split("\n")) == rows + 2
    opened.page.locator("[data-copy=csv]").click()
    opened.page.locator("#copied:not(:empty)").wait_for()
    assert opened.page.inner_text("#copied") == "Copied as csv."


def test_filtering_and_sorting_the_gallery(opened: Opened) -> None:
    page = opened.page
    page.select_option("#outcome", "wrong")
    assert page.locator(".card .wrong").count() == page.locator(".card").count() > 0
    page.select_option("#outcome", "all")
    page.select_option("#sort", "radius-up")
    radii = [float(text.removeprefix("r ")) for text in opened.texts(".card .line:nth-of-type(3) span:last-child")]
    assert radii == sorted(radii)
    page.fill("#search", "17")
    assert "#17" in opened.texts(".card strong")
    page.fill("#search", "plain")
    assert page.inner_text("#position").startswith("60 inputs")
    page.fill("#search", "no such input")
    assert page.inner_text("#gallery") == "No input fits."


def test_gains_between_two_runs(opened: Opened) -> None:
    opened.page.select_option("#other", label="two")
    opened.page.select_option("#outcome", "gain")
    opened.page.select_option("#sort", "gain-down")
    gains = [float(text) for text in opened.texts(".card .line:nth-of-type(4) span:last-child")]
    assert gains
    assert gains == sorted(gains, reverse=True)
    assert min(gains) >= 0


def test_an_input_shows_everything_recorded(opened: Opened) -> None:
    opened.page.fill("#search", "4")
    opened.page.locator(".card").first.click()
    text = opened.page.inner_text("dialog")
    for word in (
        "Input 4",
        "radius, renyi",
        "p_a",
        "alpha spent on",
        "seed",
        "stage 1: 500 in 1 request",
        "theta=0.50",
    ):
        assert word in text, word
    opened.page.locator("dialog button", has_text="Close").click()
    assert not opened.page.locator("dialog").is_visible()


def test_the_theta_slider(opened: Opened) -> None:
    page = opened.page
    sizes = (
        "[...document.querySelectorAll('#frontier .mark-symbol.role-mark path')].map((mark) => mark.getAttribute('d'))"
    )
    shown, marks = [], []
    for place in range(3):
        page.locator("#theta").fill(str(place))
        page.evaluate("ringfence.charts['frontier-0'].view.runAsync().then(() => null)")  # and what was asked before
        shown.append((page.inner_text("#theta-value"), page.inner_text("#theta-table tbody")))
        marks.append(tuple(page.evaluate(sizes)))
    assert [theta for theta, _ in shown] == ["0.1", "0.5", "0.9"]
    assert len({row for _, row in shown}) == 3
    assert len(set(marks)) == 3, "another point is enlarged"


def test_pictures_are_drawn_with_a_noisy_copy(opened: Opened) -> None:
    spread = """[...document.querySelectorAll('.card')].slice(0, 3).map(
      (card) => [...card.querySelectorAll('canvas')].map(
        (one) => new Set(one.getContext('2d').getImageData(0, 0, one.width, one.height).data).size))"""
    for picture, noisy in opened.drawn(spread, lambda found: all(min(one) > 1 for one in found)):
        assert picture > 10
        assert noisy > 1
    assert "illustration" in opened.page.locator(".card canvas").nth(1).get_attribute("aria-label")


def test_attacks_are_drawn_beside_certificates_and_broken_ones_stand_out(opened: Opened) -> None:
    chart = opened.page.locator("#chart-attacks-0")
    lines = chart.locator("g.mark-line path")
    assert sorted(line.get_attribute("stroke-dasharray") or "" for line in lines.all()) == ["1,0", "6,4"]
    assert chart.locator("g.mark-symbol.role-mark path").count() == 6
    assert "2 of 99 attacked certificates were broken" in opened.page.inner_text("header .badge.alarm")
    assert len(opened.texts(".note.alarm li")) == 2
    colours = "getComputedStyle(document.querySelector('.note.alarm')).color.match(/\\d+/g).map(Number)"
    red, green, blue = opened.page.evaluate(colours)
    assert red > 2 * max(green, blue), "red, not only in words"


def test_dark_and_light(browser: Any, report: Path) -> None:
    dark = Opened(browser, report, color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    before = dark.page.evaluate(background)
    assert dark.page.inner_text("#theme") == "Switch to light", "the button says what it does"
    dark.page.click("#theme")
    assert dark.page.evaluate(background) != before
    assert dark.page.inner_text("#theme") == "Switch to dark"
    dark.page.context.close()


@pytest.mark.parametrize("width", [375, 700, 1280])
def test_nothing_is_cut_off_or_scrolls_sideways(browser: Any, report: Path, width: int) -> None:
    opened = Opened(browser, report, viewport={"width": width, "height": 700})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    for cell in opened.page.locator("#table tbody tr:first-child > *").all():
        box = cell.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    assert ("stacked" in opened.page.locator(".fit").first.get_attribute("class")) == (width < 1000)
    opened.page.locator(".card").first.click()
    inside = "(() => { const one = document.querySelector('dialog'); return one.scrollWidth - one.clientWidth; })()"
    assert opened.page.evaluate(inside) <= 0
    opened.page.context.close()


def test_a_saved_figure_is_named_after_run_and_figure(opened: Opened) -> None:
    opened.page.locator("#chart-answer-0 summary").click()
    with opened.page.expect_download() as saved:
        opened.page.locator("#chart-answer-0 .vega-actions a", has_text="SVG").click()
    assert saved.value.suggested_filename == "fixed-and-3-more-certified-accuracy-against-radius.svg"


def test_bands_of_many_lanes_stay_see_through(browser: Any, fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "a", 20, lanes=[f"lane-{k:02d}" for k in range(11)])
    out = tmp_path / "report.html"
    out.write_text(report_page(load([tmp_path / "a"])))
    opened = Opened(browser, out)
    bands = opened.page.locator("#chart-answer-0 g.mark-area path").all()
    opaque = [float(band.get_attribute("opacity") or band.get_attribute("fill-opacity") or 1) for band in bands]
    assert len(opaque) == 11
    assert 1 - np.prod([1 - one for one in opaque]) < 0.4, "even where all of them lie on each other"
    opened.page.context.close()


def test_the_keyboard_reaches_an_input_and_comes_back(opened: Opened) -> None:
    opened.page.locator(".card").first.focus()
    opened.page.keyboard.press("Enter")
    opened.page.locator("dialog").wait_for()
    opened.page.keyboard.press("Escape")
    opened.page.locator("dialog").wait_for(state="hidden")
    opened.page.locator(".card:focus").wait_for()


def test_ten_thousand_inputs_are_paged(browser: Any, fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "a", 10_000)
    fake_run(tmp_path / "b", 10_000, seed=3)
    out = tmp_path / "report.html"
    out.write_text(report_page(load([tmp_path / "a", tmp_path / "b"])))
    large = Opened(browser, out)
    assert large.page.inner_text("#position") == "10,000 inputs, page 1 of 417"
    assert large.page.locator(".card").count() == 24, "only one page is in the document"
    for _ in range(5):
        large.page.click("#next")
    assert large.texts(".card strong")[0] == "#120"
    large.page.select_option("#sort", "gain-down")
    assert large.page.locator(".card").count() == 24
    assert large.complaints == []
    large.page.context.close()


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core: RINGFENCE_AXE, or fetched by npm; it is not kept here."""
    if named := os.environ.get("RINGFENCE_AXE"):
        return Path(named).read_text(encoding="utf-8")
    if not shutil.which("npm"):
        pytest.skip("no axe-core: name axe.min.js in RINGFENCE_AXE, or install npm")
    folder = tmp_path_factory.mktemp("axe")
    packed = subprocess.run(
        ["npm", "pack", "axe-core", "--silent"], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    if packed.returncode != 0:
        pytest.skip(f"no axe-core: npm pack failed ({packed.stderr.strip()[-200:]})")
    shutil.unpack_archive(folder / packed.stdout.split()[-1], folder, filter="data")
    return (folder / "package" / "axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_problem(browser: Any, report: Path, axe: str, scheme: str) -> None:
    page = Opened(browser, report, color_scheme=scheme, bypass_csp=True).page
    page.evaluate(axe)
    for place in ("page", "dialog"):
        if place == "dialog":
            page.locator(".card").first.click()
            page.wait_for_selector("dialog .chart svg.marks")
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        bad = [
            (one["id"], [node["html"][:200] for node in one["nodes"][:3]])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        assert bad == [], place
    page.context.close()


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page about a real run on clips: embedded digits that move, seen by an untrained network."""
    folder = tmp_path_factory.mktemp("clips")
    digits = [(item.x[0] * 255).round().numpy().astype(np.uint8) for item in load_dataset("default", limit=3)]
    x, y = np.resize(np.stack(digits), (800, 28, 28)), np.zeros(800, np.int64)
    np.savez(folder / "mnist.npz", x_test=x, y_test=y, x_train=x, y_train=y)
    words = ["certify", "--data", f"mnist-motion:{folder / 'mnist.npz'}", "--limit", 3, "--classes", 8]
    words += ["--model", f"clips(chunks({VIDEO_CNN}:motion_cnn, frames=16), frames=32, count=2)"]
    words += ["--sigma", 0.25, "--n0", 10, "--n", 20, "--batch", 10, "--device", "cpu", "--out", folder / "run"]
    done = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    out = folder / "report.html"
    out.write_text(report_page(load([folder / "run"])))
    return out


def test_clips_are_shown_as_strips_of_frames(browser: Any, clips: Path) -> None:
    opened = Opened(browser, clips)
    opened.page.wait_for_timeout(300)
    strips = opened.page.locator(".card .pair.strip")
    assert strips.count() == 3
    boxes = [canvas.bounding_box() for canvas in strips.first.locator("canvas").all()]
    assert len(boxes) == 2
    assert boxes[1]["y"] >= boxes[0]["y"] + boxes[0]["height"], "the noisy copy below, so that both have the full width"
    assert boxes[0]["width"] > 3.5 * boxes[0]["height"], "four frames side by side"
    opened.page.locator(".card").first.click()
    assert opened.page.locator("dialog .pair.strip canvas").count() == 2
    assert "label left" in opened.page.inner_text("dialog")
    assert opened.complaints == []  # before reading pixels, which the browser remarks on
    moved = """[...document.querySelectorAll('.card')].map((card) => {
      const canvas = card.querySelector('canvas'), side = canvas.width / 4, context = canvas.getContext('2d');
      const frames = [0, 1, 2, 3].map((k) => context.getImageData(k * side, 0, side, canvas.height).data.join());
      return new Set(frames).size;
    })"""
    assert opened.drawn(moved, [4, 4, 4].__eq__) == [4, 4, 4], "every frame differs from the others"
    opened.page.context.close()


OVERLAPS = """() => [...document.querySelectorAll('.chart')].flatMap((chart) => {
  const texts = [...chart.querySelectorAll('.role-axis-label text')];
  const shown = texts.filter((one) => one.getAttribute('opacity') !== '0');
  const labels = shown.map((one) => [one.textContent, one.getBoundingClientRect()]);
  return labels.flatMap(([name, one], at) => labels.slice(at + 1)
    .filter(([, two]) => one.left < two.right && two.left < one.right && one.top < two.bottom && two.top < one.bottom)
    .map(([other]) => `${chart.id}: ${name} on ${other}`));
})"""


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_labels_of_axes_do_not_lie_on_each_other(browser: Any, report: Path, width: int) -> None:
    made = Opened(browser, report, viewport={"width": width, "height": 900})
    assert made.page.locator(".chart .role-axis-label text").count() > 50
    assert made.page.evaluate(OVERLAPS) == []
    made.page.context.close()
