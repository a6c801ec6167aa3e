"""A run folder from elsewhere is data: no command runs the code that it names unless it is told to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
from click.testing import Result
from foreign_models import saved_onnx, small_network

from ringfence.errors import ModelError
from ringfence.models import load_model
from ringfence.models.source import foreign_code, without_gradients

Call = Callable[..., Result]
SMALL = ("--steps", 1, "--copies", 1, "--n", 20, "--radii", "0.1", "--device", "cpu", "--quiet")


@pytest.fixture
def stranger(call: Call, models: Path, dots: Path, tmp_path: Path) -> Callable[..., Path]:
    """A run whose model says aloud that it is executed."""

    def run(*options: object) -> Path:
        words = ["--data", dots, "--sigma", 0.25, "--n", 100, "--batch", 100, "--quiet"]
        call("certify", *words, *(options or ("--model", f"{models}:build")), "--out", tmp_path / "run")
        seen = tmp_path / "executed"
        models.write_text(f"from pathlib import Path\nPath({str(seen)!r}).touch()\n" + models.read_text())
        return tmp_path / "run"

    return run


@pytest.mark.parametrize("members", [False, True])
def test_the_model_of_a_run_is_not_executed_unasked(
    call: Call, stranger: Callable[..., Path], models: Path, tmp_path: Path, members: bool
) -> None:
    run = stranger(*(("--members", f"{models}:build,{models}:build") if members else ()))
    told = call("attack", run, *SMALL, code=2).stderr.replace("\n", " ")
    assert f"would run {models}, and build() in it." in told
    assert "--trust" in told
    assert "--model" in told
    assert not (tmp_path / "executed").exists()


def test_it_is_with_trust_and_what_changed_is_named(call: Call, stranger: Callable[..., Path], tmp_path: Path) -> None:
    run = stranger()
    told = call("attack", run, *SMALL, "--trust", code=2).stderr.replace("\n", " ")
    assert "must be the model the run certified" in told
    assert "(the model changed: model code)" in told
    assert (tmp_path / "executed").exists()


def test_the_users_own_model_needs_no_trust(call: Call, models: Path, dots: Path, tmp_path: Path) -> None:
    words = ["--model", f"{models}:build", "--data", dots, "--sigma", 0.25, "--n", 100, "--batch", 100, "--quiet"]
    call("certify", *words, "--out", tmp_path / "run")
    call("attack", tmp_path / "run", *SMALL, "--model", f"{models}:build", "--json")
    call("attack", tmp_path / "run", *SMALL, "--trust", "--json")


def test_a_graph_without_gradients_is_not_to_be_trusted_first(call: Call, tmp_path: Path) -> None:
    """Trust would not help: whoever gives it is refused all the same."""
    random = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", x=random.integers(0, 256, (2, 3, 16, 16), np.uint8), y=[0, 1])
    graph = f"onnx:{saved_onnx(tmp_path / 'n.onnx', small_network())}"
    small = ("--sigma", 0.25, "--n", 100, "--batch", 50, "--device", "cpu", "--quiet", "--no-check")
    call("certify", *small, "--data", tmp_path / "d.npz", "--model", graph, "--out", tmp_path / "run")
    for more in ((), ("--trust",)):
        told = call("attack", tmp_path / "run", *SMALL, *more, code=2).stderr.replace("\n", " ")
        assert "must have gradients" in told
        assert "Attack the network that it was exported from." in told
        assert "--trust" not in told
    assert without_gradients(f"denoised(dncnn@d.safetensors, soft(default, {graph}))") == [graph]


def test_built_in_networks_are_attacked_as_before(call: Call, finished: dict[str, Path]) -> None:
    found = json.loads(call("attack", finished["fixed"], *SMALL, "--limit", 2, "--json").stdout)
    assert found["inputs"] == 2


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("default:1", []),
        ("zoo:mnist/gaussian-0.5:0", []),
        ("resnet20@weights.safetensors", []),
        ("checkpoint.pth.tar", []),
        ("ringfence.classifiers.architectures.lenet:wide_lenet", []),
        ("ringfence.classifiers.architectures:LeNet", []),
        (
            "ringfence.classifiers.architectures.lenet:nn",
            ["the module ringfence.classifiers.architectures.lenet, and nn() in it"],
        ),
        (
            "ringfence.classifiers.architectures:build_architecture",
            ["the module ringfence.classifiers.architectures, and build_architecture() in it"],
        ),
        (
            "ringfence.classifiers.architectures.resnet:LeNet",
            ["the module ringfence.classifiers.architectures.resnet, and LeNet() in it"],
        ),
        ("ringfence.cli:main", ["the module ringfence.cli, and main() in it"]),
        ("pkg.module:make@weights.pt", ["the module pkg.module, and make() in it"]),
        ("dir/file.py:make", ["dir/file.py, and make() in it"]),
        ("program.pt2", ["the program in program.pt2"]),
        ("denoised(f.py:clean, default)", ["f.py, and clean() in it"]),
        ("denoised(pkg:clean, default)", ["the module pkg, and clean() in it"]),
        ("denoised('default.py:clean', default)", ["default.py, and clean() in it"]),
        ("denoised(normalize(pkg:clean, mean=0, std=1), default)", ["the module pkg, and clean() in it"]),
        ("denoised(default:evil, default)", []),  # refused when it is loaded: the test below
        ("denoised(dncnn@d.safetensors, program.pt2)", ["the program in program.pt2"]),
        ("soft(default, 'f.py:clean', prefixes=true)", ["f.py, and clean() in it"]),
        ("aces(certify=default, core=hard(default:1, f.py:make), theta=0:1:0.5)", ["f.py, and make() in it"]),
        ("aces(certify=default, core=default, select=pick:me)", ["the module pick, and me() in it"]),
        (
            "ringfence.classifiers.architectures.x/evil.py:make",
            ["ringfence.classifiers.architectures.x/evil.py, and make() in it"],
        ),
        ("ringfence.classifiers.architectures.py:make", ["ringfence.classifiers.architectures.py, and make() in it"]),
    ],
)
def test_what_a_spec_would_execute(spec: str, told: list[str]) -> None:
    assert foreign_code(spec) == told


@pytest.mark.parametrize("leaf", ["default", "default:", "default:0", "default:evil", "default:evil@w.pt"])
@pytest.mark.parametrize("tree", ["denoised({}, default)", "denoised(normalize({}, mean=0, std=1), default)"])
def test_nothing_called_default_is_imported_as_a_denoiser(
    leaf: str, tree: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tree.format(leaf)
    monkeypatch.chdir(tmp_path)
    code = "from pathlib import Path\nPath('executed').touch()\nfrom torch import nn\nevil = nn.Identity\n"
    (tmp_path / "default.py").write_text(code)
    assert foreign_code(spec) == []
    with pytest.raises(ModelError, match="must be a denoiser"):
        load_model(spec)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("spec", ["default:", "default:evil", "default:0:1", "default:00", "default:3"])
def test_default_is_default_or_one_of_its_numbers(spec: str) -> None:
    with pytest.raises(ModelError, match="must be default:0 to default:2"):
        load_model(spec)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("classifier", "x"),
        ("classifier.tree", 5),
        ("classifier.tree", ["default"]),
        ("classifier.lanes", ["main"]),
        ("classifier.mean", "a"),
        ("data", []),
        ("data.size", "x"),
        ("data.count", "x"),
        ("data.split", 1),
        ("lift.norm_bound", "1"),
        ("procedure", "fixed"),
    ],
)
def test_settings_of_a_wrong_type_are_named_with_their_file(
    call: Call, finished: dict[str, Path], tmp_path: Path, key: str, value: object
) -> None:
    copytree(finished["fixed"], tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    first, _, second = key.partition(".")
    if second:
        config[first][second] = value
    else:
        config[first] = value
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    told = call("attack", tmp_path / "run", *SMALL, code=2).stderr.replace("\n", " ")
    assert "config.json: must be a run's settings" in told
    assert key in told


@pytest.mark.parametrize("where", ["import", "build", "call"])
def test_a_model_that_leaves_does_not_end_in_success(call: Call, dots: Path, tmp_path: Path, where: str) -> None:
    body = {
        "import": "import sys\nsys.exit(0)\ndef build(): pass\n",
        "build": "import sys\ndef build():\n    sys.exit(0)\n",
        "call": "import sys\nfrom torch import nn\n"
        "class Net(nn.Module):\n    def forward(self, x):\n        sys.exit(0)\n"
        "build = Net\n",
    }[where]
    (tmp_path / "leaving.py").write_text(body)
    words = ["--model", f"{tmp_path / 'leaving.py'}:build", "--data", dots, "--sigma", 0.25, "--out", tmp_path / "run"]
    told = call("certify", *words, code=2).stderr
    assert "SystemExit" in told or "sys.exit(0)" in told
    assert not (tmp_path / "run").exists()


def test_a_batch_beyond_memory_is_refused_before_anything_is_allocated(call: Call, tmp_path: Path) -> None:
    told = call("certify", "--sigma", 0.5, "--batch", 10**12, "--out", tmp_path / "run", code=2).stderr
    assert "batch: batches of inputs must fit into the" in told
    assert not (tmp_path / "run").exists()


def test_what_changed_is_named_when_a_run_goes_on(call: Call, models: Path, dots: Path, tmp_path: Path) -> None:
    words = ["--model", f"{models}:build", "--data", dots, "--sigma", 0.25, "--n", 100, "--batch", 100, "--quiet"]
    call("certify", *words, "--out", tmp_path / "run")
    models.write_text(models.read_text().replace("-0.5", "-0.4999999999999"))  # the same weights in float32
    told = call("certify", *words, "--out", tmp_path / "run", code=2).stderr
    assert "classifier.digest: the model changed: model code." in told.replace("\n", " ")


def test_two_inputs_with_one_id_are_refused_by_every_command(
    call: Call, models: Path, dots: Path, tmp_path: Path
) -> None:
    import numpy as np

    with np.load(dots) as file:
        np.savez(tmp_path / "twice.npz", x=file["x"], y=file["y"], index=np.arange(10) // 2)
    words = ["--model", f"{models}:build", "--data", tmp_path / "twice.npz", "--sigma", 0.25, "--n", 100]
    for _ in range(2):
        told = call("certify", *words, "--batch", 100, "--out", tmp_path / "run", code=2).stderr
        assert "every input must have an id of its own" in told
        assert not (tmp_path / "run").exists()
