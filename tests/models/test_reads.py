"""The digest of a network covers what its code reads from modules and classes, and nothing else that lies there."""

from __future__ import annotations

import linecache
import warnings
from argparse import Namespace
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

import ringfence as rf
from ringfence.digests import HELD, MOST_NAMES, READ, changes, named, read_digest, write_digest
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


NUMBERS = count()


def cell(text: str = CELL, **variables: object) -> nn.Module:
    """The network of a notebook's cell, made among these variables; notebooks keep the sources of their cells so."""
    there = {"__name__": "a_cell", **GIVEN, "collected": [], **variables}
    name = f"<cell {next(NUMBERS)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), there)
    there |= variables  # in the place of what the cell has defined
    made: nn.Module = there["Net"]()
    return made


def read_by(module: nn.Module) -> dict[str, str]:
    return Reached(module).lines()


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


OTHERS: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "a variable": ("scale", lambda: cell(scale=3.0)),
    "an option": ("asked.sign", lambda: cell(asked=Namespace(sign=-1.0, epochs=3))),
    "an entry": ("settings.sign", lambda: cell(settings={"sign": -1.0, "rate": 0.1})),
    "a tensor": ("shift", lambda: cell(shift=torch.zeros(2))),
    "an attribute of a class": ("Net.factor", lambda: cell(CELL.replace("factor = 2.0", "factor = 3.0"))),
    "an attribute that was set later": ("Net.factor", attribute_set_later),
    "a function": ("helped", lambda: cell(CELL.replace("return deeper(x)", "return -deeper(x)"))),
    "a function of a function": ("deeper", lambda: cell(CELL.replace("    return x\n", "    return -x\n"))),
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
def test_what_the_code_reads_is_covered_and_named(kind: str) -> None:
    name, made = OTHERS[kind]
    assert changes(model_digest(made(), structured=True), model_digest(cell(), structured=True)) == (
        f"variables or functions that its code reads ({name})"
    )


@pytest.mark.parametrize("kind", ALIKE)
def test_what_it_does_not_read_is_not(kind: str) -> None:
    assert model_digest(ALIKE[kind](), structured=True) == model_digest(cell(), structured=True)


TOP = """
import functools
import logging
import time
import types
from argparse import Namespace
from collections import Counter
from dataclasses import dataclass
from enum import Enum
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
class Meter:
    calls = 0
    def __init__(self):
        self.all = []
    def update(self, n):
        self.calls += n
        self.all.append(n)
"""


def network(done: str, beside: str = "", init: str = "pass", within: str = "pass") -> nn.Module:
    """A network of a cell: what its forward does, what stands beside the class, in __init__ and in the class."""
    inside = done.replace("\n", "\n        ")
    text = f"{TOP}{beside}\nclass Net(nn.Module):\n    {within}\n    def __init__(self):\n        super().__init__()\n"
    return cell(f"{text}        {init}\n    def forward(self, x):\n        {inside}\n        return x\n")


