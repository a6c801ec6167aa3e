"""Runs with exact noise: what their folders say, that they verify, and that nothing else continues them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from configs import small_config
from PIL import Image
from pydantic import ValidationError
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset
from typer.testing import CliRunner

import ringfence as rf
from ringfence.attack_job import AttackJob
from ringfence.attacks import ORDERS
from ringfence.attacks.on_run import attacked_points, run_attack
from ringfence.cli import app
from ringfence.data import Input
from ringfence.errors import ArgumentError, DataError, StoreError
from ringfence.job_file import Job
from ringfence.noise.exact import inside
from ringfence.procedures import Procedure
from ringfence.sampling import ForwardPlan
from ringfence.serve.stored import kept_inputs
from ringfence.store import RunConfig, StoreWarning
from ringfence.store.claims import given_in

FAST = rf.Execution(device="cpu", plan=ForwardPlan(100))
EXACT = rf.Gaussian(0.5, "exact")
TESTS: dict[str, Procedure] = {
    "fixed": rf.Fixed(n=300),
    "sequential": rf.Sequential(0.2, n=1000),
    "anytime": rf.Anytime(n=500),
}


def value(noise: rf.Gaussian = EXACT, procedure: Procedure | None = None) -> rf.Certification:
    data = rf.Data("default", limit=3)
    return rf.Certification("default", data, noise=noise, procedure=procedure or TESTS["fixed"])


@pytest.mark.parametrize("name", TESTS)
def test_a_run_says_what_was_drawn_and_verifies(name: str, tmp_path: Path) -> None:
    run = value(procedure=TESTS[name]).run(tmp_path / "run", FAST)
    told = run.config.noise.model_dump()
    assert told == {"family": "gaussian", "sigma": 0.5, "form": "exact", "lattice": 255, "coordinates": 784}
    assert given_in(run.config).law == EXACT.law.over(784)
    assert rf.verify(rf.RunFolder.open(tmp_path / "run")) == []
    again = rf.Certification.of(run.config)
    assert again.noise == EXACT
    assert again.config() == run.config


def test_no_other_form_continues_a_run(tmp_path: Path) -> None:
    value().run(tmp_path / "run", FAST)
    for other in (rf.Gaussian(0.5, "float"), rf.Gaussian(0.5, "exact", 510)):
        with pytest.raises(StoreError, match=r"noise\.lattice: (None|510) now, 255 in the run"):
            value(other).run(tmp_path / "run", FAST)
    assert len(value().run(tmp_path / "run", FAST).read()) == 3


def test_float_runs_are_stored_as_they_were_before_there_was_another_form() -> None:
    config = small_config()
    assert config.noise.model_dump() == {"family": "gaussian", "sigma": 0.5, "form": "float", "lattice": None}
    assert given_in(config).law.slack == 0


@pytest.mark.parametrize(
    "noise",
    [
        {"form": "exact", "lattice": 255},
        {"form": "exact", "coordinates": 784},
        {"form": "float", "lattice": 255},
        {"form": "float", "coordinates": 1},
    ],
)
def test_a_config_has_lattice_and_coordinates_with_exact_noise_and_with_no_other(noise: dict[str, object]) -> None:
    """Without its lattice a report would promise more than lattice points; float noise has no coordinates that an l1
    radius could be converted by."""
    content = small_config().model_dump()
    content["noise"] = {"sigma": 0.5, **noise}
    with pytest.raises(ValidationError, match="exact noise has a lattice and the number of coordinates"):
        RunConfig.model_validate(content)


def test_flags_and_files_say_the_form(tmp_path: Path) -> None:
    def call(command: str, *words: object) -> str:
        done = CliRunner().invoke(app, [command, *map(str, words)])
        assert done.exit_code == 0, done.output
        return " ".join(done.output.split())

    flags = ("--sigma", 0.5, "--limit", 2, "--n", 200, "--batch", 100, "--device", "cpu")
    told = call("certify", *flags, "--noise-form", "exact", "--out", tmp_path / "flags")
    assert "among inputs in whole steps of 1/255" in told  # nothing is claimed about others
    call("certify", *flags, "--noise-form", "exact", "--out", tmp_path / "file", "--save", tmp_path / "job.yaml")
    call("certify", tmp_path / "job.yaml")
    told = call("certify", tmp_path / "job.yaml", "--noise-form", "float", "--out", tmp_path / "float")
    assert "among inputs" not in told
    call("predict", *flags, "--noise-form", "exact", "--lattice", 510, "--out", tmp_path / "fine")
    noises = {name: rf.RunFolder.open(tmp_path / name).config.noise for name in ("flags", "file", "float", "fine")}
    assert noises["flags"] == noises["file"]
    assert {name: (one.form, one.lattice) for name, one in noises.items()} == {
        "flags": ("exact", 255),
        "file": ("exact", 255),
        "float": ("float", None),
        "fine": ("exact", 510),
    }
    call("verify", tmp_path / "flags")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--noise-form", "fixed"), "--noise-form: must be float or exact"),
        (("--lattice", "255"), "--lattice: is for exact noise alone"),
        (("--noise-form", "exact", "--lattice", "0"), "--lattice: must be a whole number"),
        (
            ("--noise-form", "exact", "--model", "patches(default, resize=30, size=28, count=4, noise=patch)"),
            "lift",
        ),
    ],
)
def test_what_cannot_be_exact_is_refused_before_anything_runs(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    out = ("--sigma", "0.5", "--limit", "2", "--n", "200", "--out", str(tmp_path / "run"))
    done = CliRunner().invoke(app, ["certify", *words, *out])
    assert done.exit_code != 0
    assert said in " ".join(done.output.split())
    assert not (tmp_path / "run").exists()


def test_verify_knows_what_the_correction_costs(tmp_path: Path) -> None:
    """The same counts under a config with more coordinates than the input has prove less, and verify says so."""
    run = value(procedure=rf.Fixed(n=1000)).run(tmp_path / "run", FAST)
    given = given_in(run.config)
    wide = given_in(
        RunConfig.model_validate(
            run.config.model_dump() | {"noise": run.config.noise.model_dump() | {"coordinates": 2**40}}
        )
    )
    for one in run.read():
        assert given.radius(one.p_a, one.p_b) == one.radius  # type: ignore[arg-type]
        assert one.radius == 0 or wide.radius(one.p_a, one.p_b) < one.radius - 1e-9  # type: ignore[arg-type]


def test_attacks_on_exact_runs_try_lattice_points_inside_the_ball() -> None:
    job = AttackJob(Path("run"), steps=5, copies=4, device="cpu")
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 3))
    x = torch.randint(0, 256, (6, 3, 4, 4)) / 255
    items = [Input(number, one, 0, str(number)) for number, one in enumerate(x)]
    radii = [0.3, 0.03, 0.01, 0.004, 0.2, 1.0]  # at 0.004 one coordinate alone can move, by one step
    points = attacked_points(job, net, items, radii, rf.Gaussian(0.25, "exact"), torch.device("cpu"))
    floats = attacked_points(job, net, items, radii, rf.Gaussian(0.25), torch.device("cpu"))
    for point, near, item, radius in zip(points, floats, items, radii, strict=True):
        steps = point * 255
        assert torch.allclose(steps, steps.round(), atol=1e-3)
        assert float((point.double() - item.x.double()).norm()) <= radius * (1 + 1e-4)
        assert float((near * 255 - (near * 255).round()).abs().max()) > 0.01
    assert float((points[0].double() - x[0].double()).norm()) > 0.25  # rounding leaves most of the attack


def test_attacks_on_exact_l1_runs_try_lattice_points_inside_the_l1_ball() -> None:
    job = AttackJob(Path("run"), attack="pgd-l1", steps=5, copies=4, device="cpu")
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 3))
    x = torch.randint(0, 256, (4, 3, 4, 4)) / 255
    items = [Input(number, one, 0, str(number)) for number, one in enumerate(x)]
    radii = [0.3, 0.03, 0.004, 1.0]
    for point, item, radius in zip(
        attacked_points(job, net, items, radii, rf.Laplace(0.25, "exact"), torch.device("cpu")),
        items,
        radii,
        strict=True,
    ):
        assert torch.allclose(point * 255, (point * 255).round(), atol=1e-3)
        assert 0 < float((point.double() - item.x.double()).abs().sum()) <= radius * (1 + 1e-4)


def test_a_point_whose_nearest_lattice_point_is_outside_is_rounded_towards_the_centre() -> None:
    centre = torch.full((100,), 100 / 255)
    point = centre + 0.9 / 255
    for radius, steps in ((10.1 / 255, 1), (9.5 / 255, 0)):
        found = inside(point, centre, radius, 255)
        assert torch.equal(found, torch.full((100,), 100.0 + steps) * (1 / 255))


def test_the_same_in_l1_where_a_hundred_steps_are_a_hundred_steps_away() -> None:
    centre = torch.full((100,), 100 / 255)
    for radius, steps in ((100.1 / 255, 1), (10.1 / 255, 0)):
        found = inside(centre + 0.9 / 255, centre, radius, 255, ORDERS["l1"])
        assert torch.equal(found, torch.full((100,), 100.0 + steps) * (1 / 255))


def test_an_exact_run_is_attacked_with_its_own_noise(tmp_path: Path) -> None:
    value().run(tmp_path / "run", FAST)
    job = AttackJob(tmp_path / "run", radii=(0.25,), steps=2, copies=2, n=100, recheck=100, device="cpu")
    result, points = run_attack(job)
    assert (result.inputs, result.broken, points) == (3, (), {})


# The form that nobody named ----------------------------------------------------------------------------------------


def npz(path: Path, x: object) -> str:
    np.savez(path, x=np.asarray(x))
    return str(path)


OPEN = rf.Gaussian(0.5)
EIGHT_BIT = np.random.default_rng(0).integers(0, 256, (3, 28, 28), np.uint8)
LIFTED = "patches(default, resize=30, size=28, count=4, noise=patch)"


def test_noise_on_eight_bit_inputs_is_exact_unless_said_otherwise(tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for number, one in enumerate(EIGHT_BIT):
        Image.fromarray(one).save(pictures / f"{number}.png")
    forms = {
        source: rf.Certification("default", rf.Data(source), noise=OPEN).config().noise.form
        for source in (
            "default",
            str(pictures),
            npz(tmp_path / "bytes.npz", EIGHT_BIT),
            npz(tmp_path / "numbers.npz", EIGHT_BIT / np.float32(255)),
        )
    }
    assert list(forms.values()) == ["exact", "exact", "exact", "float"]
    data = rf.Data("default", limit=1)
    assert rf.Certification(LIFTED, data, noise=OPEN).config().noise.form == "float"
    assert rf.Certification("default", data, noise=rf.Gaussian(0.5, "float")).config().noise.form == "float"
    assert rf.Certification("default", data, noise=rf.Gaussian(9.0)).config().noise.form == "float"  # too many cells


def test_a_network_of_the_program_on_eight_bit_inputs_sees_lattice_points() -> None:
    net, few = nn.Sequential(nn.Flatten(), nn.Linear(784, 3)), rf.Fixed(n=200)

    def votes(noise: rf.Gaussian) -> list[list[int]]:
        found = rf.certify(net, rf.Data("default", limit=2), noise=noise, procedure=few, execution=FAST, check=False)
        return [stage.cells["votes"].tolist() for record in found for stage in record.stages]

    assert votes(OPEN) == votes(EXACT) != votes(rf.Gaussian(0.5, "float"))


def test_an_open_form_continues_a_run_in_its_own(tmp_path: Path) -> None:
    for name, noise in (
        ("float", rf.Gaussian(0.5, "float")),
        ("exact", rf.Gaussian(0.5, "exact", 510)),
        ("open", OPEN),
    ):
        config = value(noise).run(tmp_path / name, FAST).config
        assert value(OPEN).run(tmp_path / name, FAST).config == config
        assert "auto" not in (tmp_path / name / "config.json").read_text()
    content = json.loads((tmp_path / "float" / "config.json").read_text())
    del content["noise"]["form"]  # as they were before there was another
    assert Job.of(content).certification.noise == rf.Gaussian(0.5, "float")
    assert Job.of({"noise": {"sigma": 0.5}}).certification.noise == OPEN


def test_inputs_off_the_lattice_fail_one_by_one_with_their_reason(tmp_path: Path) -> None:
    x = EIGHT_BIT / np.float32(255)
    x[1, 3, 3] += 0.001
    data = npz(tmp_path / "some.npz", x)
    made = rf.Certification("default", rf.Data(data), noise=EXACT, procedure=rf.Fixed(n=200))
    with pytest.warns(StoreWarning, match="2 of 3 inputs are there|input 1 failed"):
        run = made.run(tmp_path / "run", FAST)
    assert [one.input_id for one in run.read()] == [0, 2]
    assert "lattice of step 1/255; got 1 of 784 values off it" in run.failed[1]
    with pytest.raises(DataError, match=r"some/1: exact noise needs inputs on the lattice"):
        list(made.stream(FAST))
    everywhere = npz(tmp_path / "all.npz", x * np.float32(0.999))
    with pytest.raises(DataError, match=r"must have inputs that can be read; got all/0: exact noise needs"):
        rf.Certification("default", rf.Data(everywhere), noise=EXACT).run(tmp_path / "none", FAST)
    assert not (tmp_path / "none").exists()


class Bytes(TorchDataset[Any]):
    """Bytes with labels, as a program has them."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return torch.from_numpy(self.x[index]), 1


