"""The page in a real browser: it draws, stays with its server, and can be used small and in the dark."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch import Tensor

import ringfence as rf
from ringfence.serve.app import create_app
from ringfence.serve.limits import Limits
from ringfence.serve.schemas import Answer
from ringfence.serve.served import Served

pytestmark = pytest.mark.slow
TOKEN = "a token of some length"


@pytest.fixture(scope="module")
def urls(serve: Callable[..., Served], listen: Callable[[Any], str]) -> tuple[str, str]:
    quiet = rf.Certification("default:1", noise=rf.Gaussian(0.25), procedure=rf.Fixed(n=100))
    limits = Limits(draws=2000, seconds=1000.0, usual_seconds=100.0)  # draws end a request, on slow machines too
    first, second = serve(**vars(limits)), serve(quiet, **vars(limits))
    second.name = "quiet"
    return listen(create_app([first, second], limits=limits)), listen(create_app([first], tokens=[TOKEN.encode()]))


@pytest.fixture
def picture(digits: list[Tensor], tmp_path: Path) -> Path:
    file = tmp_path / "seven.png"
    Image.fromarray((digits[0][0] * 255).round().numpy().astype(np.uint8)).resize((56, 56)).save(file)
    return file


class Opened:
    """A page, with what it complained about and asked for."""

    def __init__(self, browser: Any, url: str, state: str = "ready", **options: Any) -> None:
        self.page: Any = browser.new_context(**options).new_page()
        self.page.set_default_timeout(120_000)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda asked: self.requests.append(asked.url))
        self.page.goto(url)
        self.wait(state)

    def wait(self, state: str) -> None:
        self.page.locator(f"html[data-state={state}]").wait_for(state="attached")


def test_an_image_is_certified_while_one_watches(browser: Any, urls: tuple[str, str], picture: Path) -> None:
    opened = Opened(browser, urls[0], accept_downloads=True)
    page = opened.page
    assert not page.is_visible("#token"), "this server asks for none"
    page.set_input_files("#file", picture)
    opened.wait("done")
    assert page.inner_text("#decision").startswith("It is 7")
    assert float(page.inner_text("#radius")) > 0.3
    points = page.get_attribute("#line", "points").split()
    heights = [float(point.split(",")[1]) for point in points]
    assert len(points) > 3
    assert heights == sorted(heights, reverse=True), "the radius only grows"
    assert page.locator("#counts tr").count() >= 1
    with page.expect_download() as saved:
        page.click("#save")
    answer = Answer.model_validate(json.loads(Path(saved.value.path()).read_text()))
    assert answer.wrong() == []
    assert f"{math.floor(1000 * answer.radius) / 1000:.3f}" == page.inner_text("#radius")
    assert opened.complaints == []
    assert [asked for asked in opened.requests if not asked.startswith((urls[0], "blob:", "data:"))] == []
    page.context.close()


def test_nothing_shown_is_more_than_was_proved(browser: Any, urls: tuple[str, str]) -> None:
    opened = Opened(browser, urls[0])
    shown = opened.page.evaluate("""() => {
        const told = { radius: 0.3496, p_a: 0.99996, draws: 100, prediction: null };
        show({ ...told, prediction: 7 }, [told]);
        return [at("radius").textContent, at("evidence").textContent, at("most").textContent];
    }""")
    assert shown == ["0.349", "100 noisy copies; p ≥ 0.9999 that one gets this class", "0.34"]
    cases = [(0.35, 3, "0.350"), (0.1, 3, "0.100"), (0, 3, "0.000"), (1.9999, 3, "1.999"), (0.0004, 3, "0.000")]
    assert [opened.page.evaluate(f"down({value}, {places})") for value, places, _ in cases] == [one[2] for one in cases]
    opened.page.context.close()


def test_alpha_budget_and_model_are_what_is_asked(browser: Any, urls: tuple[str, str], picture: Path) -> None:
    opened = Opened(browser, urls[0])
    page = opened.page
    page.select_option("#model", "quiet")
    page.locator("#alpha").fill("0")
    page.locator("#seconds").fill("75")
    assert (page.inner_text("#alpha-told"), page.inner_text("#seconds-told")) == ("0.000001", "100 s")
    page.set_input_files("#file", picture)
    opened.wait("done")
    asked = next(one for one in opened.requests if "certify" in one)
    assert "model=quiet" in asked
    assert "alpha=0.000001" in asked
    assert "seconds=100" in asked
    page.context.close()


def test_a_token_is_asked_for(browser: Any, urls: tuple[str, str], picture: Path) -> None:
    opened = Opened(browser, urls[1], state="locked")
    assert opened.page.inner_text("#decision") == "This server asks for a token."
    assert opened.page.is_visible("#token")
    opened.page.fill("#token", TOKEN)
    opened.page.locator("#token").blur()
    opened.wait("ready")
    opened.page.set_input_files("#file", picture)
    opened.wait("done")
    opened.page.context.close()


def test_what_is_no_image_is_told(browser: Any, urls: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no image")
    opened = Opened(browser, urls[0])
    opened.page.set_input_files("#file", tmp_path / "text.png")
    opened.page.locator("#decision.bad").wait_for()
    assert "no image" in opened.page.inner_text("#decision")
    opened.page.context.close()


@pytest.mark.parametrize("how", ["no image", "refused", "another model"])
def test_an_answer_does_not_stay_beside_what_it_is_not_about(
    browser: Any, urls: tuple[str, str], picture: Path, tmp_path: Path, how: str
) -> None:
    opened = Opened(browser, urls[0])
    page = opened.page
    page.set_input_files("#file", picture)
    opened.wait("done")
    assert float(page.inner_text("#radius")) > 0.3
    (tmp_path / "text.png").write_text("no image")
    told = {"error": dict.fromkeys(("argument", "rule", "received", "remedy"), "busy")}
    page.route("**/v1/certify*", lambda route: route.fulfill(status=429, json=told))
    if how == "another model":
        page.select_option("#model", "quiet")  # which is asked about the same picture
    else:
        page.click("#again") if how == "refused" else page.set_input_files("#file", tmp_path / "text.png")
    page.locator("#decision.bad").wait_for()
    assert page.inner_text("#radius") == "-"
    assert page.inner_text("#evidence") == ""
    assert page.locator("#counts tr").count() == 0
    assert not page.is_visible("#save")
    assert page.is_disabled("#again") == (how == "no image"), "the same picture may be asked about again"
    page.context.close()


def test_a_picture_dropped_anywhere_is_asked_about_as_it_is_shown(browser: Any, urls: tuple[str, str]) -> None:
    """What is transparent has a colour of its own: the ground of the page is no part of what is sent."""
    opened = Opened(browser, urls[0])
    page = opened.page
    assert "28 x 28 pixels, grey" in page.inner_text("#takes")
    dropped = page.evaluate_handle("""async () => {
        const canvas = new OffscreenCanvas(40, 40), carried = new DataTransfer();
        canvas.getContext("2d");
        const blob = await canvas.convertToBlob();
        carried.items.add(new File([blob], "clear.png", { type: "image/png" }));
        return carried;
    }""")
    with page.expect_request("**/v1/certify*") as asked:
        page.dispatch_event("h1", "drop", {"dataTransfer": dropped})
    opened.wait("done")
    shown = page.evaluate("[...at('picture').getContext('2d').getImageData(0, 0, 28, 28).data]")
    assert set(shown[3::4]) == {255}
    assert list(asked.value.post_data_buffer[-784:]) == shown[::4] == [255] * 784
    assert page.input_value("#file").endswith("clear.png")
    page.context.close()


def test_another_model_is_asked_about_the_same_picture(browser: Any, urls: tuple[str, str], picture: Path) -> None:
    opened = Opened(browser, urls[0])
    opened.page.set_input_files("#file", picture)
    opened.wait("done")
    with opened.page.expect_request("**/v1/certify*model=quiet*"):
        opened.page.select_option("#model", "quiet")
    opened.page.locator("#decision", has_text="It is 7.").wait_for()
    opened.page.context.close()


def test_a_refused_page_says_why(browser: Any, urls: tuple[str, str]) -> None:
    page = browser.new_context().new_page()
    page.set_default_timeout(120_000)
    told = {"error": {"argument": "Host", "rule": "must be this machine", "received": "other", "remedy": "Ask it."}}
    page.route("**/v1/model", lambda route: route.fulfill(status=421, json=told))
    page.goto(urls[0])
    page.locator("#decision.bad").wait_for()
    assert page.inner_text("#decision") == "Host must be this machine; got other. Ask it."
    page.context.close()


def test_a_wrong_token_is_told(browser: Any, urls: tuple[str, str]) -> None:
    opened = Opened(browser, urls[1], state="locked")
    opened.page.fill("#token", "another token of some length")
    opened.page.locator("#token").blur()
    opened.page.locator("#decision.bad").wait_for()
    assert opened.page.inner_text("#decision") == "This is no token of this server."
    opened.page.context.close()


def test_it_fits_a_phone_and_the_dark(browser: Any, urls: tuple[str, str], picture: Path) -> None:
    colours = []
    for scheme in ("light", "dark"):
        opened = Opened(browser, urls[0], color_scheme=scheme, viewport={"width": 400, "height": 800})
        opened.page.set_input_files("#file", picture)
        opened.wait("done")
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= 400
        colours.append(opened.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert opened.complaints == []
        opened.page.context.close()
    assert colours[0] != colours[1]