IDLE: dict[str, tuple[str, dict[str, str]]] = {
    "an attribute of its class": ("Net.calls += 1", {"within": "calls = 0"}),
    "an attribute by another name": ("type(self).calls += len(x)", {"within": "calls = 0"}),
    "an entry": ("there['calls'] += 1", {"beside": "there = {'calls': 0}"}),
    "an option": ("there.calls += 1", {"beside": "there = Namespace(calls=0)"}),
    "a list of numbers": ("there.append(float(x.sum()))", {"beside": "there = [0.0]"}),
    "an array": ("there[:2] += 1", {"beside": "there = np.zeros(3)"}),
    "a tensor": ("there.add_(1)", {"beside": "there = torch.zeros(3)"}),
    "a variable": ("global there\nthere = there + 1", {"beside": "there = 0"}),
    "an object": ("there.update(len(x))", {"beside": "there = Meter()"}),
    "a counter of its own": ("self.calls += 1", {"init": "self.calls = 0"}),
    "a counter that is written out": ("self.calls = self.calls + len(x)", {"init": "self.calls = 0"}),
    "a counter that is printed": (
        "self.calls += 1\nif self.calls % 2 == 0:\n    print(f'{self.calls} calls')",
        {"init": "self.calls = 0"},
    ),
    "a counter that begins anew": (
        "self.calls += 1\nif self.calls > 1:\n    self.calls = 0",
        {"init": "self.calls = 0"},
    ),
    "a list of its own": ("self.all.append(len(x))", {"init": "self.all = []"}),
    "entries of its own": ("self.all[len(x)] += 1", {"init": "self.all = Counter()"}),
    "what passed last": ("self.last = x.detach()", {"init": "self.last = None"}),
    "an object of its own": ("self.meter.update(len(x))", {"init": "self.meter = Meter()"}),
    "a buffer": ("self.n += 1", {"init": "self.register_buffer('n', torch.zeros(()), persistent=False)"}),
    "a variable of a decorator": (
        "pass",
        {
            "beside": "def counted(f):\n    n = 0\n    def one(*x):\n        nonlocal n\n        n += 1\n"
            "        return f(*x)\n    return one",
            "within": "@counted\n    def __call__(self, x): return x",
        },
    ),
    "what is logged": (
        "global calls\nlog.warning('%s', calls)\ncalls += 1",
        {"beside": "log = logging.getLogger('a cell')\ncalls = 0"},
    ),
}


@pytest.mark.parametrize("kind", IDLE)
def test_what_the_code_only_counts_or_collects_is_not(kind: str) -> None:
    done, beside = IDLE[kind]
    made = network(done, **beside)
    before = model_digest(made, structured=True)
    for _ in range(2):
        made(torch.ones(4, 2))
    assert changes(model_digest(made, structured=True), before) is None


def test_a_moment_that_is_only_printed_is_not() -> None:
    done = "if time.time() - begun > 1e12:\n    print('long', begun)"
    one, other = (model_digest(network(done, f"begun = {when}"), structured=True) for when in (1.0, 2.0))
    assert one == other


USED: dict[str, str] = {
    "a counter that decides": "self.k += 1\nx = x if self.k < 1000 else -x",
    "a counter in a variable": "self.k += 1\nn = self.k\nx = x * n",
    "a counter that decides what else is set": "self.k += 1\nif self.k > 9:\n    self.sign = -1\nx = x * self.sign",
    "a counter that decides what else is counted": "if self.k > 9:\n    self.k = 0; self.sign += 1\nx = x * self.sign",
    "a counter that ends it": "self.k += 1\nif self.k > 9:\n    print(self.k)\n    return -x",
    "a counter by its name": "self.k += 1\nx = x * getattr(self, 'k')",
    "a counter among all": "self.k += 1\nx = x * vars(self)[chr(107)]",
    "a counter that is called": "self.k = x.mul_(self.k)",
    "a counter in brackets": "self.sign = (n := self.k)\nx = x * n",
    "a counter that something else is set from": "self.sign = self.k\nx = x * self.sign",
    "a counter that prints what it changes": "if self.k > 2:\n    print(x.mul_(2))",
    "a counter that changes what is printed": "print(x.mul_(self.k))",
    "a printer of one's own": "shown(x, self.k)",
    "a lazy value": "if self.k is None:\n    self.k = 2.0\nx = x * self.k",
    "a running mean": "if self.training:\n    self.k = 0.9 * self.k\nx = x - self.k",
    "what is taken out again": "there.append(self.k)\nx = x * there.pop()",
    "another name of the input": "k = x[:1]\nif self.k > 2:\n    k[0] = 5.0",
}


@pytest.mark.parametrize("kind", USED)
def test_what_the_code_counts_and_uses_is_covered(kind: str) -> None:
    """Otherwise a run went on with a network that computes something else from the same weights."""
    beside = "there = []\ndef shown(x, by):\n    x.mul_(by)\nprint = shown if 'own' in " + repr(kind) + " else print"
    done = USED[kind].replace("shown", "print")
    one, other = (network(done, beside, "self.k, self.sign = 2.0, 1") for _ in range(2))
    other.k = 3.0  # type: ignore[assignment]
    told = str(changes(model_digest(other, structured=True), model_digest(one, structured=True)))
    assert told == "layers or attributes of the network (k)"


