"""A run goes on with a network that says what it said, whatever no digest sees."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, NoReturn, final

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.attack_job import AttackJob
from ringfence.attacks.on_run import run_attack
from ringfence.classifiers import Aces, EntropySelector, HardVote, KConsensus, Lanes
from ringfence.data import Dataset, Input
from ringfence.engines.worker import Parcel
from ringfence.errors import ClassifierError, ModelError, StoreError
from ringfence.extending import _imported, load_plugins
from ringfence.lift import Identity, Lift
from ringfence.sampling import Answered, Question
from ringfence.sampling.answers import KEPT, _apart, _usual_gaps
from ringfence.serve.stored import certification_at
from ringfence.stats.noise_law import NoiseLaw
from ringfence.work import Work

SHAPE = (1, 2, 2)
INPUTS = torch.linspace(0.1, 0.9, 20).reshape(5, *SHAPE)
REFUSED = "must say of the same noisy inputs what it said when the run began; got other scores for 8 of 8"
NUMBERS = count()
TOP = """
import functools
import types
from argparse import Namespace
from enum import Enum
import torch
import torch.nn.functional as F
from torch import nn
TWO = 2.0
"""
SCALED = "class Scaled:\n    def __init__(self, k=2.0):\n        self.k = k\n"
SCALED += "    def __call__(self, x):\n        return x * self.k\n"


def network(done: str, beside: str, init: str = "pass") -> nn.Module:
    """A network of a notebook's cell: what its forward does, and what stands beside its class."""
    text = (
        f"{TOP}{beside}\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {init}\n"
    )
    text += f"    def forward(self, x):\n        x = x.flatten(1)\n        {done}\n        return x.cos()\n"
    name, there = f"<answers {next(NUMBERS)}>", dict[str, Any]({"__name__": "a_cell"})
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), there)
    made: nn.Module = there["Net"]()
    return made


FEW = rf.Fixed(n0=4, n=16, alpha=0.1)


def certified(net: nn.Module, out: Path, inputs: Any = INPUTS, **more: Any) -> Any:
    noise = rf.Gaussian(0.25)
    return rf.certify(net, inputs, noise=noise, procedure=FEW, out=out, progress=False, check=False, **more)


CHANGED: dict[str, tuple[str, str]] = {
    "all entries": ("x = torch.mul(x, **there)", "there = {'other': 2.0}"),
    "values": ("x = x * sum(there.values())", "there = {'a': 2.0}"),
    "an entry of an entry": ("x = x * there['a']['b']", "there = {'a': {'b': 2.0}}"),
    "an option of an option": ("x = x * there.a.b", "there = Namespace(a=Namespace(b=2.0))"),
    "entries in a list": ("x = x * there[0]['b']", "there = [{'b': 2.0}]"),
    "an entry beside a counter": ("there['n'] += 1; x = x * there['k']", "there = {'n': 0, 'k': 2.0}"),
    "tensors in a list": ("x = x * there[0]", "there = [torch.tensor(2.0)]"),
    "arguments given before": ("x = there(x)", "there = functools.partial(torch.mul, other=2.0)"),
    "a method": ("x = there(x)", f"{SCALED}there = Scaled(k=2.0).__call__"),
    "an object of an object": ("x = x * there.a.k", f"{SCALED}there = Namespace(a=Scaled(k=2.0))"),
    "a choice": ("x = x * there.value", "class K(Enum):\n    A = 2.0\nthere = K.A"),
    "an operator": ("x = K() * x", "class K:\n    def __mul__(self, x):\n        return x * 2.0"),
    "a module": ("x = x * there.k", "there = types.ModuleType('there')\nthere.k = 2.0"),
    "a variable by its name": ("x = x * globals()['th' + 'ere']", "there = 2.0"),
    "a variable of the surroundings": (
        "import os; x = x * float(os.environ['KIND'])",
        "import os\nos.environ['KIND'] = '2.0'",
    ),
    "a file": (
        "x = x * float(there.read_text())",
        "from pathlib import Path\nthere = Path('setting')\nthere.write_text('2.0')",
    ),
    "a type for all": ("x = x * (TWO if torch.get_default_dtype() is torch.float32 else 1.0)", "TWO = 2.0"),
}


