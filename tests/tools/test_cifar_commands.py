"""The list of commands behind results/cifar10: the program takes every one of them, and they fit together."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ringfence.cli import app
from ringfence.models.zoo import read_sums
from ringfence.store import RunFolder

Tool = Callable[[str], ModuleType]
SIGMAS = ("0.25", "0.5", "1.0")


@pytest.mark.parametrize(("sigmas", "tiny"), [(SIGMAS, False), (("0.25",), True)])
@pytest.mark.parametrize("phase", ["training", "certification"])
def test_every_command_is_taken(
    tool: Tool, tmp_path: Path, reached: list[Any], phase: str, sigmas: tuple[str, ...], tiny: bool
) -> None:
    gpu = tool("cifar_gpu")
    commands = getattr(gpu, phase)(sigmas, tiny)
    learned = json.dumps(
        {"learned": [{"method": "equal", "weights": [1]}, {"method": "gradient", "weights": [0.1] * 10}]}
    )
    for command in commands:
        if command.printed:
            (tmp_path / command.done[0]).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / command.done[0]).write_text(learned)
        result = CliRunner().invoke(app, gpu.resolved(command.words, tmp_path), catch_exceptions=False)
        assert result.exit_code == 0, (command.name, result.output)
    assert len(reached) == len(commands)


@pytest.mark.parametrize("sigmas", [("0.25",), SIGMAS])
def test_what_a_command_needs_an_earlier_one_makes(tool: Tool, sigmas: tuple[str, ...]) -> None:
    commands = tool("cifar_commands").training(sigmas) + tool("cifar_commands").certification(sigmas)
    assert len({command.done for command in commands}) == len(commands)
    made: set[Path] = set()
    for command in commands:
        assert set(command.needs) <= made, command.name
        made |= set(command.done)


def test_settings_name_no_machine(tool: Tool) -> None:
    commands = tool("cifar_commands")
    for command in commands.training(SIGMAS) + commands.certification(SIGMAS):
        for word in command.words:
            assert "/work" not in word
            assert ".." not in word
            assert not any(part.startswith("/") for part in word.replace("@", ":").replace("+", ":").split(":"))


def test_the_work_folder_leads_to_the_data_and_back(tool: Tool, tmp_path: Path) -> None:
    gpu = tool("cifar_gpu")
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        gpu.prepare(tmp_path / "work", tmp_path / name)
    assert (tmp_path / "work" / "data").resolve() == (tmp_path / "new").resolve()
    assert (tmp_path / "work" / "tools" / "cifar_core.py").exists()


def test_what_is_finished_is_kept(tool: Tool, fake_run: Callable[..., RunFolder], tmp_path: Path) -> None:
    work, root = tmp_path / "work", tmp_path / "root"
    for name in ("a", "b", "unfinished"):
        run = fake_run(work / "runs" / name, 4)
        (run.path / "lock").touch()
        if name != "unfinished":
            run.write_summary({})
    for training, members in (("many", 3), ("one", 1), ("two", 2)):
        folder = work / "zoo" / "cifar10" / training
        (folder / "member-0").mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"members": members, "init": "elsewhere/start"}))
        for number in range(1 if training == "two" else members):
            (folder / f"final-{number}.safetensors").touch()
    places = (root / "zoo" / "cifar10", root / "results" / "cifar10")

    def pictured() -> list[bool]:
        return [RunFolder.open(run).inputs()[0].thumbnail is not None for run in sorted(places[1].iterdir())]

    tool("gpu_packing").keep(work / "zoo" / "cifar10", work / "runs", *places, {"many": 1})
    kept = [RunFolder.open(path) for path in sorted((root / "results" / "cifar10").iterdir())]
    assert [run.path.name for run in kept] == ["a", "b"]
    assert pictured() == [True, False]
    assert not (kept[0].path / "lock").exists()
    trainings = sorted(path.relative_to(root).as_posix() for path in (root / "zoo").rglob("*") if path.is_file())
    many = [f"zoo/cifar10/many/{name}" for name in ("SHA256SUMS", "config.json", "final-0.safetensors")]
    assert trainings == [*many, "zoo/cifar10/one/config.json", "zoo/cifar10/one/final-0.safetensors"]
    assert json.loads((root / trainings[-2]).read_text())["init"] == "zoo/cifar10/start"
    assert len(read_sums(root / "zoo" / "cifar10" / "many")) == 3
    fake_run(work / "runs" / "0", 4).write_summary({})  # a later run, first by name: pictures stay where they are
    tool("gpu_packing").keep(work / "zoo" / "cifar10", work / "runs", *places)
    assert pictured() == [False, True, False]
    assert (places[0] / "many" / "final-2.safetensors").exists()
    assert not (places[0] / "many" / "SHA256SUMS").exists(), "what was kept before is replaced"
    tool("gpu_packing").keep(work / "zoo" / "cifar10", work / "runs", *places, {"many": 0}, pictures=False)
    assert pictured() == [False, False, False]
    assert not list((places[0] / "many").glob("*.safetensors"))


def test_a_run_waits_for_what_it_needs_and_is_not_repeated(
    tool: Tool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu, commands = tool("cifar_gpu"), tool("cifar_commands")
    version = commands.Command("version", ("--version",), (Path("said"),), printed=True)
    waits = commands.Command("waits", ("--version",), (Path("said"), Path("never")), (Path("missing"),))
    assert not gpu.certify([version, waits], 60, tmp_path)
    assert (tmp_path / "said").read_text().startswith("ringfence")
    assert "waits: waits for missing" in capsys.readouterr().out
    assert gpu.certify([version], 60, tmp_path)
    assert "version" not in capsys.readouterr().out


def test_a_run_that_takes_too_long_is_interrupted(tool: Tool, tmp_path: Path) -> None:
    """Also where interrupts are ignored, as a shell in the background has it: children inherit that."""
    worker = tool("command_worker")
    begin, before = time.monotonic(), signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert worker.end_of(worker.started(["-c", "import time; time.sleep(60)"], tmp_path), 0.5) != 0
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begin < 30


def test_several_trainings_go_together(tool: Tool, tmp_path: Path) -> None:
    gpu, commands = tool("cifar_gpu"), tool("cifar_commands")
    np.savez(tmp_path / "data.npz", x_train=np.zeros((64, 1, 28, 28)), y_train=np.arange(64) % 10)

    def training(name: str, *words: str, needs: tuple[Path, ...] = ()) -> Any:
        said = ("train", "--data", "data.npz", "--sigma", "0.5", "--batch", "32", *words, "--out", name)
        return commands.Command(name, said, (Path(name) / "final-1.safetensors",), needs)

    first = training("first", "--members", "2", "--epochs", "1")
    second = training("second", "--members", "2", "--epochs", "2", "--objective", "adp")
    third = training("third", "--members", "2", "--epochs", "1", "--init", "first", needs=first.done)
    never = training("never", "--members", "2", "--epochs", "1", needs=(Path("nothing"),))
    assert not gpu.train([first, second, third, never], 120, tmp_path)
    for name in ("first", "second", "third"):
        assert sorted(file.name for file in (tmp_path / name).glob("final-*")) == [
            "final-0.safetensors",
            "final-1.safetensors",
        ]
