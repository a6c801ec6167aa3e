"""The digest of a network covers what its code reads from modules and classes, and nothing else that lies there."""

from __future__ import annotations

import warnings
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.digests import changes
from ringfence.errors import StoreError
from ringfence.models import model_digest
from ringfence.models.reads import Reached

CELL = """
import torch
from torch import nn

class Net(nn.Module):
    factor = 2.0
    unread = 1.0

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, -1.0]))

    def forward(self, x):
        global calls
        calls = calls + 1
        return self.scaled(x) * scale * asked.sign * settings["sign"] * shift.sum()

    def scaled(self, x):
        collected.append(len(x))
        return helped(x.to(device)) * self.weight * self.factor

    def training_step(self, x):
        return x * rate

def helped(x):
    return deeper(x)

def deeper(x):
    return x
"""
GIVEN: dict[str, Any] = {
    "scale": 2.0,
    "asked": Namespace(sign=1.0, epochs=3),
    "settings": {"sign": 1.0, "rate": 0.1},
    "shift": torch.ones(2),
    "rate": 0.1,
    "device": "cpu",
    "calls": 0,
}


def cell(text: str = CELL, **variables: object) -> nn.Module:
    """The network of a notebook's cell, made among these variables."""
    there = {"__name__": "a_cell", **GIVEN, "collected": [], **variables}
    exec(compile(text, "<cell>", "exec"), there)
    there |= variables  # in the place of what the cell has defined
    made: nn.Module = there["Net"]()
    return made


def attribute_set_later() -> nn.Module:
    net: Any = cell()
    type(net).factor = 3.0
    return net  # type: ignore[no-any-return]


