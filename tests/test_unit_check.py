"""The unit check: data and model that are hardly made for each other are refused, with what is probably meant."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.errors import ClassifierError, DataError
from ringfence.unit_check import LOOKED_AT, NoiseWarning

DIGITS = rf.load_dataset("default", limit=48)
X = torch.stack([one.x for one in DIGITS])
Y = torch.tensor(DIGITS.labels)
FAST = rf.Execution(device="cpu", batch=50)
TEST = rf.Fixed(n0=10, n=20)


class Colours(nn.Module):
    """The class is the brightest of three channels, once they are brought to what the network was trained on."""

    def __init__(self, before: Callable[[Tensor], Tensor] = lambda x: x, shift: int = 0, channel: int = -3) -> None:
        super().__init__()
        self.before, self.shift, self.channel = before, shift, channel

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x)
        # Outside the range that it knows it answers the same to everything.
        known = ((x.amin((1, 2, 3)) > -0.2) & (x.amax((1, 2, 3)) < 1.2) & (x.amax((1, 2, 3)) > 0.72)).float()[:, None]
        scores = 40 * x.mean((2, 3)) * known
        return torch.cat([scores, torch.full((len(x), 1), 1.0)], 1).roll(self.shift, 1)


def coloured(count: int = 32) -> tuple[Tensor, Tensor]:
    """Pictures (3, 8, 8) in [0, 1] of one bright channel, and which it is."""
    generator = torch.Generator().manual_seed(1)
    y = torch.arange(count) % 3
    x = 0.2 + 0.1 * torch.rand(count, 3, 8, 8, generator=generator)
    x[torch.arange(count), y] += 0.6
    return x, y


def certified(net: Any, data: Any, **more: Any) -> list[rf.Record]:
    options = {"noise": rf.Gaussian(0.05), "procedure": TEST, "execution": FAST} | more
    return list(rf.certify(net, data, **options))


def test_a_network_and_data_that_fit_are_certified_in_silence_and_the_same_as_without_a_check() -> None:
    x, y = coloured()
    with warnings.catch_warnings(action="error"):
        checked = certified(Colours(), (x, y))
    unchecked = certified(Colours(), (x, y), execution=replace(FAST, check=False))
    assert all(record.correct for record in checked)
    assert [(one.input_id, one.radius, one.p_a) for one in checked] == [
        (one.input_id, one.radius, one.p_a) for one in unchecked
    ]


MEAN, STD = (torch.tensor(one).view(-1, 1, 1) for one in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
WRONG: dict[str, tuple[Callable[[Tensor], Tensor], str, str]] = {
    "floats from 0 to 255": (lambda x: (255 * x).round(), "look like pixels from 0 to 255", "Give `range` 0..255"),
    "other floats": (lambda x: 9 * x, "pixels on another scale", "or divide by"),
    "normalised": (lambda x: (x - MEAN) / STD, "look normalised already", "rf.normalize"),
    "from -1 to 1": (
        lambda x: 2 * (x - x.min()) / (x.max() - x.min()) - 1,
        "pixels from -1 to 1",
        "Give `range` -1..1",
    ),
    "divided twice": (lambda x: x / 255, "divided by 255 twice", "leave out `range`"),
    "channels last": (lambda x: x.permute(0, 2, 3, 1), "channels must come first", "permute"),
    "not finite": (lambda x: x.where(x < 0.85, torch.nan), "must be finite", "Remove the inputs"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_inputs_in_other_units_are_named_with_what_to_pass(kind: str) -> None:
    change, named, remedy = WRONG[kind]
    x, y = coloured()
    with pytest.raises(DataError) as told:
        certified(Colours(), (change(x), y))
    assert named in str(told.value), told.value
    assert remedy in str(told.value), told.value


@pytest.mark.filterwarnings("ignore:.*inputs range over")
def test_whoever_insists_goes_on() -> None:
    x, y = coloured()
    assert len(certified(Colours(), (255 * x, y), execution=replace(FAST, check=False))) == len(x)
    assert len(certified(Colours(), (255 * x, y), check=False)) == len(x)


def test_a_range_maps_the_values_to_pixels() -> None:
    x, y = coloured()
    plain, ranged = certified(Colours(), (x, y)), certified(Colours(), rf.Data((2 * x - 1, y), range="-1..1"))
    assert [one.prediction for one in plain] == [one.prediction for one in ranged]
    assert all(one.correct for one in ranged)


GUESSES: dict[str, tuple[nn.Module, int, str]] = {
    "ImageNet": (Colours(lambda x: x * STD + MEAN), 0, "Give `mean` 0.485,0.456,0.406 and `std` 0.229,0.224,0.225"),
    "bytes": (Colours(lambda x: x / 255), 0, "that of pixels from 0 to 255"),
    "labels from 1": (Colours(), 1, "Labels seem to count from 1: subtract 1"),
    "classes from 1": (Colours(shift=1), 0, "network's classes from 1: add 1"),
    "normalised twice": (Colours(lambda x: (x - 0.5) / 0.5), 0, "Leave out `mean` and `std`"),
    "nothing known": (Colours(lambda x: 0 * x), 0, "in the order of their names do (labels here are 0 to 2)"),
}


@pytest.mark.parametrize("kind", GUESSES)
def test_guesses_are_refused_and_explained_where_a_usual_mistake_explains_them(kind: str) -> None:
    net, shift, told = GUESSES[kind]
    x, y = coloured()
    with pytest.raises(DataError, match="must be classified better than by guessing") as error:
        certified(net, (x, y + shift if kind != "nothing known" else y.flip(0)))
    assert told in str(error.value), error.value
    assert "`check=False`" in str(error.value)


def test_classes_in_another_order_are_told_from_a_guess() -> None:
    """As of a network whose classes were numbered by a list, and not by the names of folders."""
    x, y = coloured()
    order = torch.tensor([1, 2, 0])
    with pytest.raises(DataError, match=r"numbers its classes otherwise \(label 0 is its 2, 1 is its 0, 2 is its 1"):
        certified(Colours(), (x, order[y]))
    with pytest.raises(DataError, match="or have learned too little"):  # two of each may have an order by chance
        certified(Colours(), (x[:6], order[y[:6]]))


def test_blue_before_red_and_folders_in_another_order_are_both_told_where_both_explain_it() -> None:
    x, y = coloured()
    x, y = x[y != 1], y[y != 1]
    with pytest.raises(
        DataError, match=r"blue, green, red: .*21 of 21 would be right\. Or else: The network numbers its"
    ):
        certified(Colours(), (x, 2 - y))


def test_a_network_that_answers_nothing_but_nan_is_told_so_and_not_to_be_normalised() -> None:
    x, y = coloured()
    with pytest.raises(
        ClassifierError, match="must return finite scores; got NaN or infinite scores for all 32 inputs"
    ):
        certified(Colours(lambda x: x * float("nan")), (x, y))


def test_labels_outside_the_classes_are_named() -> None:
    x, y = coloured()
    with pytest.raises(DataError, match=r"labels must be 0 to 3 .*label 4 .*count from 1: subtract 1"):
        certified(Colours(), (x, torch.arange(32) % 4 + 1))
    with pytest.raises(DataError, match=r"label 9 .*choose the model that belongs to this data"):
        certified(Colours(), (x, y + 9))


@pytest.mark.parametrize("how", ["stream", "run"])
def test_classes_that_the_network_numbers_otherwise_are_named(tmp_path: Path, how: str) -> None:
    """Folders are numbered by their names, networks of transformers by id2label: a few exchanged classes cost little
    accuracy, and every answer would bear another's name."""
    from PIL import Image

    x, y = coloured(12)
    for place, (picture, label) in enumerate(zip(x, y, strict=True)):
        folder = tmp_path / "data" / "abc"[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray((picture * 255).byte().permute(1, 2, 0).numpy()).save(folder / f"{place}.png")
    net = Colours()
    out = {} if how == "stream" else {"out": tmp_path / "run"}
    for names in (["A", "c", "b", "none"], ["none", "a", "b", "c"]):
        net.config = SimpleNamespace(id2label=dict(enumerate(names)))
        with pytest.raises(DataError, match=r"must number its classes as the network does; got '[ab]' as"):
            certified(net, str(tmp_path / "data"), **out)
    for names in (["A", "b", "c", "none"], ["LABEL_0", "LABEL_1", "b", "LABEL_3"]):
        net.config = SimpleNamespace(id2label=dict(enumerate(names)))
        assert len(certified(net, str(tmp_path / "data"))) == 12


def test_labels_are_looked_at_in_points_too_but_their_units_are_their_owners() -> None:
    class Sign(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([-x, x], 1)

    points = [(torch.tensor([3.0]), 5)]
    with pytest.raises(DataError, match="labels must be 0 to 1"):
        certified(Sign(), points)
    assert certified(Sign(), [(torch.tensor([3.0]), 1)])[0].correct


class Brittle(nn.Module):
    """Right without noise, and always class 0 where the picture has any."""

    def forward(self, x: Tensor) -> Tensor:
        rough = (x[..., 1:] - x[..., :-1]).abs().mean((1, 2, 3))[:, None] > 0.3
        return torch.where(rough, torch.tensor([1.0, 0, 0]), x.mean((2, 3)))


def test_a_network_that_is_lost_under_noise_is_told_to_be_trained_with_it() -> None:
    x, y = coloured()
    message = r"under noise of sigma 0.5 .*ringfence train --objective gaussian --sigma 0.5 .*denoised\("
    with pytest.warns(NoiseWarning, match=message):
        certified(Brittle(), (x, y), noise=rf.Gaussian(0.5))


class Bright(nn.Module):
    """Class 1 where the picture is bright; to pixels that it does not know, class 0."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.mean((1, 2, 3))[:, None]
        light = torch.where((x > 0) & (x < 0.95), x - 0.5, -0.5)
        return torch.cat([-light, light], 1)


def halves(count: int) -> tuple[Tensor, Tensor]:
    """Dark and bright pictures (3, 8, 8) in turn, and which they are."""
    y = torch.arange(count) % 2
    return (0.2 + 0.6 * y).view(-1, 1, 1, 1).expand(-1, 3, 8, 8).clone(), y


def test_one_answer_to_everything_is_a_guess_though_half_of_two_classes_is_right() -> None:
    x, y = halves(32)
    twice = rf.normalize(Bright(), mean=(0.5,), std=(0.5,))
    with pytest.raises(DataError, match=r"16 of 32 inputs right .*Leave out `mean` and `std`.*32 of 32 would be right"):
        certified(twice, (x - 0.1, y))
    assert len(certified(twice, (x[:14] - 0.1, y[:14]))) == 14  # seven misses are too few to tell
    assert len(certified(Bright(), (x[::2], y[::2]))) == 16  # one class is all there is


@pytest.mark.parametrize("labelled", [True, False])
def test_a_single_probability_is_not_taken_for_a_logit(labelled: bool) -> None:
    """All of it is above 0: every input would be certified as class 1, whatever the network says of it."""
    x, y = halves(30)
    x, y = (x[-12:], y[-12:] * 0 + 1) if labelled else (x, y)  # of one class, so that nothing looks like a guess
    data = (x, y) if labelled else x

    class Single(nn.Module):
        def __init__(self, after: Callable[[Tensor], Tensor]) -> None:
            super().__init__()
            self.after = after

        def forward(self, x: Tensor) -> Tensor:
            return self.after(40 * (x.mean((1, 2, 3)) - 0.5))

    with pytest.raises(
        ClassifierError, match=r"a single output is a logit.*probability; got values from \S+ to \S+\. Leave"
    ):
        certified(Single(torch.sigmoid), data)
    assert len(certified(Single(lambda z: z), data)) == len(x)
    assert {one.prediction for one in certified(Single(torch.sigmoid), data, check=False)} == {1}
    logit, unlike = Single(lambda z: z), Single(torch.sigmoid)
    for vote in (rf.HardVote, rf.SoftmaxVote, partial(rf.KConsensus, agree=2)):
        assert len(certified(vote([logit, logit]), data)) == len(x)
        with pytest.raises(ClassifierError, match=r"a single output is a logit.*probability"):
            certified(vote([logit, unlike]), data)


@pytest.mark.parametrize("folder", [True, False])
@pytest.mark.parametrize("count", [1, 5])
def test_a_single_probability_of_features_is_not_taken_for_a_logit(tmp_path: Path, folder: bool, count: int) -> None:
    """Networks for tables end in a sigmoid more often than others, and few of their inputs tell a probability."""
    torch.manual_seed(3)
    logit = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    nn.init.constant_(logit[-1].bias, 0.5)  # so that it, too, lies between 0 and 1 where the inputs are
    x, out = torch.rand(count, 6), {"out": tmp_path / "run"} if folder else {}
    assert bool(((logit(x) > 0) & (logit(x) < 1)).all())
    for data in (x, (x, torch.ones(count, dtype=torch.int64))):
        with pytest.raises(ClassifierError, match=r"a single output is a logit.*probability"):
            certified(nn.Sequential(logit, nn.Sigmoid()), data, **out)
    assert len(certified(logit, x)) == count


@pytest.mark.parametrize(("scale", "sigma"), [(1e4, 0.25), (1.0, 0.001)])
def test_a_logit_of_features_that_are_large_beside_sigma_is_none(scale: float, sigma: float) -> None:
    """Incomes at a sigma of a quarter: a hundred sigmas from them the logit is what it was, perhaps in [0, 1]."""

    class Scaled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[:, :1] / scale

    x = scale * torch.tensor([[0.5, 1.0], [-0.5, 2.0]])
    assert [one.prediction for one in certified(Scaled(), x, noise=rf.Gaussian(sigma))] == [1, 0]
    with pytest.raises(ClassifierError, match=r"a single output is a logit.*probability"):
        certified(nn.Sequential(Scaled(), nn.Sigmoid()), x, noise=rf.Gaussian(sigma))


def test_a_sum_of_kernels_that_dies_away_is_no_probability() -> None:
    """Of large inputs' size away it is 0 in every direction, and in (0, 1) where the first input is."""

    class Kernels(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            near, far = ((-((x - place) ** 2).sum(1, keepdim=True) / 8).exp() for place in (2.0, -2.0))
            return near - far

    x = torch.tensor([[2.1, 1.9], [-2.1, -1.9]])
    assert [one.prediction for one in certified(Kernels(), x)] == [1, 0]


def test_two_outputs_that_know_one_class_alone_are_not_taken_for_a_single_one() -> None:
    """A tree that is 0 within a small box says (0, 1) of all that is looked at, and so does a vote of two classes."""

    class Box(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            outside = ((x - 3).abs().amax(1) > 1).float()
            return torch.stack([1 - outside, outside], 1)

    assert {one.prediction for one in certified(Box(), torch.zeros(3, 4))} == {1}


def test_numbers_that_swallow_the_noise_are_refused() -> None:
    """Of seconds since 1970 float32 resolves two minutes: every noisy copy is the input, and every answer sure."""

    class Since(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            late = x[:, :1] - 1.6e9
            return torch.cat([-late, late], 1)

    seconds = torch.full((3, 2), 1.6e9)
    with pytest.raises(
        DataError, match=r"noise of sigma 0\.05 is not rounded away in float32; got values up to 1\.6e\+09"
    ):
        certified(Since(), seconds)
    assert len(certified(Since(), seconds, noise=rf.Gaussian(1e5))) == 3
    assert certified(Since(), seconds, check=False)[0].radius > 0  # of what float32 makes of them


@pytest.mark.parametrize("keepdim", [True, False])
@pytest.mark.parametrize("classes", [2, 5])
def test_the_number_of_a_class_is_not_taken_for_a_logit(classes: int, keepdim: bool) -> None:
    """All classes but the first would be one, and radii those of a classifier that nobody has."""

    class Numbered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(6, classes)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x).argmax(1, keepdim=keepdim).float()

    torch.manual_seed(0)
    with pytest.raises(
        ClassifierError, match=r"looks like the number of a class; got whole numbers up to \d\. Return a"
    ):
        certified(Numbered(), torch.randn(5, 6))


def test_a_network_behind_a_normalisation_is_not_told_to_have_another() -> None:
    class Threshold(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            light = x.mean((1, 2, 3))[:, None] - 0.5
            return torch.cat([-light, light], 1)

    x, y = halves(32)
    with pytest.raises(DataError, match=r"inputs right without any noise\. Leave out `mean` and `std`"):
        certified(rf.normalize(Threshold(), mean=(0.5,), std=(0.5,)), (x - 0.1, y))


def test_a_sigma_of_pixels_from_0_to_255_is_told_its_units_and_not_to_train_with_it() -> None:
    x, y = coloured()
    with pytest.warns(NoiseWarning) as told:
        certified(Brittle(), (x, y), noise=rf.Gaussian(25.0))
    [message] = [str(one.message) for one in told if one.category is NoiseWarning]
    assert "give 0.098," in message
    assert "train" not in message


def test_few_inputs_or_none_with_labels_are_no_reason_to_refuse() -> None:
    x, y = coloured()
    net = Colours(lambda one: 0 * one)
    assert len(certified(net, (x[:3], y[:3]))) == 3
    assert len(certified(net, list(x))) == len(x)


ROWS: list[int] = []


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = Colours()

    def forward(self, x: Tensor) -> Tensor:
        ROWS.append(len(x))
        return self.net(x)


def rows_shown(folder: Path, check: bool, data: Sequence[Any]) -> int:
    ROWS.clear()
    value = rf.Certification(Counting(), data, noise=rf.Gaussian(0.05), procedure=TEST)
    value.run(folder, replace(FAST, check=check))
    return sum(ROWS)


def test_it_costs_two_looks_at_a_few_dozen_inputs_and_none_when_a_run_goes_on(tmp_path: Path) -> None:
    x, y = coloured(60)
    data = list(zip(x, y.tolist(), strict=True))
    with_check, without = rows_shown(tmp_path / "a", True, data), rows_shown(tmp_path / "b", False, data)
    assert with_check - without <= 2 * LOOKED_AT + 1
    assert with_check > without
    assert rows_shown(tmp_path / "a", True, data) == rows_shown(tmp_path / "b", False, data)


def test_records_of_a_run_are_the_same_with_a_check_and_without(tmp_path: Path) -> None:
    x, y = coloured()
    data = list(zip(x, y.tolist(), strict=True))
    tables = []
    for name, check in (("a", True), ("b", False)):
        value = rf.Certification(Colours(), data, noise=rf.Gaussian(0.05), procedure=TEST)
        run = value.run(tmp_path / name, replace(FAST, check=check))
        tables.append(run.records().drop(["seconds"]).to_pylist())
    assert tables[0] == tables[1]


def test_bytes_are_pixels_as_they_are_in_files() -> None:
    x, y = coloured()
    as_bytes = (255 * x).round().byte()
    from_bytes, from_floats = certified(Colours(), (as_bytes, y)), certified(Colours(), (as_bytes.float() / 255, y))
    # Bytes get exact noise, whose proof costs a little; the draws are other ones, the units the same.
    assert [one.prediction for one in from_bytes] == [one.prediction for one in from_floats]
    assert [one.radius for one in from_bytes] == pytest.approx([one.radius for one in from_floats], abs=1e-6)
    arrays = certified(Colours(), (as_bytes.numpy(), y.numpy()))
    assert [one.radius for one in arrays] == [one.radius for one in from_bytes]


def test_the_embedded_digits_pass_and_an_npz_in_other_units_does_not(tmp_path: Path) -> None:
    with warnings.catch_warnings(action="error"):
        rf.Certification("default", "default", noise=rf.Gaussian(0.25)).load().check_units("cpu")
    np.savez(tmp_path / "loud.npz", x=255 * X.numpy(), y=Y.numpy())
    value = rf.Certification("default", str(tmp_path / "loud.npz"), noise=rf.Gaussian(0.25), procedure=TEST)
    with pytest.warns(UserWarning, match="inputs range over"), pytest.raises(DataError, match=r"Give `range` 0\.\.255"):
        value.run(tmp_path / "run", FAST)
    with warnings.catch_warnings(action="error"):
        ranged = rf.Certification(
            "default", rf.Data(str(tmp_path / "loud.npz"), range="0..255"), noise=rf.Gaussian(0.25), procedure=TEST
        )
        run = ranged.run(tmp_path / "run", FAST)
    assert run.config.data.range == "0..255"
    assert rf.Certification.of(run.config).config() == run.config
    from ringfence.attacks.target import AttackJob, certification_of, load_inputs

    assert float(load_inputs(certification_of(AttackJob(run.path), run), run)[0].x.max()) <= 1


def test_a_single_nan_is_seen_wherever_it_is() -> None:
    x, y = coloured()
    x[5, 1, 2, 3] = torch.nan
    with pytest.raises(DataError, match="inputs must be finite"):
        certified(Colours(), (x, y))


def test_a_network_that_takes_single_inputs_only_is_left_to_the_run() -> None:
    class One(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if len(x) != 1:
                raise RuntimeError("a batch of one, please")
            return Colours()(x)

    x, y = coloured()
    execution = rf.Execution(device="cpu", batch=1)
    assert len(certified(One(), (x[:2], y[:2]), execution=execution)) == 2


def test_too_few_inputs_to_refuse_are_told_of_where_all_are_wrong() -> None:
    x, y = coloured(2)
    with pytest.warns(NoiseWarning, match="none of the 2 labelled inputs looked at is classified rightly"):
        certified(Colours(shift=1), (x, y))
    with warnings.catch_warnings(action="error"):
        certified(Colours(), (x, y))
        certified(Colours(shift=1), (x[:1], y[:1]))


class Middle(nn.Module):
    """Features -> scores of two classes by the first of them."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([-x[:, 0], x[:, 0]], 1)


@pytest.mark.parametrize(
    ("scales", "told"),
    [
        ((10.0, 9000.0), r"features have deviations from .* and noise of the one sigma 0\.05\. Standardise"),
        ((900.0, 1000.0), r"features have a deviation of about .* sigma 0\.05 is next to nothing\. Standardise"),
        ((1.0, 0.2), None),
        ((5.0, 0.0), None),  # a constant is no scale
    ],
)
@pytest.mark.parametrize("folder", [True, False])
def test_features_that_are_not_standardised_are_warned_of(
    scales: tuple[float, float], told: str | None, folder: bool, tmp_path: Path
) -> None:
    x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor(scales)
    out = {"out": tmp_path / "run"} if folder else {}
    if told is None:
        assert len(certified(Middle(), x, **out)) == 20
        return
    with pytest.warns(NoiseWarning, match=told):
        certified(Middle(), x, **out)
    certified(Middle(), x[:4])  # four rows tell no deviation


@pytest.mark.parametrize(("mean", "std"), [((3.0, 50.0), (2.0, 10.0)), ((3.0,), (2.0,))])
def test_features_are_normalised_each_by_its_own(mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    x = torch.rand(4, 2)
    found = rf.Normalize(nn.Identity(), mean=mean, std=std)(x)
    assert torch.equal(found, (x - torch.tensor(mean)) / torch.tensor(std))


@pytest.mark.parametrize("shape", [(4, 3), (2, 5, 7)])
def test_numbers_that_could_be_taken_for_rows_are_refused(shape: tuple[int, ...]) -> None:
    """Two numbers beside a batch of two sequences would have normalised each sequence by its place in the batch."""
    with pytest.raises(ClassifierError, match=r"mean, std: must match the channels.*or the features"):
        rf.Normalize(nn.Identity(), mean=(0.5, 0.1), std=(1.0, 2.0))(torch.rand(shape))