@pytest.fixture(autouse=True)
def aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIND", "2.0")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("kind", CHANGED)
def test_whatever_changes_what_it_says_ends_the_run(kind: str, tmp_path: Path) -> None:
    done, beside = CHANGED[kind]
    certified(network(done, beside), tmp_path / "run")
    certified(network(done, beside), tmp_path / "run")  # the same goes on
    with pytest.raises((ClassifierError, StoreError), match=r"what it said|model changed"):
        certified(network(done, beside.replace("2.0", "3.0")), tmp_path / "run")


NESTED = CHANGED["an entry of an entry"]


def other() -> nn.Module:
    return network(NESTED[0], NESTED[1].replace("2.0", "3.0"))


class Stop(Exception):
    """Stands for a crash."""


def test_a_run_that_was_stopped_goes_on_with_the_same_alone(tmp_path: Path) -> None:
    def stop(record: rf.Record) -> None:
        raise Stop

    with pytest.raises(Stop):
        certified(network(*NESTED), tmp_path / "run", on_record=stop)
    begun = rf.RunFolder.open(tmp_path / "run").done_ids()
    assert 0 < len(begun) < len(INPUTS)
    with pytest.raises(ClassifierError, match=f"{REFUSED}.*anew into another `out`"):
        certified(other(), tmp_path / "run")
    assert rf.RunFolder.open(tmp_path / "run").done_ids() == begun
    certified(network(*NESTED), tmp_path / "run")
    assert len(rf.RunFolder.open(tmp_path / "run").done_ids()) == len(INPUTS)


def test_a_network_that_counted_and_cached_since_goes_on_as_long_as_it_says_the_same(tmp_path: Path) -> None:
    done = "self.calls += 1; self.grid = torch.ones(1) * 2.0 if self.grid is None else self.grid; x = x * self.grid"
    net: Any = network(done, "pass", "self.calls, self.grid = 0, None")
    certified(net, tmp_path / "run")
    net(INPUTS)
    assert net.calls == 1
    certified(net, tmp_path / "run")
    net.grid *= 1.5
    with pytest.raises(ClassifierError, match=REFUSED):
        certified(net, tmp_path / "run")