CACHES: dict[str, tuple[str, dict[str, str], str]] = {
    "of a module": (
        "x = x * there.setdefault('calls', torch.ones(2))",
        {"beside": "there = {}"},
        "variables or functions that its code reads (there)",
    ),
    "of an object": (
        "if len(x) not in self.there:\n    self.there[len(x)] = 2.0\nx = x * self.there[len(x)]",
        {"init": "self.there = {}"},
        "layers or attributes of the network (there)",
    ),
}


@pytest.mark.parametrize("kind", CACHES)
def test_a_cache_may_hold_what_another_network_left_there(kind: str) -> None:
    """What it holds is what the network computes with: no digest can tell that it would be computed so again."""
    done, where, told = CACHES[kind]
    made = network(done, **where)
    before = model_digest(made, structured=True)
    made(torch.ones(4, 2))
    assert changes(model_digest(made, structured=True), before) == told


TWO = "def two(x):\n    return x\ndef other(x):\n    return -x\n"
SCALED = "class Scaled:\n    def __init__(self, k=2.0):\n        self.k = k\n"
SCALED += "    def __call__(self, x):\n        return x * self.k\n"
FOLLOWED: dict[str, tuple[str, str, str, str]] = {
    "all entries": ("x = F.interpolate(x, **there)", "there = {'scale_factor': 2.0}", "2.0", "3.0"),
    "values": ("x = x * sum(there.values())", "there = {'a': 2.0}", "2.0", "3.0"),
    "an entry by a number": ("x = x * there[0]", "there = {0: 2.0}", "2.0", "3.0"),
    "an entry of an entry": ("x = x * there['a']['b']", "there = {'a': {'b': 2.0}}", "2.0", "3.0"),
    "an option of an option": ("x = x * there.a.b", "there = Namespace(a=Namespace(b=2.0))", "2.0", "3.0"),
    "entries in a list": ("x = x * there[0]['b']", "there = [{'b': 2.0}]", "2.0", "3.0"),
    "an entry beside a counter": ("there['n'] += 1\nx = x * there['k']", "there = {'n': 0, 'k': 2.0}", "2.0", "3.0"),
    "tensors in a list": ("x = x * there[0]", "there = [torch.tensor(2.0)]", "2.0", "3.0"),
    "functions in a list": ("x = there[0](x)", "there = [torch.sin]", "sin", "cos"),
    "functions in entries": ("x = there['a'](x)", f"{TWO}there = {{'a': two}}", "'a': two", "'a': other"),
    "a function by another name": ("x = there(x)", "there = torch.sin", "sin", "cos"),
    "a class by another name": ("x = there()(x)", "there = nn.ReLU", "ReLU", "Tanh"),
    "arguments given before": ("x = there(x)", "there = functools.partial(torch.mul, other=2.0)", "2.0", "3.0"),
    "a method": ("x = there(x)", f"{SCALED}there = Scaled(2.0).__call__", "Scaled(2.0)", "Scaled(3.0)"),
    "an object that is called": ("x = there(x)", f"{SCALED}there = Scaled(2.0)", "Scaled(2.0)", "Scaled(3.0)"),
    "an object of an object": (
        "x = x * there.a.k",
        f"{SCALED}there = Namespace(a=Scaled(2.0))",
        "Scaled(2.0)",
        "Scaled(3.0)",
    ),
    "a choice": ("x = x * there.value", "class K(Enum):\n    A = 2.0\n    B = 3.0\nthere = K.A", "K.A", "K.B"),
    "what makes an object": (
        "x = Scaled()(x)",
        f"there = 2.0\n{SCALED}".replace("self.k = k", "self.k = there"),
        "2.0\n",
        "3.0\n",
    ),
    "an operator": (
        "x = K() * x",
        "there = 2.0\nclass K:\n    def __mul__(self, x):\n        return x * there",
        "2.0",
        "3.0",
    ),
    "a module": ("x = x * there.k", "there = types.ModuleType('there')\nthere.k = 2.0", "2.0", "3.0"),
    "an attribute of a function": ("x = x * there.k", "def there(): pass\nthere.k = 2.0", "2.0", "3.0"),
    "an attribute that something else has, too": (
        "K().k = 0.0\nx = x * there.k",
        "class K:\n    pass\nthere = Namespace(k=2.0)",
        "2.0",
        "3.0",
    ),
    "functions by the type of an argument": (
        "x = there(x)",
        "@functools.singledispatch\ndef there(x): return x\n@there.register\ndef _(x: torch.Tensor): return 2.0 * x",
        "2.0",
        "3.0",
    ),
}


