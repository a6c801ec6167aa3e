"""certify from Python does the usual thing, a run is read back as a program wants it, and answers become tables."""

from __future__ import annotations

import csv
import logging
import re
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from typer.testing import CliRunner

import ringfence as rf
from ringfence.analysis.columns import COLUMNS, export_csv
from ringfence.certifying import Options
from ringfence.cli import app
from ringfence.errors import ArgumentError, Problems, RingfenceError
from ringfence.stats.norms import InNorm

FAST = rf.Execution(device="cpu", batch=100)


class Bright(nn.Module):
    """Class 1 where the mean pixel is above one half."""

    def forward(self, x: Tensor) -> Tensor:
        mean = 40 * (x.flatten(1).mean(1, keepdim=True) - 0.5)
        return torch.cat([-mean, mean], 1)


X = torch.stack([torch.full((1, 8, 8), 0.2 if place % 2 else 0.8) for place in range(8)])
Y = torch.tensor([0 if place % 2 else 1 for place in range(8)])
LOADER = DataLoader(TensorDataset(X, Y), batch_size=3)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> rf.Run:
    out = tmp_path_factory.mktemp("runs") / "x"
    found = rf.certify(Bright(), LOADER, sigma=0.25, radius=0.5, execution=FAST, out=out)
    assert isinstance(found, rf.Run)
    return found


def test_those_who_check_types_may_ask_for_everything() -> None:
    own = {"classifier", "data", "out"}
    assert set(Options.__annotations__) == set(signature(rf.certify).parameters) - own


def test_one_line_certifies_a_loader(run: rf.Run) -> None:
    records = list(rf.certify(Bright(), LOADER, sigma=0.25, radius=0.5, execution=FAST))
    assert [(one.procedure, one.target, one.correct, one.radius) for one in records] == [
        ("sequential", 0.5, True, 0.5)
    ] * 8
    assert [one.radius for one in run] == [one.radius for one in sorted(records, key=lambda one: one.input_id)]
    (most,) = rf.certify(Bright(), X[:1], sigma=0.25, execution=FAST, procedure=rf.Fixed(n=2000))
    assert most.target is None


def test_a_run_is_written_at_once_and_continued(tmp_path: Path) -> None:
    heard: list[int] = []
    options: dict[str, Any] = {"sigma": 0.25, "radius": 0.5, "execution": FAST, "out": tmp_path / "x"}
    rf.certify(Bright(), LOADER, on_record=lambda record: heard.append(record.input_id), **options)
    assert sorted(heard) == list(range(8))
    again = rf.certify(Bright(), LOADER, on_record=lambda record: heard.append(-1), **options)
    assert len(list(again)) == 8
    assert -1 not in heard


def test_a_run_reads_back(run: rf.Run) -> None:
    loaded = rf.load(str(run.folder.path))
    assert len(loaded) == 8
    assert loaded[3].label == 0
    assert loaded.metrics()[0].certified_accuracy == {0.0: 1.0, 0.25: 1.0, 0.5: 1.0}
    assert loaded.metrics([0.5])[0].certified_accuracy == {0.5: 1.0}
    assert loaded.config.noise.sigma == 0.25
    assert "runs" in repr(loaded)
    frame = loaded.frame()
    assert list(frame.columns) == list(COLUMNS)
    assert frame["radius"].tolist() == [0.5] * 8
    assert frame["correct"].all()


def test_a_run_is_verified_by_itself_its_folder_or_its_path(run: rf.Run) -> None:
    path = run.folder.path
    assert [rf.verify(one) for one in (run, run.folder, path, str(path))] == [[]] * 4


def test_files_are_named_by_paths_too(tmp_path: Path) -> None:
    digits = rf.load_dataset("default", limit=2)
    np.savez(tmp_path / "digits.npz", x=torch.stack([one.x for one in digits]), y=digits.labels)
    net, data = tmp_path / "net (1).pth.tar", tmp_path / "digits.npz"
    torch.save({"arch": "lenet", "state_dict": rf.load_model("default").module.state_dict()}, net)
    asked: dict[str, Any] = {"noise": rf.Gaussian(0.5), "procedure": rf.Fixed(n0=10, n=100)}
    for one in (data, rf.Data(data)):
        assert [record.draws for record in rf.certify(net, one, **asked)] == [110, 110]
    assert rf.Data(data).name == str(data)
    assert len(rf.load_dataset(data)) == 2
    assert rf.load_model(net).digest == rf.load_model(f"'{net}'").digest


def test_a_run_reports_itself(run: rf.Run, tmp_path: Path) -> None:
    page = run.report(tmp_path / "page.html")
    assert "<html" in page.read_text()
    assert run.report().name == "x.html"
    numbered = shutil.copytree(run.folder.path, tmp_path / "sigma-0.25")  # beside sigma-0.50, say
    assert rf.load(numbered).report() == tmp_path / "sigma-0.25.html"