def test_a_folder_without_records_is_anyones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that failed leaves it behind."""
    value = rf.Certification(network(*NESTED), INPUTS, noise=rf.Gaussian(0.25), procedure=FEW)
    monkeypatch.setattr(Work, "records", crash)
    with pytest.raises(Stop):
        value.run(tmp_path / "run", rf.Execution(check=False))
    monkeypatch.undo()
    assert rf.RunFolder.open(tmp_path / "run").answers() is not None
    certified(other(), tmp_path / "run")
    certified(other(), tmp_path / "run")
    with pytest.raises(ClassifierError, match=REFUSED):
        certified(network(*NESTED), tmp_path / "run")


def crash(work: Work) -> NoReturn:
    raise Stop


def test_a_run_of_an_earlier_version_is_kept_to_from_then_on(tmp_path: Path) -> None:
    def stop(record: rf.Record) -> None:
        raise Stop

    with pytest.raises(Stop):
        certified(network(*NESTED), tmp_path / "run", on_record=stop)
    folder = rf.RunFolder.open(tmp_path / "run")._files
    folder.manifest().with_file("answers.json", None).save(tmp_path / "run")  # which had none
    (tmp_path / "run" / "answers.json").unlink()
    certified(other(), tmp_path / "run")
    with pytest.raises(ClassifierError, match=REFUSED):
        certified(network(*NESTED), tmp_path / "run")


def spoil(answers: Path) -> None:
    answers.write_text("[]")


@pytest.mark.parametrize("lose", [Path.unlink, spoil])
@pytest.mark.parametrize("whole", [True, False])
def test_lost_answers_come_back_from_the_network_that_gave_them_alone(
    lose: Callable[[Path], None], whole: bool, tmp_path: Path
) -> None:
    def stop(record: rf.Record) -> None:
        raise Stop

    run, answers = tmp_path / "run", tmp_path / "run" / "answers.json"
    if whole:
        certified(network(*NESTED), run)
    else:
        with pytest.raises(Stop):
            certified(network(*NESTED), run, on_record=stop)
    before = answers.read_bytes()
    lose(answers)
    said = r"answers\.json: must be as it was written.*same command"
    with pytest.warns(rf.store.StoreWarning), pytest.raises(StoreError, match=said):
        certified(other(), run)
    with pytest.raises(StoreError, match=said):  # nor is it served, or attacked
        rf.RunFolder.open(run).answers()
    assert not answers.exists() or answers.read_bytes() != before
    with pytest.warns(rf.store.StoreWarning, match=r"answers\.json (is missing|was changed)"):
        certified(network(*NESTED), run)
    assert answers.read_bytes() == before
    assert rf.verify(rf.RunFolder.open(run)) == []


def read_by(read: Callable[[int], Tensor]) -> Dataset:
    places = list(range(len(INPUTS)))
    return Dataset("some", places, [None] * 5, places, read, str, SHAPE, lambda: "some", lattice=None)


def losing(lost: set[int]) -> Callable[[int], Tensor]:
    """Reads what is not lost by then."""

    def read(position: int) -> Tensor:
        if position in lost:
            raise OSError("cannot be decoded")
        return INPUTS[position]

    return read


def test_inputs_that_cannot_be_read_today_are_left_out(tmp_path: Path) -> None:
    lost: set[int] = set()
    data = read_by(losing(lost))
    certified(network(*NESTED), tmp_path / "run", data)
    lost |= {0, 3}
    certified(network(*NESTED), tmp_path / "run", data)
    with pytest.raises(ClassifierError, match="other scores for 6 of 6"):  # two of four, and grey ones
        certified(other(), tmp_path / "run", data)


def test_a_run_ends_though_what_was_certified_cannot_be_read_any_more(tmp_path: Path) -> None:
    lost: set[int] = set()

    def stop(record: rf.Record) -> None:
        raise Stop

    data = read_by(losing(lost))
    with pytest.raises(Stop):
        certified(network(*NESTED), tmp_path / "run", data, on_record=stop)
    lost |= {0}
    certified(network(*NESTED), tmp_path / "run", data)
    inputs = rf.RunFolder.open(tmp_path / "run").inputs()
    assert [(one.id, one.name, one.thumbnail is None) for one in inputs] == [
        (place, str(place), place == 0) for place in range(len(INPUTS))
    ]


def test_an_input_that_cannot_be_read_twice_is_no_other(tmp_path: Path) -> None:
    """What was read when the run began is what was asked about."""
    reads = dict[int, int]()

    def read(position: int) -> Tensor:
        reads[position] = reads.get(position, 0) + 1
        if position in (1, 2) and reads[position] == 2:
            raise OSError("busy")
        return INPUTS[position]

    data = read_by(read)
    value = rf.Certification(network(*NESTED), data, noise=rf.Gaussian(0.25), procedure=FEW)
    asked = value.load("cpu").asked("cpu")
    run = rf.RunFolder.create_or_resume(tmp_path / "run", value.load("cpu").config)
    asked.begin(run)
    asked.check(run)
    assert run.answers().inputs == [0, 1, 2, 3, None, None, None, None]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "wrong",
    [
        "[]",
        '{"inputs": [0], "said": 3}',
        '{"inputs": [0]}',
        '{"inputs": [0], "said": []}',
        '{"inputs": [], "said": []}',
        '{"inputs": [-1, 999], "said": [["1 2 3"], ["1 2 3"]]}',
    ],
)
def test_answers_that_are_none_are_refused(wrong: str, tmp_path: Path) -> None:
    certified(network(*NESTED), tmp_path / "run")
    folder = rf.RunFolder.open(tmp_path / "run")
    folder._files.replace("answers.json", wrong.encode())
    with pytest.raises(StoreError, match=r"answers\.json"):
        certified(network(*NESTED), tmp_path / "run")


# What is asked -------------------------------------------------------------------------------------------------------


class Plain(nn.Module):
    """Scores that are steep, and of which an attribute that no digest is asked for makes others."""

    def __init__(self, classes: int = 3, bias: float = 0.0) -> None:
        super().__init__()
        steps = torch.arange(4.0 * classes)
        self.weight, self.bias = nn.Parameter(20 * steps.sin().reshape(classes, 4)), bias

    def forward(self, x: Tensor) -> Tensor:
        scores = x.flatten(1) @ self.weight.T
        return scores + self.bias * nn.functional.one_hot(torch.tensor(0), scores.shape[1])


class Masked(Plain):
    """Of a hundred classes every fifth alone: scores of data sets that share the classes of a larger one."""

    def __init__(self, bias: float, mask: float) -> None:
        super().__init__(100, bias)
        self.mask = mask

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).masked_fill(torch.arange(100) % 5 > 0, self.mask)


class Writing(Plain):
    """Normalises in place."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.sub_(0.5))


