"""``ringfence zoo``: what is listed, found and refused; the command that repeats a training says all of it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result

from ringfence.models import load_model
from ringfence.training import Schedule, TrainingJob, TrainingRun
from ringfence.training.objectives import OBJECTIVES, bases_of, build_objective
from ringfence.training.options import training_command

Call = Callable[..., Result]


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from safetensors.torch import save_file

    from ringfence.classifiers.architectures import build_architecture

    root = tmp_path_factory.mktemp("zoo")
    job, out = TrainingJob(data="mnist:d", members=("lenet",) * 2, sigma=0.25), root / "mnist" / "pair"
    out.mkdir(parents=True)
    (out / "config.json").write_text(json.dumps(job.config()))
    torch.manual_seed(0)
    for place in ("mnist/pair/final-0", "mnist/pair/final-1", "alone"):
        save_file(build_architecture("lenet").state_dict(), root / f"{place}.safetensors", {"arch": "lenet"})
    half = root / "unfinished"
    half.mkdir()
    (half / "config.json").write_text(json.dumps({**job.config(), "members": 3}))
    return root


def test_list_shows_finished_trainings_and_lone_files(call: Call, zoo: Path) -> None:
    found = json.loads(call("zoo", "list", "--zoo", zoo, "--json").stdout)
    assert [one["name"] for one in found["trainings"]] == ["alone", "mnist/pair"]
    pair = found["trainings"][1]
    assert len(pair["files"]) == 2
    assert len({one["sha256"] for one in pair["files"]}) == 2
    assert "--sigma 0.25" in pair["command"]
    assert found["trainings"][0]["command"] is None
    table = call("zoo", "list", "--zoo", zoo).stdout
    assert "mnist/pair" in table
    assert "unfinished" not in table


def test_a_name_leads_to_weights_and_to_a_model(call: Call, zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(call("zoo", "path", "mnist/pair:1", "--zoo", zoo).stdout.strip())
    assert path == zoo / "mnist" / "pair" / "final-1.safetensors"
    monkeypatch.setenv("RINGFENCE_ZOO", str(zoo))
    assert load_model("zoo:mnist/pair:1").digest == load_model(str(path)).digest
    assert load_model("zoo:mnist/pair").digest == load_model("zoo:mnist/pair:0").digest != load_model(str(path)).digest


def test_of_a_large_ensemble_the_first_members_may_be_kept(call: Call, zoo: Path, tmp_path: Path) -> None:
    shutil.copytree(zoo, tmp_path / "zoo")
    folder = tmp_path / "zoo" / "mnist" / "pair"
    sums = "".join(f"{sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(folder.glob("final-*")))
    (folder / "final-1.safetensors").unlink()
    listed = ("zoo", "list", "--zoo", tmp_path / "zoo")
    assert "mnist/pair" not in call(*listed).stdout
    (folder / "SHA256SUMS").write_text(sums)
    assert "1/2" in call(*listed).stdout
    found = json.loads(call(*listed, "--json").stdout)["trainings"][1]
    assert found["absent"] == {"final-1.safetensors": sums.splitlines()[1].split()[0]}
    told = call("zoo", "path", "mnist/pair:1", "--zoo", tmp_path / "zoo", code=2).stderr
    assert "of mnist/pair the members 0 are here" in told
    assert f"member 1, of sha256 {sums.splitlines()[1].split()[0]}. Add a file, folder or archive" in told
    assert call("zoo", "path", "mnist/pair", "--zoo", tmp_path / "zoo").stdout.strip().endswith("final-0.safetensors")
    whole = (folder / "final-0.safetensors").read_bytes()
    (folder / "final-0.safetensors").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))  # weights, and others
    told = call("zoo", "path", "mnist/pair", "--zoo", tmp_path / "zoo", code=2).stderr
    assert "must be what its name or SHA256SUMS says; got other bytes, of sha256" in told
    (folder / "final-0.safetensors").unlink()  # none at all: the hashes still say what was measured
    assert "0/2" in call(*listed).stdout
    told = call("zoo", "path", "mnist/pair", "--zoo", tmp_path / "zoo", code=2).stderr
    assert "of mnist/pair no weights are here; got member 0" in told


@pytest.fixture
def emptied(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A zoo that knows its members by their hashes alone, and a folder with their weights under other names."""
    monkeypatch.setenv("RINGFENCE_WEIGHTS", str(tmp_path / "kept"))
    shutil.copytree(zoo / "mnist", tmp_path / "zoo" / "mnist")
    folder, elsewhere = tmp_path / "zoo" / "mnist" / "pair", tmp_path / "elsewhere" / "deep"
    elsewhere.mkdir(parents=True)
    torch.save({"weights": torch.ones(3)}, elsewhere / "other.pt")
    sums = ""
    for number in range(2):
        file = folder / f"final-{number}.safetensors"
        sums += f"{sha256(file.read_bytes()).hexdigest()}  {file.name}\n"
        file.rename(elsewhere / f"net-{number}.bin")
    (folder / "SHA256SUMS").write_text(sums)
    return tmp_path / "zoo", elsewhere.parent


