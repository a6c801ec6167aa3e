"""Whatever is sent: no error of the server, and every answer as the interface describes it."""

from __future__ import annotations

import io
import json
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin
from torch import Tensor

import ringfence as rf
from ringfence.errors import RingfenceError
from ringfence.serve.app import create_app
from ringfence.serve.inputs import BESIDE, JPEG, JSON, KINDS, MOST_SCANS, NPY, PNG, read_input, read_inputs
from ringfence.serve.limits import Limits
from ringfence.serve.schemas import Answer
from ringfence.serve.served import Served

schemathesis = pytest.importorskip("schemathesis", reason="needs schemathesis, of the dev extra")
LIMITS = Limits(per_minute=10_000_000, draws=200, seconds=600.0, usual_seconds=600.0, waiting=1000)
SHAPE = (1, 28, 28)


@pytest.fixture(scope="module")
def url(serve: Callable[..., Served], listen: Callable[[Any], str], tmp_path_factory: pytest.TempPathFactory) -> str:
    return listen(create_app([serve(**vars(LIMITS))], limits=LIMITS, jobs=tmp_path_factory.mktemp("jobs")))


def test_requests_made_from_the_description_are_answered_as_it_says(url: str, digits: list[Tensor]) -> None:
    """As it makes them, and about an input of the model's shape, which it does not know."""
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]
    asked = []
    for found in schemathesis.openapi.from_url(f"{url}/openapi.json").get_all_operations():
        operation = found.ok()
        if operation.path.endswith("/events"):  # it ends when its job does
            continue

        @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(case=operation.as_strategy(), fits=st.booleans())
        def ask(case: Any, fits: bool) -> None:
            if fits and case.method == "POST":
                x = digits[0].tolist()
                case.media_type, case.body = JSON, {"inputs": [x]} if case.path == "/v1/jobs" else {"input": x}
                for name in ("model", "seconds"):  # of which there is one; in no time there is no answer
                    case.query.pop(name, None)
                case.call_and_validate(checks=checks, timeout=120)
                case.query.clear()
            case.call_and_validate(checks=checks, timeout=120)

        ask()
        asked.append(operation.path)
    assert len(asked) >= 7
    figures = httpx.get(f"{url}/metrics", timeout=60).text
    assert 'status="500"' not in figures
    for path, status in (("certify", 200), ("predict", 200), ("jobs", 202)):
        assert f'ringfence_requests_total{{route="/v1/{path}",status="{status}"}}' in figures


def test_the_description_has_examples(url: str) -> None:
    told = httpx.get(f"{url}/openapi.json", timeout=60).json()
    body = told["paths"]["/v1/certify"]["post"]["requestBody"]["content"]
    assert set(body) == {PNG, JPEG, NPY, JSON}
    assert body[JSON]["example"]
    answer = told["paths"]["/v1/certify"]["post"]["responses"]["200"]["content"]["application/json"]["example"]
    assert Answer.model_validate(answer).wrong() == [], "the example is a true answer"
    assert {"/v1/predict", "/v1/certify", "/v1/jobs", "/v1/jobs/{job}", "/v1/model", "/metrics"} <= set(told["paths"])


def test_json_too_long_for_an_input_is_not_parsed(digits: list[Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    told = json.dumps({"input": (digits[0] / 3).tolist()}, indent=4).encode()
    assert bool((read_input(told, JSON, SHAPE) == digits[0] / 3).all())
    monkeypatch.setattr(json, "loads", lambda _: pytest.fail("parsed"))
    with pytest.raises(RingfenceError, match="bytes for one input"):
        read_input(b'{"input": [' + b"0," * 10**6 + b"0]}", JSON, SHAPE)


def encoded(x: Tensor, form: str) -> bytes:
    file = io.BytesIO()
    pixels = (x[0] * 255).round().numpy().astype(np.uint8)
    np.save(file, pixels[None]) if form == "npy" else Image.fromarray(pixels).save(file, form)
    return file.getvalue()


def refused_or_read(content: bytes, kind: str) -> None:
    for read in (lambda: read_input(content, kind, SHAPE), lambda: read_inputs(content, kind, SHAPE, 10)):
        try:
            x = read()
        except RingfenceError:
            continue
        assert tuple(x.shape)[-3:] == SHAPE
        assert 0 <= float(x.min()) <= float(x.max()) <= 1


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([*KINDS, "", "text/html"]))
def test_nonsense_is_refused_by_name(content: bytes, kind: str) -> None:
    refused_or_read(content, kind)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.sampled_from([("PNG", PNG), ("JPEG", JPEG), ("npy", NPY)]), st.data())
def test_damaged_files_are_refused_or_read(digits: list[Tensor], form: tuple[str, str], data: st.DataObject) -> None:
    content = bytearray(encoded(digits[0], form[0]))
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    refused_or_read(bytes(content), form[1])
    refused_or_read(bytes(content[:cut]), form[1])