class Swapped(Plain):
    """Two neighbours of many classes have changed places."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[:, [1, 0, *range(2, self.weight.shape[0])]]


def question(classes: int = 3) -> Question:
    rows = list(INPUTS) + list(INPUTS[:3])
    return Question.about(rows, rows, rf.Gaussian(0.1), seed=0, classes=classes)


def off(one: nn.Module, two: nn.Module, classes: int = 3) -> bool:
    asked, here = question(classes), torch.device("cpu")
    answered = Answered(asked, asked.ask(one, here))
    answered.check(one, here)
    try:
        answered.check(two, here)
    except ClassifierError:
        return True
    return False


def three(bias: float, place: int = 2) -> list[nn.Module]:
    return [Plain(bias=bias if number == place else 0.0) for number in range(3)]


WRAPPED: dict[str, Callable[[float], nn.Module]] = {
    "a member of a hard vote": lambda bias: Lanes(three(bias), votes=["hard"]),
    "the first of a K-consensus": lambda bias: KConsensus(three(bias, 0), agree=2),
    "the last of a K-consensus, whose first agree": lambda bias: KConsensus(three(bias), agree=2),
    "a member of the core of ACES": lambda bias: Aces(Plain(), EntropySelector(0.5), HardVote(three(bias))),
    "a network beside masked classes": lambda bias: Masked(bias, -1e9),
    "a network beside classes that are left out": lambda bias: Masked(bias, -torch.inf),
    "one that writes into its input": lambda bias: Writing(bias=bias),
    "the core of ACES": lambda bias: Aces(Plain(), EntropySelector(0.5), Plain(bias=bias)),
    "the certification network of ACES": lambda bias: Aces(Plain(bias=bias), EntropySelector(0.5), Plain()),
    "one of a thousand classes": lambda bias: Plain(1000, 20 * bias),
}


@pytest.mark.parametrize("kind", WRAPPED)
def test_every_network_within_is_heard(kind: str) -> None:
    """A hard vote may stay the same where one of its members changed."""
    made = WRAPPED[kind]
    classes = 1000 if "thousand" in kind else 100 if "classes" in kind else 3
    assert off(made(0.0), made(0.5), classes)
    assert not off(made(0.0), made(1e-5), classes)


def test_two_of_many_classes_that_changed_places_are_noticed() -> None:
    assert off(Plain(100), Swapped(100), 100)


def test_the_networks_own_mode_and_type_do_not_matter() -> None:
    assert not off(Plain(), Plain().train().double())


def test_of_many_classes_few_numbers_are_kept() -> None:
    (line,) = question(1000).ask(Plain(1000), torch.device("cpu"))[0]
    assert len(line.split()) == KEPT


def test_a_row_that_makes_it_raise_says_nothing() -> None:
    class Raising(Plain):
        def forward(self, x: Tensor) -> Tensor:
            if x.mean() > 0.5:
                raise ValueError
            return super().forward(x)

    said = question().ask(Raising(), torch.device("cpu"))
    assert {len(lines) for lines in said} == {0, 1}
    assert not off(Raising(), Raising())
    assert off(Raising(), Plain())


@pytest.mark.parametrize(
    ("found", "wanted", "apart"),
    [
        ("1 2 3", "1 2 3", False),
        ("1.0019 2 3", "1 2 3", False),
        ("1.0021 2 3", "1 2 3", True),
        ("0.004 0.004", "0.0035 0.0035", False),
        ("0.005 0.005", "0.0035 0.0035", True),
        ("1 nan 3", "1 nan 3", False),
        ("1 nan 3", "1 2 3", True),
        ("1 2", "1 2 3", True),
        ("nan nan", "nan nan", False),
        ("1 inf 3", "1 -inf 3", True),
        ("1 -inf 3", "1 -inf 3", False),
        ("1 2.1 -1e9", "1 2 -1e9", True),
        ("1 2 -1.0001e9", "1 2 -1e9", False),
        ("1e6 1000001.1 1000002", "1e6 1000001 1000002", False),
        ("1 2", "1 two", True),
    ],
)
def test_rounding_is_excused(found: str, wanted: str, apart: bool) -> None:
    gaps = _usual_gaps([(wanted,)])
    assert _apart((found,), (wanted,), gaps) is apart
    assert _apart((found, wanted), (wanted,), gaps)


def test_one_row_of_many_may_jump_and_the_only_one_may_not() -> None:
    asked, here = question(), torch.device("cpu")
    said = asked.ask(Plain(), here)
    wrong: list[tuple[str, ...]] = [("1 2 3",)]
    Answered(asked, [*wrong, *said[1:]]).check(Plain(), here)
    for places in ([0], [0, 1]):
        some = [(wrong + said[1:])[place] for place in places]
        answered = Answered(asked.of(places), some)
        if len(places) == 1:
            with pytest.raises(ClassifierError, match="1 of 1"):
                answered.check(Plain(), here)
    with pytest.raises(ClassifierError, match="2 of 8"):
        Answered(asked, [*wrong, *wrong, *said[2:]]).check(Plain(), here)


def test_a_worker_elsewhere_must_say_the_same(tmp_path: Path) -> None:
    """Its machine may have another version of a library."""
    asked, here = question(), torch.device("cpu")
    value = rf.Certification(Plain(), INPUTS, noise=rf.Gaussian(0.25), procedure=FEW)
    first = Input(0, INPUTS[0], None, "")
    work = value.work(Plain(), (), Identity(), 3, ("main",), rf.Execution("cpu"))
    answered = Answered(asked, asked.ask(Plain(), here))
    Parcel.of(replace(work, answered=answered), first).unpacked()
    with pytest.raises(ClassifierError, match="8 of 8"):
        Parcel.of(replace(work, classifier=Plain(bias=1.0), answered=answered), first).unpacked()


@final
@dataclass(frozen=True)
class Turned(rf.Noise):
    """Gaussian noise that depends on a variable beside it, as a plugin's on the version that a machine has."""

    name: ClassVar[str] = "turned"
    sigma: float

    @property
    def law(self) -> NoiseLaw:
        return rf.Gaussian(self.sigma).law

    def fill(self, out: Tensor, key: int) -> None:
        rf.Gaussian(self.sigma).fill(out, key + KEYS[0])