def test_a_notebook_shows_what_metrics_prints(tmp_path: Path) -> None:
    shown = {"sigma": 0.25, "radius": 0.1, "execution": rf.Execution("cpu", batch=100)}
    run = rf.certify(Bright(), (X, Y), out=tmp_path / "<b>", **shown)  # type: ignore[call-overload]
    page = run._repr_html_()
    assert page.startswith("<table>")
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    [found] = run.metrics()
    for cell in ("0.1", f"{100 * found.certified_accuracy[0.1]:.1f}", f"{100 * found.abstention:.1f}", "-"):
        assert f">{cell}</t" in page
    unlabelled = rf.certify(Bright(), X, out=tmp_path / "no labels", **shown)  # type: ignore[call-overload]
    assert "<th>lane</th><th>ACR</th>" in unlabelled._repr_html_()
    long = rf.certify(Bright(), (X, Y), out=tmp_path / "long", **{**shown, "radius": 0.1234567})  # type: ignore[call-overload]
    assert "<th>0.123456</th>" in long._repr_html_(), "rounded down, as in every table"


def test_no_folder_is_told_as_an_error_of_the_house(tmp_path: Path) -> None:
    with pytest.raises(rf.errors.StoreError, match="must be a run folder; got nothing there"):
        rf.load(tmp_path / "nowhere")


def test_a_folder_of_runs_is_told_one_of_them(run: rf.Run) -> None:
    with pytest.raises(rf.errors.StoreError, match=re.escape(f"such as {run.folder.path}.")):
        rf.load(run.folder.path.parent)


CALLS: dict[str, tuple[dict[str, Any], str]] = {
    "neither sigma nor noise": ({}, "sigma, noise: one of them must be given; got neither"),
    "both": ({"sigma": 0.25, "noise": rf.Gaussian(0.5)}, "sigma, noise: one of them must be given; got both"),
    "a sigma of words": ({"sigma": "large"}, "sigma: must be a positive number; got 'large'"),
    "no noise at all": ({"sigma": 0}, "sigma: must be a positive number; got 0"),
    "radius and procedure": (
        {"sigma": 0.25, "radius": 0.5, "procedure": rf.Fixed()},
        "radius: is a setting of the given procedure; got radius=0.5 and procedure fixed",
    ),
    "draws, alpha and procedure": (
        {"sigma": 0.25, "n": 100, "alpha": 0.01, "procedure": rf.Fixed()},
        r"n, alpha: belong to the procedure where one is given; .* Write e.g. rf.Fixed\(n=100, alpha=0.01\)",
    ),
    "two devices": (
        {"sigma": 0.25, "device": "cuda", "execution": rf.Execution("cpu")},
        "device: must be that of the execution; got cuda and cpu",
    ),
    "no draws": ({"sigma": 0.25, "n": 0}, "n: "),
    "a negative radius": ({"sigma": 0.25, "radius": -1.0}, "radius"),
    "a precision of words": ({"sigma": 0.25, "precision": "high"}, "precision"),
    "one class": ({"sigma": 0.25, "num_classes": 1}, "classes: must be at least 2 and at most 2147483647; got 1"),
}


def test_a_device_is_said_as_everywhere_in_torch() -> None:
    for device in ("cpu", torch.device("cpu")):
        assert len(list(rf.certify(Bright(), X, sigma=0.25, n=50, device=device))) == len(X)  # type: ignore[call-overload]
        run = rf.certify(Bright(), X, sigma=0.25, n=50, device=device, execution=rf.Execution(batch=50))  # type: ignore[call-overload]
        assert len(list(run)) == len(X)
    if not torch.cuda.is_available():
        with pytest.raises(ArgumentError, match="device: needs a CUDA device"):
            list(rf.certify(Bright(), X, sigma=0.25, n=50, device="cuda"))


def test_draws_and_alpha_are_said_as_on_the_command_line() -> None:
    same = {"execution": rf.Execution("cpu", batch=100)}
    for said, meant in (
        ({"n": 200}, rf.Fixed(n=200)),
        ({"n": 200, "alpha": 0.01}, rf.Fixed(n=200, alpha=0.01)),
        ({"radius": 0.1, "n": 300, "alpha": 0.01}, rf.Sequential(radius=0.1, n=300, alpha=0.01)),
    ):
        short = list(rf.certify(Bright(), X, sigma=0.25, **said, **same))  # type: ignore[arg-type]
        long = list(rf.certify(Bright(), X, sigma=0.25, procedure=meant, **same))  # type: ignore[arg-type]
        assert [(one.radius, one.p_a, one.draws) for one in short] == [(one.radius, one.p_a, one.draws) for one in long]