def around(factor: float, decorated: bool = False) -> nn.Module:
    """A network whose code reads a variable of the function that made its class, itself or in a decorator."""

    def times(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, x: function(self, x) * factor

    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if decorated else x * factor

        forward = times(forward) if decorated else forward

    return Net()


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "a variable": lambda: cell(scale=3.0),
    "an option": lambda: cell(asked=Namespace(sign=-1.0, epochs=3)),
    "an entry": lambda: cell(settings={"sign": -1.0, "rate": 0.1}),
    "a tensor": lambda: cell(shift=torch.zeros(2)),
    "an attribute of a class": lambda: cell(CELL.replace("factor = 2.0", "factor = 3.0")),
    "an attribute that was set later": attribute_set_later,
    "a function": lambda: cell(CELL.replace("return deeper(x)", "return -deeper(x)")),
    "a function of a function": lambda: cell(CELL.replace("    return x\n", "    return -x\n")),
}
ALIKE: dict[str, Callable[[], nn.Module]] = {
    "made again": cell,
    "an option that nothing reads": lambda: cell(asked=Namespace(sign=1.0, epochs=9)),
    "an entry that nothing reads": lambda: cell(settings={"sign": 1.0, "rate": 9.0}),
    "what only the training reads": lambda: cell(rate=9.0),
    "a counter": lambda: cell(calls=9),
    "what is collected": lambda: cell(collected=[1, object()]),
    "where it computes": lambda: cell(device="cuda:0"),
    "an attribute that nothing reads": lambda: cell(CELL.replace("unread = 1.0", "unread = 9.0")),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_what_the_code_reads_is_covered(kind: str) -> None:
    assert changes(model_digest(OTHERS[kind](), structured=True), model_digest(cell(), structured=True)) == (
        "variables or functions that its code reads"
    )


@pytest.mark.parametrize("kind", ALIKE)
def test_what_it_does_not_read_is_not(kind: str) -> None:
    assert model_digest(ALIKE[kind](), structured=True) == model_digest(cell(), structured=True)


WRITTEN = {
    "an attribute of its class": ("pass", "Net.calls += 1"),
    "an attribute by another name": ("pass", "type(self).calls += len(x)"),
    "an entry": ("there = {'calls': 0}", "there['calls'] += 1"),
    "a cache": ("there = {}", "x = x * there.setdefault('calls', torch.ones(2))"),
    "an option": ("there = Namespace(calls=0)", "there.calls += 1"),
    "a list of numbers": ("there = [0.0]", "there.append(float(x.sum()))"),
    "an array": ("there = np.zeros(3)", "there[:2] += 1"),
    "a tensor": ("there = torch.zeros(3)", "there.add_(1)"),
    "a variable, by a function": (
        "there = 0\ndef note():\n    global there\n    there += 1",
        "note(); x = x + 0 * there",
    ),
    "a list, by a function": ("there = []\ndef note():\n    there.append(1)", "note(); x = x[len(there) * 0:]"),
    "an object": ("there = Meter()", "there.update(len(x))"),
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_what_the_code_writes_itself_is_not(kind: str) -> None:
    beside, done = WRITTEN[kind]
    meter = "class Meter:\n    calls = 0\n    def __init__(self):\n        self.all = []\n"
    meter += "    def update(self, n):\n        self.calls += n\n        self.all.append(n)\n"
    net = f"class Net(nn.Module):\n    calls = 0\n    def forward(self, x):\n        {done}\n        return x\n"
    made = cell(f"import torch\nimport numpy as np\nfrom torch import nn\n{meter}{beside}\n{net}", Namespace=Namespace)
    before = model_digest(made, structured=True)
    for _ in range(2):
        made(torch.ones(4, 2))
    assert model_digest(made, structured=True) == before


STRANGE: dict[str, Callable[[], Tensor]] = {
    "sparse": lambda: torch.eye(2).to_sparse(),
    "without values": lambda: torch.ones(2, device="meta"),
    "conjugated": lambda: torch.ones(2, dtype=torch.complex64).conj(),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_variables_may_be_tensors_of_every_kind(kind: str) -> None:
    assert Reached(cell(shift=STRANGE[kind]())).digest == Reached(cell(shift=STRANGE[kind]())).digest


def test_long_chains_of_functions_are_followed() -> None:
    chain = "".join(f"def f{place}(x):\n    return f{place + 1}(x)\n" for place in range(1500))
    text = f"{CELL.replace('return deeper(x)', 'return f0(x)')}{chain}def f1500(x):\n    return deeper(x)\n"
    assert Reached(cell(text)).digest != Reached(cell(text.replace("    return x\n", "    return -x\n"))).digest


def test_places_on_this_machine_are_no_part_of_a_network() -> None:
    text = CELL.replace("return deeper(x)", "return deeper(x, __file__, folder)").replace(
        "deeper(x):", "deeper(x, *named):"
    )
    here, there = (Reached(cell(text, __file__=f"/{one}/a.py", folder=f"/{one}")).digest for one in ("here", "there"))
    assert here == there


@pytest.mark.parametrize("decorated", [False, True])
def test_variables_around_a_class_are_covered(decorated: bool) -> None:
    plus, again, minus = (model_digest(around(sign, decorated), structured=True) for sign in (1.0, 1.0, -1.0))
    assert plus == again
    assert changes(minus, plus)


def test_networks_that_read_nothing_have_no_such_part() -> None:
    assert Reached(nn.Sequential(nn.Linear(2, 2), nn.ReLU())).digest is None
    assert "read:" not in model_digest(rf.load_model("default").module)


def test_functions_of_other_files_are_covered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "helping_file.py").write_text("def turned(x):\n    return x\n")
    net = "import torch\nfrom torch import nn\nfrom helping_file import turned\n"
    net += "class Net(nn.Module):\n    def forward(self, x):\n        return turned(x.flatten(1))\n"
    (tmp_path / "net.py").write_text(net)
    spec = f"{tmp_path / 'net.py'}:Net"
    before = rf.load_model(spec).digest
    (tmp_path / "helping_file.py").write_text("def turned(x):\n    return -x\n")
    assert "functions that its code reads" in str(changes(rf.load_model(spec).digest, before))


def test_a_function_that_its_file_defines_again_is_another(tmp_path: Path) -> None:
    file = tmp_path / "twice.py"
    file.write_text("def turned(x):\n    return x\nfirst = turned\ndef turned(x):\n    return -x\n")
    there: dict[str, Any] = {"__name__": "a_cell"}
    exec(compile(file.read_text(), file, "exec"), there)
    plus, minus = (Reached(cell(deeper=there[name])).digest for name in ("first", "turned"))
    assert plus != minus


def test_a_run_goes_on_with_what_its_code_read_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.tensor([[0.2, 0.9], [0.7, 0.1]])

    def run(net: nn.Module) -> rf.Run:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return rf.certify(net, x, sigma=0.25, n=50, out=tmp_path / "run", progress=False)

    with monkeypatch.context() as before:
        before.setattr(Reached, "digest", None)  # as earlier versions did
        run(cell())
    run(cell())  # and their runs go on
    rf.certify(cell(), x, sigma=0.25, n=50, out=tmp_path / "new", progress=False)
    with pytest.raises(StoreError, match="its code reads"):
        rf.certify(cell(scale=3.0), x, sigma=0.25, n=50, out=tmp_path / "new", progress=False)