KEYS = [0]


@final
@dataclass(frozen=True)
class Weighed(Lift):
    """Loses what all pixels have in common; what it weighs the others with stands beside it."""

    name: ClassVar[str] = "weighed"
    norm_bound: ClassVar[float] = 8.0  # type: ignore[misc]

    def __call__(self, x: Tensor) -> Tensor:
        return (x - x.mean()) * (1 + KEYS[0])


@pytest.mark.parametrize(("noise", "lift"), [(Turned(0.25), Identity()), (rf.Gaussian(0.25), Weighed())])
def test_a_worker_that_draws_other_noise_is_refused(
    noise: rf.Noise, lift: Lift, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = rf.Certification(Plain(), INPUTS, noise=noise, procedure=FEW)
    work = value.work(Plain(), (), lift, 3, ("main",), rf.Execution("cpu"))
    parcel = Parcel.of(work, Input(0, INPUTS[0], None, ""))
    parcel.unpacked()
    monkeypatch.setattr(sys.modules[__name__], "KEYS", [1])
    with pytest.raises(ModelError, match="noise and lift: must make of an input what the driver's do"):
        parcel.unpacked()


def test_a_worker_with_another_plugin_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file := tmp_path / "mine.py").write_text("A = 1\n")
    monkeypatch.setenv("RINGFENCE_PLUGINS", str(file))
    load_plugins()
    value = rf.Certification(Plain(), INPUTS, noise=rf.Gaussian(0.25), procedure=FEW)
    work = value.work(Plain(), (), Identity(), 3, ("main",), rf.Execution("cpu"))
    parcel = Parcel.of(work, Input(0, INPUTS[0], None, ""))
    parcel.unpacked()
    file.write_text("A = 2\n")
    _imported.cache_clear()  # a worker is another process
    load_plugins()
    with pytest.raises(ModelError, match=r"plugins: must be the driver's; got other code of .*mine\.py"):
        parcel.unpacked()