@pytest.mark.parametrize("kind", CALLS)
def test_wrong_calls_are_refused_at_once_not_when_records_are_asked_for(kind: str) -> None:
    options, message = CALLS[kind]
    with pytest.raises(RingfenceError, match=message):
        rf.certify(Bright(), X, **options)


def test_everything_that_is_wrong_is_told_together() -> None:
    with pytest.raises(Problems) as told:
        rf.certify(Bright(), 3, sigma=-1, radius=0.5, procedure=rf.Fixed())
    assert len(told.value.problems) == 3


def test_progress_is_told_to_callbacks_and_to_logging(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    heard: list[rf.Progress] = []
    inner: list[rf.Progress] = []
    with caplog.at_level(logging.INFO, "ringfence"):
        rf.certify(
            Bright(),
            (X, Y),
            sigma=0.25,
            radius=0.5,
            out=tmp_path / "x",
            on_progress=heard.append,
            execution=rf.Execution(device="cpu", batch=100, on_progress=inner.append),
        )
    assert heard[-1].inputs == 8
    assert inner == heard
    assert "certify/certified_accuracy_at_0.5 1" in caplog.text


def test_a_stream_that_is_read_once_can_be_certified() -> None:
    def stream() -> Iterator[tuple[Tensor, int]]:
        yield from zip(X, Y.tolist(), strict=True)

    assert len(list(rf.certify(Bright(), stream(), sigma=0.25, radius=0.5, execution=FAST))) == 8


# Answers


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_answers_are_what_was_proved(run: rf.Run, tmp_path: Path) -> None:
    rows = read(run.csv(tmp_path / "answers.csv"))
    assert [int(row["id"]) for row in rows] == list(range(8))
    for row, record in zip(rows, run, strict=True):
        assert float(row["radius"]) == record.radius
        assert float(row["p_a"]) == record.p_a
        assert (int(row["label"]), int(row["prediction"])) == (record.label, record.prediction)
        assert (int(row["draws"]), row["correct"], row["sound"]) == (record.draws, "1", "1")
        assert row["norm"] == record.norm == "l2"


def test_answers_name_the_norm_of_their_radii(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"noise": rf.Uniform(0.25), "radius": 0.1, "execution": FAST}
    run = rf.certify(Bright(), (X, Y), out=tmp_path / "x", **settings)
    assert {row["norm"] for row in run.rows()} == {"l1"}
    assert set(run.frame()["norm"]) == {"l1"}
    assert {row["norm"] for row in read(run.csv(tmp_path / "a.csv"))} == {"l1"}
    assert list(run.rows()[0])[-1] == "norm"  # whoever counts columns finds the others where they were
    (shown,) = {row["norm"] for row in rf.Run(run.folder.in_norm(InNorm("linf"))).rows()}
    assert shown == "linf"


def test_no_name_is_a_formula_or_a_line_of_its_own(tmp_path: Path) -> None:
    names = ["=HYPERLINK(1)", "+1+1", "@SUM(A1)", "-2+3", "plain.png", 'a "quoted", name', "two\nlines", "=1\r"]
    data = [(x, int(y), name) for x, y, name in zip(X, Y, names, strict=True)]
    rf.certify(Bright(), data, sigma=0.25, procedure=rf.Fixed(n0=10, n=50), execution=FAST, out=tmp_path / "x")
    export_csv(rf.load(tmp_path / "x").folder, tmp_path / "answers.csv")
    written = [row["name"] for row in read(tmp_path / "answers.csv")]
    assert written[:6] == ["'=HYPERLINK(1)", "'+1+1", "'@SUM(A1)", "'-2+3", "plain.png", 'a "quoted", name']
    assert written[6:] == ["two\\nlines", "'=1\\r"]


def test_unlabelled_answers_leave_cells_empty(tmp_path: Path) -> None:
    rf.certify(Bright(), X[:2], sigma=0.25, procedure=rf.Fixed(n0=10, n=50), execution=FAST, out=tmp_path / "x")
    assert [(row["label"], row["correct"]) for row in read(rf.load(tmp_path / "x").csv(tmp_path / "a.csv"))] == [
        ("", "")
    ] * 2


def called(*words: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.output


USUAL = ["certify", "--sigma", "0.5", "--n0", "20", "--n", "100", "--batch", "100", "--device", "cpu"]


def test_the_command_line_writes_and_shows_answers(tmp_path: Path) -> None:
    told = called(*USUAL, "--limit", "4", "--out", tmp_path / "few", "--csv", tmp_path / "answers.csv")
    assert "Answers" in told
    assert "default/60" in told
    assert len(read(tmp_path / "answers.csv")) == 4
    printed = called("export", "csv", tmp_path / "few")
    assert printed == (tmp_path / "answers.csv").read_text()
    called("export", "csv", tmp_path / "few", "--out", tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_text() == printed
    assert "Answers" not in called(*USUAL, "--limit", "4", "--out", tmp_path / "few", "--quiet")
    assert "Answers" not in called(*USUAL, "--limit", "4", "--out", tmp_path / "few", "--json")
    many = called(*USUAL, "--limit", "21", "--out", tmp_path / "many")
    assert "Answers" not in many


def test_a_table_never_shows_more_than_was_proved() -> None:
    from ringfence.cli.console import PlainConsole
    from ringfence.cli.tables import answers_table

    row = {"name": "a", "id": 0, "lane": "main", "label": None, "prediction": -1, "correct": None}
    console = PlainConsole()
    with console.capture() as shown:
        console.print(answers_table([row | {"radius": 0.5999999, "p_a": 0.9999999, "draws": 1000, "sound": True}]))
    assert "0.599" in shown.get()
    assert "0.600" not in shown.get()
    assert "0.999" in shown.get()
    assert "abstained" in shown.get()


WRONG_COMMANDS: dict[str, tuple[list[str], str]] = {
    "floats from 0 to 255": (["--data", "loud.npz"], "Give --range 0..255"),
    "normalised": (["--data", "normal.npz"], "as --mean and --std"),
    "guesses": (["--data", "shuffled.npz"], "--no-check"),
    "labels from 1": (["--data", "from_one.npz"], "Labels seem to count from 1"),
    "a strange range": (["--range", "255"], "--range: must be LOW..HIGH"),
    "a strange logger": (["--log", "paper"], "must be one of logging, wandb, mlflow; got 'paper'"),
}


@pytest.fixture(scope="module")
def wrong_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong")
    digits = rf.load_dataset("default", limit=40)
    x, y = np.stack([one.x.numpy() for one in digits]), np.array(digits.labels)
    np.savez(folder / "loud.npz", x=np.round(255 * x), y=y)
    np.savez(folder / "normal.npz", x=(x - 0.1307) / 0.3081, y=y)
    np.savez(folder / "shuffled.npz", x=x, y=(y * 3 + 5) % 10)
    np.savez(folder / "from_one.npz", x=x[y < 9], y=y[y < 9] + 1)
    return folder


@pytest.mark.filterwarnings("ignore:.*inputs range over")
@pytest.mark.parametrize("kind", WRONG_COMMANDS)
def test_wrong_units_on_the_command_line(
    kind: str, wrong_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, message = WRONG_COMMANDS[kind]
    monkeypatch.chdir(wrong_data)
    told = " ".join(called(*USUAL, *words, "--out", tmp_path / "x", code=2).split())
    assert message in told, told
    assert not (tmp_path / "x").exists()


def test_no_check_and_range_go_on(wrong_data: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore"):
        called(*USUAL, "--data", wrong_data / "shuffled.npz", "--no-check", "--limit", "2", "--out", tmp_path / "a")
        called(*USUAL, "--data", wrong_data / "loud.npz", "--range", "0..255", "--limit", "2", "--out", tmp_path / "b")
    assert rf.load(tmp_path / "b").metrics()[0].accuracy == 1.0
    called(*USUAL, "--no-check", "--save", tmp_path / "job.yaml", "--out", tmp_path / "c")
    assert "check: false" in (tmp_path / "job.yaml").read_text()


def test_record_correct_is_none_without_a_label_and_false_of_an_abstention() -> None:
    (unlabelled,) = rf.certify(Bright(), X[:1], sigma=0.25, procedure=rf.Fixed(n0=10, n=50), execution=FAST)
    assert unlabelled.correct is None
    assert replace(unlabelled, label=-1, prediction=-1).correct is False


def test_wrong_words_for_arguments_of_a_run(run: rf.Run) -> None:
    with pytest.raises(ArgumentError, match="must be ACCURACY@RADIUS"):
        run.gate("sixty percent")
    with pytest.raises(ArgumentError, match=r"must be ACCURACY@RADIUS, two numbers; got '0\.6'"):
        run.gate(0.6)  # type: ignore[arg-type]


def test_a_run_is_plotted_beside_others(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    log = Path(__file__).parent / "fixtures" / "cohen" / "cifar10_noise_0.25_sigma_0.25"
    run = rf.certify("default", rf.Data("default", limit=3), sigma=0.5, n=200, out=tmp_path / "mine", progress=False)
    picture = run.plot(tmp_path / "curve.svg", beside={"Cohen et al.": log})
    assert picture._repr_svg_() == (tmp_path / "curve.svg").read_text()
    assert "Cohen et al." in picture.svg
    assert "mine" in picture.svg
    assert "Cohen" not in run.plot().svg
    with pytest.raises(rf.errors.ArgumentError, match=r"must end in \.png"):
        run.plot(tmp_path / "curve.gif")