@pytest.mark.parametrize("kind", FOLLOWED)
def test_whatever_a_variable_is_it_is_covered(kind: str) -> None:
    done, beside, *change = FOLLOWED[kind]
    one, again, other = (network(done, text) for text in (beside, beside, beside.replace(*change)))
    assert model_digest(one, structured=True) == model_digest(again, structured=True)
    assert "its code reads" in str(changes(model_digest(other, structured=True), model_digest(one, structured=True)))


HOW = ("property", "staticmethod", "classmethod", "functools.cached_property", "functools.cache", "torch.no_grad()")


@pytest.mark.parametrize("how", HOW)
def test_functions_of_a_class_count_however_it_holds_them(how: str) -> None:
    """The bytecode of a class without a file is that of its plain functions."""
    argument = "" if how == "staticmethod" else "self"
    asked = "self.k" if "property" in how else "self.k()"
    one, other = (
        model_digest(network(f"x = x * {asked}", within=f"@{how}\n    def k({argument}): return {k}"), structured=True)
        for k in (2.0, 3.0)
    )
    assert changes(other, one)


def test_what_an_installed_class_calls_is_followed() -> None:
    text = f"{TOP}k = 2.0\nclass Net(nn.TransformerEncoderLayer):\n    def __init__(self):\n"
    text += "        super().__init__(2, 1, 2)\n        [nn.init.ones_(one) for one in self.parameters()]\n"
    text += "    def _ff_block(self, x):\n        self.activation_relu_or_gelu = 0\n        return x * k\n"
    assert read_by(cell(text)) != read_by(cell(text, k=3.0))
    one, other = cell(text), cell(text)
    other.activation_relu_or_gelu = 2  # type: ignore[assignment]
    assert changes(model_digest(other, structured=True), model_digest(one, structured=True))


def test_functions_and_classes_that_an_object_holds_are_followed() -> None:
    beside, init = f"{TWO}{SCALED}", "self.held = [two, {'a': Scaled}]"
    one = network("x = self.held[0](self.held[1]['a']()(x))", beside, init)
    for change in (("return x\n", "return 2 * x\n"), ("x * self.k", "x / self.k")):
        other = network("x = self.held[0](self.held[1]['a']()(x))", beside.replace(*change), init)
        assert changes(model_digest(other, structured=True), model_digest(one, structured=True))


def test_a_module_that_a_function_imports_is_covered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    made = network("from imported_late import turned\nx = turned(x)")
    digests = []
    for sign in "+-":
        (tmp_path / "imported_late.py").write_text(f"def turned(x):\n    return {sign}x\n")
        digests.append(model_digest(made, structured=True))
    assert changes(*digests) == "variables or functions that its code reads (import_imported_late)"


@pytest.mark.parametrize(("held", "told"), [(6, " (name0, name1, name2, name3 and 2 more)"), (MOST_NAMES + 1, "")])
def test_a_few_names_are_told_and_of_very_many_none(held: int, told: str) -> None:
    one, other = (write_digest({HELD: named({f"name{place}": k for place in range(held)})}) for k in "ab")
    assert changes(one, other) == f"layers or attributes of the network{told}"


def test_hooks_of_all_modules_are_followed() -> None:
    made, digests = network("pass"), []
    for factor in (1.0, 2.0, 3.0):
        hook = cell(
            "from torch import nn\nclass Net(nn.Module):\n    def forward(self, m, x, y): return y * k\n", k=factor
        )
        handle = register_module_forward_hook(hook.forward) if factor > 1.0 else None
        digests.append(model_digest(made, structured=True))
        if handle is not None:
            handle.remove()
    assert changes(digests[1], digests[0])
    assert changes(digests[2], digests[1]) == "variables or functions that its code reads (k)"


