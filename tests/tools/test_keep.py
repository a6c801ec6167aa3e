"""What a sweep finished is kept: whole trainings, verified runs, nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from ringfence.models.zoo import read_sums
from ringfence.store import RunFolder


def test_what_is_finished_is_kept(
    tool: Callable[[str], ModuleType], fake_run: Callable[..., RunFolder], tmp_path: Path
) -> None:
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
    zoo, results = root / "zoo" / "cifar10", root / "results" / "cifar10"
    keep = tool("keep").keep
    assert len(keep(work, zoo, results, {"many": 1}, pictures=True)) == 4
    kept = [RunFolder.open(path) for path in sorted(results.iterdir())]
    assert [run.path.name for run in kept] == ["a", "b"]
    assert kept[0].inputs()[0].thumbnail is not None
    assert not (kept[0].path / "lock").exists()
    trainings = sorted(path.relative_to(root).as_posix() for path in (root / "zoo").rglob("*") if path.is_file())
    many = [f"zoo/cifar10/many/{name}" for name in ("SHA256SUMS", "config.json", "final-0.safetensors")]
    assert trainings == [*many, "zoo/cifar10/one/config.json", "zoo/cifar10/one/final-0.safetensors"]
    assert json.loads((root / trainings[-2]).read_text())["init"] == "zoo/cifar10/start"
    assert len(read_sums(zoo / "many")) == 3
    keep(work, zoo, results, {}, pictures=False)
    assert RunFolder.open(results / "a").inputs()[0].thumbnail is None
    assert (zoo / "many" / "final-2.safetensors").exists()
    assert not (zoo / "many" / "SHA256SUMS").exists(), "what was kept before is replaced"
    keep(work, zoo, None, {"many": 0}, pictures=False)
    assert not list((zoo / "many").glob("*.safetensors"))


def test_weights_are_kept_while_a_job_that_is_not_kept_needs_them(
    tool: Callable[[str], ModuleType], fake_run: Callable[..., RunFolder], tmp_path: Path
) -> None:
    module, file, runs = tool("keep"), tmp_path / "sweep.yaml", tmp_path / "runs"
    file.write_text(
        "zoo: z\n"
        "always: {train: {data: default}}\ntrain: [{name: 'net-{i}', each: {i: [1, 2]}}, {name: tried}]\n"
        "certify: [{name: 'run-{i}', each: {i: [1, 2]}, settings: {model: 'zoo:z/net-{i}:0', sigma: 0.5}}]\n"
    )
    sweep = module.read(file, runs)
    for job in sweep.jobs[:3]:
        (sweep.work.path / job.out).mkdir(parents=True)
        (sweep.work.path / job.out / "config.json").write_text(json.dumps({"members": 1}))
        (sweep.work.path / job.out / "final-0.safetensors").touch()
    fake_run(sweep.work.path / "runs" / "run-1", 4).write_summary({})

    def weights() -> list[str]:
        module.keep_sweep(sweep, module.needed([sweep], tmp_path), tmp_path, {}, False)
        return sorted(path.parent.name for path in (tmp_path / "zoo" / "z").glob("*/*.safetensors"))

    assert weights() == ["net-1", "net-2"], "nothing was kept before: both runs need theirs"
    assert (tmp_path / "results" / "z" / "run-1" / "summary.json").exists()
    assert weights() == ["net-2"], "once its run is kept, a network's hash is enough"
    assert len(read_sums(tmp_path / "zoo" / "z" / "tried")) == 1
    assert [job.name for job in sweep.jobs if not job.done][-1] == "run-2"


def test_no_run_is_taken_for_that_of_another_sweep(tool: Callable[[str], ModuleType], tmp_path: Path) -> None:
    """Jobs are done whose runs results/ has under their names, wherever: so names must not stand for two things."""
    keep = tool("keep")
    root = Path(__file__).resolve().parents[2]
    kept = {path.parent.name: path.parents[1] for path in (root / "results").rglob("summary.json")}
    found = 0
    for sweep in [keep.read(file, tmp_path) for file in sorted(root.glob("reproduce/*/*.yaml"))]:
        for job in [one for one in sweep.jobs if one.command != "train" and one.name in kept]:
            place = keep.results_of(sweep).format(task=job.name.partition("-")[0])
            assert kept[job.name] == root / "results" / place, job.name
            found += 1
    assert found > 100