def test_headers_are_parsed_one_at_a_time(digits: list[Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads that parse literals at once make Python 3.11 raise a SystemError now and then."""
    parse, inside = np.lib.format.read_array_header_1_0, threading.Semaphore(1)

    def alone(*arguments: Any, **options: Any) -> Any:
        assert inside.acquire(blocking=False), "another thread parses"
        try:
            time.sleep(0.01)  # the others come meanwhile, where they may
            return parse(*arguments, **options)
        finally:
            inside.release()

    monkeypatch.setattr(np.lib.format, "read_array_header_1_0", alone)
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda x: read_input(encoded(x, "npy"), NPY, SHAPE), digits))
    assert all(bool((one == x).all()) for one, x in zip(read, digits, strict=True))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["u1", "<f2", "<f4", ">f8"])
def test_arrays_of_every_layout_are_the_same_input(digits: list[Tensor], order: Any, kind: str) -> None:
    pixels = np.round(digits[0].numpy() * 255)
    array = pixels.astype(kind) if kind == "u1" else (pixels / 255).astype(kind)
    np.save(file := io.BytesIO(), np.asarray(array, order=order))
    found = read_input(file.getvalue(), NPY, SHAPE)
    assert found.is_contiguous()
    assert bool(((found - digits[0]).abs() <= (1e-3 if kind == "<f2" else 1e-7)).all())


@pytest.mark.parametrize(
    "content",
    [
        b'{"input": [[[NaN]]]}',
        b'{"input": [[[1e999]]]}',
        b'{"input": {"a": 1}}',
        b'{"input": true}',
        b'{"input": [[[true]]]}',
        b'{"input": null}',
        b"null",
        b'"input"',
        b"\xff\xfe",
        b'{"input": [[[' + b"9" * 5000 + b"]]]}",
    ],
)
def test_json_that_holds_no_input_is_refused(content: bytes) -> None:
    with pytest.raises(RingfenceError):
        read_input(content, JSON, SHAPE)


def chunk(name: bytes, content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + name + content + zlib.crc32(name + content).to_bytes(4, "big")


@pytest.mark.parametrize("name", [b"iCCP", b"zTXt", b"iTXt"])
def test_what_pixels_do_not_need_is_not_unfolded(
    digits: list[Tensor], monkeypatch: pytest.MonkeyPatch, name: bytes
) -> None:
    """Sixty profiles of a megabyte each fit into what is decoded while all others wait."""
    for kind in ("iCCP", "zTXt", "iTXt"):
        monkeypatch.setattr(PngImagePlugin.PngStream, f"chunk_{kind}", lambda *_: pytest.fail("unfolded"))
    content = encoded(digits[0], "PNG")
    for place in (33, len(content) - 12):  # after the head, and after the pixels
        more = 60 * chunk(name, b"a\0\0" + zlib.compress(bytes(2**20)))
        assert len(more) < 2**16
        found = read_input(content[:place] + more + content[place:], PNG, SHAPE)
        assert bool((found == digits[0]).all())


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_pixels_are_those_of_the_whole_file(mode: str) -> None:
    colours = Image.fromarray(np.random.default_rng(0).integers(0, 256, (28, 28, 4), np.uint8))
    notes = PngImagePlugin.PngInfo()
    notes.add_text("a", "b", zip=True)
    notes.add(b"gAMA", (10_000).to_bytes(4, "big"))
    clear: dict[str, Any] = {"P": {"transparency": 7}, "L": {"transparency": 7}}.get(mode, {})
    colours.convert(mode).save(file := io.BytesIO(), "PNG", pnginfo=notes, icc_profile=b"c" * 500, **clear)
    for shape, wanted in ((SHAPE, "L"), ((3, 28, 28), "RGB")):
        pixels = np.atleast_3d(np.array(Image.open(io.BytesIO(file.getvalue())).convert(wanted)))
        found = read_input(file.getvalue(), PNG, shape).numpy()
        assert np.array_equal(found, (pixels.transpose(2, 0, 1) / 255).astype(np.float32))


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_a_picture_is_read_as_in_a_folder_and_not_turned(form: str, tmp_path: Path) -> None:
    """Whatever its camera says: what is served is what was certified, from a folder."""
    pixels, exif = np.random.default_rng(0).integers(0, 256, (28, 28, 3), np.uint8), Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    Image.fromarray(pixels).save(tmp_path / f"turned.{form.lower()}", exif=exif)
    (read,) = rf.load_dataset(str(tmp_path))
    found = read_input((tmp_path / f"turned.{form.lower()}").read_bytes(), f"image/{form.lower()}", (3, 28, 28))
    assert bool((found == read.x).all())


def test_a_jpeg_of_many_scans_is_not_decoded(digits: list[Tensor]) -> None:
    """Each takes a dozen bytes and passes over all pixels: a megabyte took seconds at 224 x 224."""
    pixels = Image.fromarray((digits[0][0] * 255).byte().numpy())
    pixels.save(file := io.BytesIO(), "JPEG", progressive=True)
    begin = (content := file.getvalue()).rfind(b"\xff\xda")
    assert content.count(b"\xff\xda") < MOST_SCANS / 5
    assert tuple(read_input(content, JPEG, SHAPE).shape) == SHAPE
    with pytest.raises(RingfenceError, match="at most 100 scans"):
        read_input(content[:begin] + MOST_SCANS * content[begin:-2] + content[-2:], JPEG, SHAPE)


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_an_image_far_longer_than_its_pixels_is_refused(digits: list[Tensor], form: str) -> None:
    content = encoded(digits[0], form) + bytes(BESIDE)
    assert tuple(read_input(content, f"image/{form.lower()}", SHAPE).shape) == SHAPE
    with pytest.raises(RingfenceError, match="bytes as an image"):
        read_input(content + bytes(4 * 784), f"image/{form.lower()}", SHAPE)
