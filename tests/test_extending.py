"""Every example of docs/extending.md is a user's file: loaded as a plugin, then used by name on the command line."""

from __future__ import annotations

import os
import re
import shlex
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from dishonest import Dishonest
from torch import Tensor, nn
from typer.testing import CliRunner

import ringfence as rf
from ringfence import laws
from ringfence.classifiers import Scored, score
from ringfence.cli import app
from ringfence.errors import ArgumentError, ModelError
from ringfence.extending import KINDS, PLUGINS
from ringfence.mechanisms import MECHANISMS
from ringfence.models import load_model

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
FILES: dict[str, str] = dict(re.findall(r"`(\w+\.py)`:\n\n```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = [shlex.split(line) for line in re.findall(r"^    \$ ringfence (.*)$", PAGE, re.MULTILINE)]
NINE = {"Mechanism", "Procedure", "Noise", "Lift", "Classifier", "Readout", "Objective", "Source", "Engine"}


@pytest.fixture
def files(registries: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's files and training data, in the folder in which commands run."""
    for name, code in FILES.items():
        (tmp_path / name).write_text(code)
    x = np.random.default_rng(0).random((32, 28, 28), dtype=np.float32)
    np.savez(tmp_path / "train.npz", x_train=x, y_train=np.arange(32) % 10)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: object) -> str:
    result = CliRunner().invoke(app, [str(one) for one in words])
    assert result.exit_code == 0, f"{words}: {result.output}"
    return result.output


def test_there_is_an_example_of_each_of_the_nine(files: Path) -> None:
    assert len(FILES) == 9
    found = set()
    for name in ("confidence.py", *FILES):
        before = {home: set(registry(home)) for home in KINDS}
        rf.load_plugins([name])
        found |= {home.rpartition(".")[2] for home in KINDS if set(registry(home)) != before[home]}
    assert {*found, "Classifier"} - {"NodeKind"} == NINE
    assert all(hasattr(rf, name) for name in NINE)


def registry(home: str) -> dict[str, object]:
    found: dict[str, object] = getattr(import_module(KINDS[home].room), KINDS[home].name)
    return found


@pytest.mark.parametrize("example", sorted({words[1] for words in COMMANDS}))
def test_commands_of_the_page_run(files: Path, example: str) -> None:
    for words in (one for one in COMMANDS if one[1] == example):
        run(*words)
        if words[-2] == "--out" and "certify" in words:
            assert len(list(rf.RunFolder.open(files / words[-1]).read())) >= 2


def test_every_file_is_used_by_a_command() -> None:
    assert {word for words in COMMANDS for word in words if word.endswith(".py")} == set(FILES)


def test_without_its_plugin_a_name_is_unknown(files: Path) -> None:
    words = next(one for one in COMMANDS if "portions.py" in one)[2:]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    told = " ".join(result.output.split())
    assert "engine: must be one of local, ray; got 'portions'" in told
    assert "load the plugin that has it: ringfence --plugin FILE COMMAND" in told


def test_a_plugin_behind_the_command_is_told_where_it_stands() -> None:
    result = CliRunner().invoke(app, ["certify", "--plugin", "lipschitz.py", "--sigma", "0.5"])
    assert result.exit_code == 2
    assert "--plugin stands before the command: ringfence --plugin FILE COMMAND" in result.output


def test_plugins_of_the_environment_are_loaded_and_handed_on(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLUGINS, "lipschitz.py")
    assert "lipschitz" in " ".join(run("--plugin", "hoeffding.py", "certify", "--help-all").split())
    assert os.environ[PLUGINS] == f"lipschitz.py,{files / 'hoeffding.py'}"


def test_a_broken_plugin_is_told(files: Path) -> None:
    (files / "broken.py").write_text("import nothing_of_that_name")
    for name in ("broken.py", "missing.py", "no_such_module_at_all"):
        result = CliRunner().invoke(app, ["--plugin", name, "info"])
        assert result.exit_code == 2
        assert "--plugin: must be a file.py or a module that can be imported" in result.output


def test_settings_of_a_registered_classifier_have_their_declared_types(registries: None) -> None:
    @rf.register
    class Shifted(rf.Classifier):
        name = "shifted"

        def __init__(
            self, inner: nn.Module, by: float | None = None, times: int | None = 1, much: bool = False
        ) -> None:
            super().__init__()
            self.inner, self.settings = inner, (by, times, much)

        def score(self, x: Tensor) -> Scored:
            return score(self.inner, x)

    def settings(text: str) -> object:
        return [(one, type(one)) for one in load_model(f"shifted(default{text})").module.settings]  # type: ignore[union-attr]

    assert settings("") == [(None, type(None)), (1, int), (False, bool)]
    assert settings(", by=2, times=none, much=true") == [(2.0, float), (None, type(None)), (True, bool)]
    with pytest.raises(ModelError, match="must be a number; got 'far'"):
        settings(", by=far")


def test_names_are_unique_and_a_cell_may_run_twice(registries: None) -> None:
    cell = "class Twice(rf.Mechanism):\n    name = 'twice'\n    _radius = None\n"
    for _ in range(2):
        names: dict[str, object] = {"rf": rf, "__name__": "cell"}
        exec(cell, names)
        kind = names["Twice"]
        rf.register(kind)
    assert isinstance(MECHANISMS["twice"], kind)  # type: ignore[arg-type]
    thief = type("Thief", (rf.Mechanism,), {"name": "neyman-pearson", "_radius": lambda *_: 1.0})
    with pytest.raises(ArgumentError, match="neyman-pearson is taken"):
        rf.register(thief)
    with pytest.raises(ArgumentError, match="small letters"):
        rf.register(type("Loud", (rf.Mechanism,), {"name": "LOUD", "_radius": lambda *_: 1.0}))
    with pytest.raises(ArgumentError, match="below one of Mechanism, Procedure"):
        rf.register(dict)


def test_all_mechanisms_are_those_that_stand_beside_each_other(registries: None, files: Path) -> None:
    rf.load_plugins(["logistic.py"])
    assert "logistic_l1" in MECHANISMS
    for family in ("gaussian", "uniform"):
        assert "logistic_l1" not in [one.name for one in rf.mechanisms.mechanisms_named("all", family)]
    assert [one.name for one in rf.mechanisms.mechanisms_named("all", "logistic")] == ["logistic_l1"]
    assert rf.mechanisms.default_mechanism("logistic") is MECHANISMS["logistic_l1"]


def test_a_changed_wrapper_is_another_model(registries: None, files: Path) -> None:
    def digest(name: str, code: str) -> str:
        (files / name).write_text(code.replace('"shrunk"', f'"{name[:-3]}"'))
        rf.load_plugins([name])
        return rf.load_model(f"{name[:-3]}(default, factor=1)").digest

    code = FILES["shrunk.py"]
    rf.load_plugins(["shrunk.py"])
    first = rf.load_model("shrunk(default, factor=1)").digest
    assert first != rf.load_model("shrunk(default, factor=2)").digest
    changed = digest("shrunken.py", code.replace("avg_pool2d(x, self.factor)", "1 - avg_pool2d(x, self.factor)"))
    assert read_tree(changed) != read_tree(first)
    before = rf.load_model("shrunk(default, factor=1)").digest
    (files / "shrunk.py").write_text(code.replace("avg_pool2d(x, self.factor)", "1 - avg_pool2d(x, self.factor)"))
    assert rf.load_model("shrunk(default, factor=1)").digest != before == first


def read_tree(digest: str) -> str:
    from ringfence.digests import read_digest

    parts = read_digest(digest)
    assert parts is not None
    return parts["tree"]


def test_a_noise_that_its_family_does_not_name_is_written_nowhere(registries: None, tmp_path: Path) -> None:
    class Other(rf.Noise):
        law = rf.Gaussian(0.5).law

        def fill(self, out: object, key: int) -> None:
            rf.Gaussian(0.5).fill(out, key)  # type: ignore[arg-type]

    value = rf.Certification("default", rf.Data("default", limit=1), noise=Other(), procedure=rf.Fixed(n=50))
    assert len(list(value.stream(rf.Execution(batch=50)))) == 1
    with pytest.raises(ArgumentError, match="noise: a run folder knows a noise by its family"):
        value.run(tmp_path / "run")


def test_laws_find_what_is_broken() -> None:
    greedy = type(
        "Greedy",
        (rf.Mechanism,),
        {
            "name": "greedy",
            "families": frozenset({"gaussian"}),
            "_radius": lambda self, a, b, law: 1.01 * rf.neyman_pearson._radius(a, b, law),
        },
    )
    for noise in (rf.Gaussian(0.5).law, rf.Gaussian(0.5), 0.5):
        told = r"greedy: must not exceed the distance of half-spaces.*the worst at p_a .*: 2\.399, where 2\.375 is true"
        with pytest.raises(ArgumentError, match=told):
            laws.check_mechanism(greedy(), noise)

    class Hopeful(rf.Noise):
        law = rf.Gaussian(0.5).law

        def fill(self, out: object, key: int) -> None:
            rf.Gaussian(0.45).fill(out, key)  # type: ignore[arg-type]

    with pytest.raises(ArgumentError, match=r"must be gaussian noise of sigma 0\.5.* deviation 0\.44"):
        laws.check_noise(Hopeful())
    with pytest.raises(ArgumentError, match=r"dishonest: must make false claims at rate 0\.02 at most"):
        laws.check_procedure(AtTwiceItsAlpha(0.02))


def test_laws_take_objects_and_no_classes() -> None:
    with pytest.raises(ArgumentError, match="mechanism: must be a Mechanism; got <class"):
        laws.check_mechanism(type(rf.neyman_pearson), 0.5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"noise: must be a Noise; got <class .* Give one, not its class"):
        laws.check_noise(rf.Gaussian)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="procedure: must be a Procedure; got <class"):
        laws.check_procedure(rf.Fixed)  # type: ignore[arg-type]


class AtTwiceItsAlpha(Dishonest):
    """Says 0.02, and spends more than twice as much."""

    honest = rf.Fixed(alpha=0.05, n0=10, n=200)


def test_a_strangers_folder_names_a_source_only_if_it_is_trusted(registries: None, files: Path) -> None:
    from ringfence.models.source import foreign_code

    rf.load_plugins(["seeded.py"])
    assert foreign_code("soft(seeded:1, default)") == []
    (files / "open.py").write_text(
        FILES["seeded.py"].replace('"seeded"', '"open"').replace("bool] = True", "bool] = False")
    )
    rf.load_plugins(["open.py"])
    assert foreign_code("soft(open:1, default)") == ["whatever open:1 names"]
