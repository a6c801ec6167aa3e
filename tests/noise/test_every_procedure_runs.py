"""Every procedure under every family and form of noise: run, verified, stopped, continued, in the norm of its noise."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from every_procedure import CASES
from torch import Tensor
from toys import Buckets

import ringfence as rf
from ringfence.data import Dataset
from ringfence.store import StoreWarning

TREES = {
    "aces": "aces(certify=default, core=default:1, theta=0.5)",
    "after-smoothing": "lanes(default, default:1, votes=none, singles=true)",
}
"""What procedures want that do not ask a single network."""
NOISES = [kind(0.3, form) for kind in (rf.Gaussian, rf.Uniform, rf.Laplace) for form in ("float", "exact")]
NORMS = {"gaussian": "l2", "uniform": "l1", "laplace": "l1"}
every_noise = pytest.mark.parametrize("noise", NOISES, ids=lambda noise: f"{noise.name}-{noise.form}")


@pytest.mark.parametrize(
    "noise",
    [
        pytest.param(one, id=f"{one.name}-{one.form}", marks=[pytest.mark.slow] * (one.form == "float"))
        for one in NOISES
    ],
)
@pytest.mark.parametrize("name", [name for name in CASES if "," not in name])
def test_every_procedure_runs_and_verifies(name: str, noise: rf.Gaussian, tmp_path: Path) -> None:
    tree = next((tree for key, tree in TREES.items() if name.startswith(key)), "default")
    value = rf.Certification(tree, rf.Data("default", limit=1), noise=noise, procedure=CASES[name])
    run = value.run(tmp_path / "run", rf.Execution("cpu", batch=200))
    assert rf.verify(run) == []
    assert (run.config.noise.family, run.config.noise.form, run.config.norm) == (
        noise.name,
        noise.form,
        NORMS[noise.name],
    )
    record = next(iter(run.read()))
    assert record.prediction == record.label
    assert record.radius > 0 or "predict" in name


class Stop(Exception):
    """Stands for a crash."""


def steps(most: int) -> Dataset:
    """Twelve points of the lattice, ending in a crash when more than that are read."""
    x, read = torch.arange(0, 240, 20)[:, None].repeat(1, 3) / 255, iter(range(most))

    def one(position: int) -> Tensor:
        if next(read, None) is None:
            raise Stop
        return x[position]

    ids = list(range(12))
    return Dataset("steps", ids, [0] * 12, ids, one, str, (3,), lambda: "digest", 4)


@every_noise
def test_a_stopped_run_continues_to_the_same_records(noise: rf.Gaussian, tmp_path: Path) -> None:
    def into(folder: str, data: Dataset) -> list[dict[str, object]]:
        value = rf.Certification(Buckets(), data, noise=noise, procedure=rf.Sequential(0.1, n=1000))
        run = rf.certify_into(value, tmp_path / folder, rf.Execution("cpu", batch=50, check=False))  # it reads others
        assert rf.verify(run) == []
        return run.records().drop_columns(["seconds"]).to_pylist()

    whole = into("whole", steps(100))
    with pytest.raises(Stop):
        into("broken", steps(14))
    with pytest.warns(StoreWarning, match="not whole"):
        assert 0 < len(rf.RunFolder.open(tmp_path / "broken").records()) < len(whole)
    assert into("broken", steps(100)) == whole