@pytest.mark.parametrize(
    "given", ["array", "tensor", "pair", "list", "rows", "columns", "pictures", "dataset", "loader", "mappings"]
)
def test_bytes_of_a_program_get_exact_noise_streamed_and_in_a_folder_alike(given: str, tmp_path: Path) -> None:
    x = EIGHT_BIT[:, None]
    forms: dict[str, Any] = {"array": x, "tensor": torch.from_numpy(x), "pair": (x, np.array([1, 2, 3]))}
    forms |= {"list": list(torch.from_numpy(x)), "rows": [(one, 1) for one in x], "columns": {"x": x, "y": np.ones(3)}}
    forms |= {"dataset": Bytes(x), "loader": DataLoader(Bytes(x), batch_size=2)}
    forms["mappings"] = DataLoader(
        Bytes(x), batch_size=2, collate_fn=lambda rows: [{"x": one, "y": y} for one, y in rows]
    )
    forms["pictures"] = [Image.fromarray(one[0]) for one in x]
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 4))
    value = rf.Certification(net, forms[given], noise=rf.Gaussian(0.5), procedure=rf.Fixed(n0=10, n=60))
    execution = rf.Execution("cpu", batch=10, check=False)
    run = value.run(tmp_path / "run", execution)
    assert run.config.noise.form == "exact"
    streamed = [[stage.cells["votes"].tolist() for stage in one.stages] for one in value.stream(execution)]
    assert streamed == [[stage.cells["votes"].tolist() for stage in one.stages] for one in run.read()]