def test_code_of_any_length_is_read() -> None:
    done = f"x = x{600 * ' + there'}"
    assert read_by(network(done, "there = 2.0")) != read_by(network(done, "there = 3.0"))


def test_mappings_that_cannot_be_asked_are_passed_over() -> None:
    beside = "from collections.abc import Mapping\nclass Lazy(Mapping):\n    def __len__(self): return 1\n"
    beside += "    def __iter__(self): return iter('a')\n    def __getitem__(self, key): raise OSError\nthere = Lazy()"
    assert "there" not in read_by(network("x = x * len(there)", beside))


def test_without_a_source_every_name_counts() -> None:
    made = network("self.calls += 1", init="self.calls = 0")
    linecache.cache.clear()
    before = model_digest(made, structured=True)
    made(torch.ones(4, 2))
    assert changes(model_digest(made, structured=True), before) == "layers or attributes of the network (calls)"


STRANGE: dict[str, Callable[[], Tensor]] = {
    "sparse": lambda: torch.eye(2).to_sparse(),
    "without values": lambda: torch.ones(2, device="meta"),
    "conjugated": lambda: torch.ones(2, dtype=torch.complex64).conj(),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_variables_may_be_tensors_of_every_kind(kind: str) -> None:
    assert read_by(cell(shift=STRANGE[kind]())) == read_by(cell(shift=STRANGE[kind]()))


def test_long_chains_of_functions_are_followed() -> None:
    chain = "".join(f"def f{place}(x):\n    return f{place + 1}(x)\n" for place in range(1500))
    text = f"{CELL.replace('return deeper(x)', 'return f0(x)')}{chain}def f1500(x):\n    return deeper(x)\n"
    assert read_by(cell(text)) != read_by(cell(text.replace("    return x\n", "    return -x\n")))


def test_places_on_this_machine_are_no_part_of_a_network() -> None:
    text = CELL.replace("return deeper(x)", "return deeper(x, __file__, folder)").replace(
        "deeper(x):", "deeper(x, *named):"
    )
    here, there = (read_by(cell(text, __file__=f"/{one}/a.py", folder=f"/{one}")) for one in ("here", "there"))
    assert here == there


@pytest.mark.parametrize("decorated", [False, True])
def test_variables_around_a_class_are_covered(decorated: bool) -> None:
    plus, again, minus = (model_digest(around(sign, decorated), structured=True) for sign in (1.0, 1.0, -1.0))
    assert plus == again
    assert changes(minus, plus)


def test_networks_that_read_nothing_have_no_such_part() -> None:
    assert read_by(nn.Sequential(nn.Linear(2, 2), nn.ReLU())) == {}
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
    plus, minus = (read_by(cell(deeper=there[name])) for name in ("first", "turned"))
    assert plus != minus


def as_earlier(module: nn.Module, structured: bool) -> str:
    """As versions wrote it that looked at less."""
    parts = read_digest(model_digest(module, structured=structured)) or {}
    return write_digest({name: one for name, one in parts.items() if name not in (READ, HELD)})


def test_a_run_goes_on_with_what_its_code_read_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.tensor([[0.2, 0.9], [0.7, 0.1]])

    def run(net: nn.Module) -> rf.Run:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return rf.certify(net, x, sigma=0.25, n=50, out=tmp_path / "run", progress=False)

    with monkeypatch.context() as before:
        before.setattr("ringfence.models.resolve.model_digest", as_earlier)
        run(cell())
    run(cell())  # and their runs go on
    rf.certify(cell(), x, sigma=0.25, n=50, out=tmp_path / "new", progress=False)
    with pytest.raises(StoreError, match=r"its code reads \(scale\).*a cache or a counter, must be as it was"):
        rf.certify(cell(scale=3.0), x, sigma=0.25, n=50, out=tmp_path / "new", progress=False)