READING = """
from pathlib import Path
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(8.0).reshape(2, 4).sin())
    def forward(self, x):
        return float(Path(__file__).with_name("setting").read_text()) * x.flatten(1) @ self.weight.T
"""


KEEPING = READING.replace("        self.weight", "        self.grid = None\n        self.weight").replace(
    "        return float",
    "        self.grid = torch.linspace(0.5, 1.0, 4) if self.grid is None else self.grid\n"
    "        x = (x.flatten(1) * self.grid) ** 2\n        return float",
)


def attacked(folder: Path, code: str) -> AttackJob:
    """A run of a network in a file, and an attack on it."""
    (folder / "net.py").write_text(code)
    (folder / "setting").write_text("2.0")
    np.savez(folder / "data.npz", x=INPUTS.numpy(), y=np.zeros(5, np.int64))
    data = rf.Data(str(folder / "data.npz"))
    value = rf.Certification(f"{folder}/net.py:Net", data, noise=rf.Gaussian(0.25), procedure=FEW)
    run = value.run(folder / "run", rf.Execution("cpu", check=False))
    return AttackJob(run.path, trust=True, radii=(0.1,), steps=1, copies=1, n=10, device="cpu")


def test_a_network_that_keeps_something_of_its_first_forward_is_attacked_all_the_same(tmp_path: Path) -> None:
    """Positions, grids, masks: made without gradients they cannot be differentiated."""
    assert run_attack(attacked(tmp_path, KEEPING))[0].inputs == 5


def test_neither_served_nor_attacked_is_another(tmp_path: Path) -> None:
    """A file that its code reads has changed since: no digest tells."""
    attack = attacked(tmp_path, READING)
    assert certification_at(attack.run, trust=True).seed == 0
    run_attack(attack)
    (tmp_path / "setting").write_text("3.0")
    with pytest.raises(ClassifierError, match="other scores for 4 of 4"):  # without the data, about grey ones
        certification_at(attack.run, trust=True)
    with pytest.raises(ClassifierError, match="other scores for 8 of 8"):
        run_attack(attack)