def test_one_float_among_bytes_gets_float_noise() -> None:
    mixed = [torch.zeros(1, 2, 2, dtype=torch.uint8), torch.zeros(1, 2, 2)]
    for source in (mixed, mixed[::-1], []):
        assert rf.Data(source).on_lattice()[1] is None
        assert rf.Data(source).load().lattice is None


def test_a_stream_that_turns_from_bytes_to_floats_is_refused_with_the_form_to_ask_for() -> None:
    """It was begun with exact noise, by its first input; nobody could know."""
    rows = iter([torch.zeros(1, 2, 2, dtype=torch.uint8), torch.full((1, 2, 2), 0.123)])
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    with pytest.raises(DataError, match=r"input 1: exact noise needs inputs on the lattice.*form='float'"):
        list(rf.certify(net, rows, sigma=0.5, procedure=rf.Fixed(n0=10, n=60), execution=FAST, check=False))


def test_coordinates_that_the_inputs_do_not_have_are_found(tmp_path: Path) -> None:
    """By their number radii are converted to other norms."""
    data = rf.Data(npz(tmp_path / "few.npz", EIGHT_BIT))
    made = rf.Certification("default", data, noise=EXACT, procedure=rf.Fixed(n=200))
    run = made.run(tmp_path / "run", FAST)
    assert rf.verify(run) == []
    run.write_summary((run.summary() or {}) | {"shape": [1, 1, 1]})
    assert [(one.what, one.stored, one.recomputed) for one in rf.verify(run)] == [("noise.coordinates", 784, 1)]


@pytest.mark.parametrize("shape", [["a", "b"], [[1], [2]], [None, 2], [0, 784], [True], "x", {}])
def test_a_shape_that_is_none_is_not_multiplied(shape: object, tmp_path: Path) -> None:
    data = rf.Data(npz(tmp_path / "few.npz", EIGHT_BIT))
    made = rf.Certification("default", data, noise=EXACT, procedure=rf.Fixed(n=200))
    run = made.run(tmp_path / "run", FAST)
    run.write_summary((run.summary() or {}) | {"shape": shape})
    assert rf.verify(run) == []
    assert kept_inputs(run) is not None, "its pictures tell the shape"


@pytest.mark.parametrize("sigma", [1e10, 1e308])
def test_noise_that_float32_cannot_hold_is_refused(sigma: float) -> None:
    with pytest.raises(ArgumentError, match="sigma: must be at least 1e-12 and at most 1e"):
        rf.Gaussian(sigma)