def packed(kind: str, folder: Path, out: Path) -> Path:
    if kind == "folder":
        return folder
    if kind == "file":
        return folder / "deep" / "net-1.bin"
    return Path(shutil.make_archive(str(out / "packed"), kind, folder))


@pytest.mark.parametrize("kind", ["folder", "file", "tar", "gztar", "zip"])
def test_weights_are_found_by_their_hash_wherever_they_are(
    call: Call, emptied: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    zoo, elsewhere = emptied
    assert "no weights are here" in call("zoo", "path", "mnist/pair:1", "--zoo", zoo, code=2).stderr
    expected = sha256((elsewhere / "deep" / "net-1.bin").read_bytes()).hexdigest()
    done = call("zoo", "add", packed(kind, elsewhere, tmp_path), "--zoo", zoo)
    assert "zoo:mnist/pair:1" in done.stdout.split()
    assert ("zoo:mnist/pair:0" in done.stdout) == (kind != "file")
    assert f"{1 if kind == 'file' else 0} of the zoo are still absent" in done.stderr
    shutil.rmtree(elsewhere)
    path = Path(call("zoo", "path", "mnist/pair:1", "--zoo", zoo).stdout.strip())
    assert sha256(path.read_bytes()).hexdigest() == expected
    assert path.parent == tmp_path / "kept"
    monkeypatch.setenv("RINGFENCE_ZOO", str(zoo))
    assert load_model("zoo:mnist/pair:1").num_classes == 10
    path.write_bytes(path.read_bytes()[:-1] + b"x")  # which is still weights, but not those that were measured
    assert "must be what its name or SHA256SUMS says" in call("zoo", "path", "mnist/pair:1", code=2).stderr


def test_what_holds_no_weights_of_the_zoo_is_refused(call: Call, emptied: tuple[Path, Path], tmp_path: Path) -> None:
    zoo, elsewhere = emptied
    told = call("zoo", "add", elsewhere / "deep" / "other.pt", "--zoo", zoo, code=2).stderr
    assert "must hold weights of the zoo; got 1 files, none with a hash of the zoo's" in told
    assert "nothing of that name" in call("zoo", "add", tmp_path / "none", "--zoo", zoo, code=2).stderr
    archive = packed("gztar", elsewhere, tmp_path)
    archive.write_bytes(archive.read_bytes()[:-200])
    assert "must be a file or archive that can be read" in call("zoo", "add", archive, "--zoo", zoo, code=2).stderr
    os.mkfifo(elsewhere / "pipe")  # nobody waits for its writer
    assert call("zoo", "add", elsewhere, "--zoo", zoo).stdout.count("zoo:") == 2


def test_without_a_folder_the_package_knows_the_zoo_by_its_hashes(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the wheel is installed, and nothing else."""
    from ringfence.models import zoo as module

    weights = Path(module.__file__).parents[3] / "zoo" / "mnist" / "gaussian-0.5"
    monkeypatch.setattr(module, "__file__", str(tmp_path / "site-packages" / "ringfence" / "models" / "zoo.py"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RINGFENCE_ZOO", raising=False)
    monkeypatch.setenv("RINGFENCE_WEIGHTS", str(tmp_path / "kept"))
    listed = json.loads(call("zoo", "list", "--json").stdout)
    assert listed["zoo"] is None
    [one] = [one for one in listed["trainings"] if one["name"] == "mnist/gaussian-0.5"]
    assert (len(one["files"]), len(one["absent"])) == (0, 3)
    assert "no weights are here" in call("zoo", "path", "mnist/gaussian-0.5", code=2).stderr
    call("zoo", "add", weights / "final-0.safetensors")
    assert load_model("zoo:mnist/gaussian-0.5").num_classes == 10


@pytest.mark.parametrize(
    ("name", "words"),
    [("mnist/pear", "Did you mean mnist/pair"), ("mnist/pair:2", "members 0 to 1"), ("mnist/pair:x", "members 0 to 1")],
)
def test_a_wrong_name_is_refused(call: Call, zoo: Path, name: str, words: str) -> None:
    assert words in call("zoo", "path", name, "--zoo", zoo, code=2).stderr


def test_no_zoo_and_broken_settings_are_refused(call: Call, tmp_path: Path) -> None:
    assert "RINGFENCE_ZOO" in call("zoo", "list", "--zoo", tmp_path / "none", code=2).stderr
    (tmp_path / "config.json").write_text("{")
    assert "settings of a training" in call("zoo", "list", "--zoo", tmp_path, code=2).stderr


@pytest.mark.parametrize("name", ["config.json", "SHA256SUMS"])
@pytest.mark.parametrize("kind", ["folder", "pipe", "bytes"])
def test_what_is_no_text_file_is_refused_by_name(call: Call, zoo: Path, tmp_path: Path, name: str, kind: str) -> None:
    shutil.copytree(zoo, tmp_path / "zoo")
    path = tmp_path / "zoo" / "mnist" / "pair" / name
    path.unlink(missing_ok=True)
    {"folder": path.mkdir, "pipe": lambda: os.mkfifo(path), "bytes": lambda: path.write_bytes(b"\xff\xfe")}[kind]()
    told = call("zoo", "list", "--zoo", tmp_path / "zoo", code=2).stderr
    assert f"{path}: must be a readable text file" in told


@pytest.mark.parametrize("plan", ["3", '{"objective": 1}', '{"objective": {"name": "a"}, "sigma": "x", "epochs": 1}'])
def test_settings_without_a_plan_to_show_are_refused_by_name(call: Call, tmp_path: Path, plan: str) -> None:
    (tmp_path / "config.json").write_text(f'{{"members": 0, "plan": {plan}}}')
    assert "must be the settings of a training" in call("zoo", "list", "--zoo", tmp_path, code=2).stderr


def jobs() -> list[TrainingJob]:
    return [
        TrainingJob(
            build_objective(name, {}, base),
            data="mnist:a b.npz",
            members=("lenet", "lenet", "lenet-wide"),
            schedule=Schedule(lr=0.02, kind="one-cycle", every=7),
            sigma=0.25,
            epochs=7,
            batch=32,
            ema=0.99,
            crop=2,
            flip=True,
            nesterov=False,
            seed=5,
            mean=(0.5,),
            std=(0.25,),
            limit=100,
            classifier="default" if kind.classifier_for else None,
            **({"holdout": 10, "keep": "best"} if kind.judged else {}),  # type: ignore[arg-type]
        )
        for name, kind in OBJECTIVES.items()
        for base in bases_of(kind) or [None]
    ]


@pytest.mark.parametrize("job", jobs(), ids=lambda job: "-".join(map(str, job.objective.settings().values())))
def test_the_command_gives_the_very_job(call: Call, job: TrainingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[TrainingRun] = []

    def take(run: TrainingRun, *_: Any) -> list[Path]:
        taken.append(run)
        return [Path("final-0.safetensors")]

    monkeypatch.setattr("ringfence.training.side_by_side.run_training", take)
    monkeypatch.setattr("ringfence.cli.train.count_labels", lambda *_: None)
    assert TrainingJob.of(json.loads(json.dumps(job.config()))) == job
    program, *words = shlex.split(training_command(job, "somewhere"))
    assert program == "ringfence"
    call(*words, "--quiet")
    assert taken[0].job == job
    assert taken[0].out == Path("somewhere")
