"""Every mistake a user can mend: exit code 2, a message with argument, rule, value and remedy, and nothing lost."""

from __future__ import annotations

import errno
import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import Result
from safetensors.torch import save_file

import ringfence as rf

Call = Callable[..., Result]
OK = ("--sigma", "0.5", "--limit", "2", "--n", "100", "--batch", "50")


def usual(*options: object) -> list[object]:
    """What is OK, but for what these options say otherwise; staged has no n."""
    given = {*options, *(["--n"] if "staged" in options else [])}
    return [word for pair in zip(OK[::2], OK[1::2], strict=True) if pair[0] not in given for word in pair]


def refused(call: Call, *words: object) -> str:
    """The message of a refusal, on standard error, with nothing on standard output."""
    result = call(*words, code=2)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr


# options -> (argument, rule, value received, remedy), each as it appears in the message
SETTINGS: list[tuple[list[object], tuple[str, ...]]] = [
    (["--sigma", 0], ("error: --sigma:", "positive number", "got 0", "0.25")),
    (["--sigma", -1], ("error: --sigma:", "positive number", "got -1", "0.25")),
    (["--sigma", "nan"], ("error: --sigma:", "positive number", "got nan", "0.25")),
    (["--alpha", 0], ("error: --alpha:", "strictly between 0 and 1", "got 0", "0.001")),
    (["--alpha", 1], ("error: --alpha:", "strictly between 0 and 1", "got 1", "0.001")),
    (["--alpha", 1e-300, "--radius", 0.1], ("error: --alpha:", "at least 1e-200", "got 1e-300", "0.001")),
    (["--alpha", 1e-300, "--n", 100], ("error: --alpha:", "at least 1e-200", "got 1e-300", "0.001")),
    (
        ["--alpha", 2e-200, "--members", "default,default:1", "--singles", "--split-alpha"],
        ("error: --alpha:", "at least 1e-200 for each lane", "got 2e-200 over 3 lanes", "leave --split-alpha out"),
    ),
    (["--procedure", "two-sided", "--lower-share", 1e-150], ("error: --lower-share:", "[1e-09, 1)", "got 1e-150")),
    (["--alpha", 1.5], ("error: --alpha:", "strictly between 0 and 1", "got 1.5", "0.001")),
    (["--n", 0], ("error: --n:", "at least 1", "got 0", "100000")),
    (["--n", -5], ("error: --n:", "at least 1", "got -5", "100000")),
    (["--n0", 0], ("error: --n0:", "at least 1", "got 0", "usual value is 100")),
    (["--radius", 3], ("error: --radius:", "can prove more than", "got 3", "Raise --n or --sigma.")),
    (["--radius", -0.5], ("error: --radius:", "at least 0", "got -0.5", "pixel units")),
    (["--radius", 0.1, "--beta", 0], ("error: --beta:", "strictly between 0 and 1", "got 0", "0.001")),
    (
        ["--beta", 0.1],
        ("error: --beta:", "no setting of the fixed procedure", "got 0.1", "It knows --alpha, --n0, --n."),
    ),
    (
        ["--procedure", "fixed", "--radius", 0.1],
        ("error: --radius:", "no setting of the fixed", "got 0.1", "It knows --alpha, --n0, --n."),
    ),
    (
        ["--procedure", "sequential"],
        ("error: --radius:", "needed by the sequential procedure", "got none", "Give --radius,"),
    ),
    (
        ["--procedure", "sequental", "--radius", 1],
        ("error: --procedure:", "one of", "got sequental", "mean sequential?"),
    ),
    (
        ["--procedure", "staged", "--radius", 0.1, "--stages", "5,x"],
        ("--stages", "whole number", "got 'x'", "1000,10000"),
    ),
    (["--procedure", "staged", "--radius", 0.1, "--stages", "1.5"], ("--stages", "whole", "got 1.5", "1000,10000")),
    (["--procedure", "staged", "--radius", 0.1, "--stages", "inf"], ("--stages", "whole", "got inf", "1000,10000")),
    (["--procedure", "anytime", "--tolerance", 2], ("error: --tolerance:", "[0, 1)", "got 2", "0.02")),
    (["--procedure", "anytime", "--seconds", 0], ("error: --seconds:", "positive", "got 0", "Leave it out")),
    (["--radius", 0.1, "--larger", "0.05"], ("--larger", "above the radius 0.1", "0.05", "Write e.g. 0.2")),
    (
        ["--mechanism", "neyman-person"],
        ("error: --mechanism:", "must be one of", "neyman-person", "mean neyman-pearson?"),
    ),
    (["--model", "defualt"], ("defualt", "must be default, zoo:NAME", "'defualt'", "mean 'default'?")),
    (["--model", "lenet"], ("lenet", "needs trained weights", "none", "--weights")),
    (["--model", "default:9"], ("default:9", "default:0 to default:2", "'9'", "Choose")),
    (["--data", "minst:somewhere"], ("minst", "known data set", "minst", "mean 'mnist'?")),
    (["--data", "mnist"], ("mnist", "place of the files", "none", "mnist:PATH")),
    (["--data", "nowhere.npz"], ("nowhere.npz", "must exist", "no such file", "Check the path")),
    (["--data", "nowhere/"], ("nowhere", "must exist", "no such file", "Check the path")),
    (["--data", __file__], ("test_bad_input.py", "a folder", "test_bad_input.py", "Put pictures into a folder")),
    (["--noise", "normal"], ("error: --noise:", "must be one of gaussian", "'normal'", "mean gaussian?")),
    (["--noise-form", "exakt"], ("error: --noise-form:", "must be float or exact", "'exakt'", "mean exact?")),
    (["--noise", "unifrom"], ("error: --noise:", "must be one of gaussian", "'unifrom'", "mean uniform?")),
    (["--batch", 0], ("--batch", "number of rows", "got 0", "auto")),
    (["--batch", "many"], ("--batch", "number of rows", "'many'", "auto")),
    (["--device", "toaster"], ("error: --device:", "auto, cpu, cuda", "toaster", "Use auto")),
    (["--precision", "fp8"], ("error: --precision:", "must be one of", "fp8", "Use fp32")),
    (["--skip", 0], ("--skip", "at least 1", "got 0", "Leave it out")),
    (["--limit", 0], ("--limit", "at least 1", "got 0", "Leave it out")),
    (["--max", 0], ("error: --max:", "at least 1", "got 0", "Leave it out")),
    (["--size", -3], ("error: --size:", "at least 1", "got -3", "such as 224")),  # told once, although two look at it
    (["--seed", 2**64], ("error: --seed:", "64 bits", str(2**64), "will do")),
    (["--split", "validation"], ("--split", "test, train, val", "validation", "Choose")),
    (["--mean", 0.5], ("--mean, --std", "together", "only one", "Give both")),
    (["--mean", "a", "--std", 1], ("--mean", "numbers", "'a'", "Write")),
    (["--mean", 0.5, "--std", 0], ("error: --std:", "positive", "[0.0]", "deviations")),
    (["--classes", 7], ("10", "7", "head.5")),
    (
        ["--classes", 10**23],
        ("error: --classes:", "at most 2147483647", f"got {10**23}", "Leave it out"),
    ),
]


def test_data_without_inputs_begins_no_run(call: Call, tmp_path: Path) -> None:
    np.savez(tmp_path / "none.npz", x=np.zeros((0, 1, 28, 28), np.uint8), y=np.zeros(0, int))
    message = refused(call, "certify", *usual(), "--data", tmp_path / "none.npz", "--out", tmp_path / "run")
    assert "error: --data: must have inputs; got none." in message
    (tmp_path / "words.npz").write_text("hello")
    message = refused(call, "certify", *usual(), "--data", tmp_path / "words.npz", "--out", tmp_path / "run")
    assert "must be a readable .npz of plain arrays; got other bytes." in message, "and no advice of numpy's"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("options", "parts"), SETTINGS, ids=lambda value: " ".join(map(str, value))[:40])
def test_settings(call: Call, tmp_path: Path, options: list[object], parts: tuple[str, ...]) -> None:
    message = refused(call, "certify", *usual(*options), *options, "--out", tmp_path / "run")
    for part in parts:
        assert part in message, f"{part!r} is not in {message!r}"
    assert not (tmp_path / "run").exists()


def test_fast_is_refused_where_half_precision_is_slow(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {"avx2": True, "bf16": False})
    message = refused(call, "certify", *OK, "--fast", "--device", "cpu", "--out", tmp_path / "run")
    assert "error: --fast: needs a GPU, or a CPU with instructions for bf16; got device cpu without them." in message
    assert not (tmp_path / "run").exists()


def test_settings_are_checked_together_before_anything_is_loaded(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*args: object, **options: object) -> None:
        raise AssertionError("something was loaded")

    monkeypatch.setattr("ringfence.loaded.load_model", load)
    monkeypatch.setattr("ringfence.data.choice.load_dataset", load)
    for options in (["--alpha", 2], ["--seed", 2**64], ["--batch", "x"], ["--radius", 9], ["--mechanism", "x"]):
        refused(call, "certify", *usual(*options), *options, "--out", tmp_path / "run")


@pytest.mark.parametrize(
    ("factory", "parts"),
    [
        ("raises", ("factory must build the model", "RuntimeError: no such file of mine", "Call the factory")),
        ("number", ("must return a torch.nn.Module", "a int", "Return the network")),
        ("nothing", ("must name a function or class", "no callable 'nothing'", "build", "after the colon")),
        ("nan", ("classifier", "finite scores", "NaN or infinite", "--mean and --std")),
        ("flat", ("classifier", "(B, K)", "got (4,)", "Return logits")),
        ("coupled", ("classifier", "every row alone", "batch statistics", "eval mode")),
    ],
)
def test_models(call: Call, tmp_path: Path, models: Path, dots: Path, factory: str, parts: tuple[str, ...]) -> None:
    words = ["certify", *OK, "--model", f"{models}:{factory}", "--data", dots, "--out", tmp_path / "run"]
    message = refused(call, *words)
    for part in parts:
        assert part in message, f"{part!r} is not in {message!r}"


def test_models_and_data_that_do_not_belong_together(call: Call, tmp_path: Path, models: Path, dots: Path) -> None:
    message = refused(call, "certify", *OK, "--data", dots, "--out", tmp_path / "run")
    assert "classifier: must accept a batch of shape (1, 1, 2, 2)" in message
    assert "Give inputs of the shape that it was made for" in message
    np.savez(tmp_path / "three.npz", x=np.zeros((3, 2, 2), np.float32), y=np.array([0, 1, 2]))
    words = ["--model", f"{models}:build", "--data", tmp_path / "three.npz"]
    message = refused(call, "certify", "--sigma", 0.5, "--n", 100, *words, "--out", tmp_path / "run")
    assert "labels must be 0 to 1 (2 classes)" in message
    assert "label 2 at index 2" in message
    assert not (tmp_path / "run").exists()


def test_weights_that_do_not_fit(call: Call, tmp_path: Path, models: Path, dots: Path) -> None:
    words = ["certify", *OK, "--model", f"{models}:build", "--data", dots, "--out", tmp_path / "run", "--weights"]
    save_file({"1.weight": torch.zeros(2, 4), "2.bias": torch.zeros(2)}, tmp_path / "named.safetensors")
    assert "key '1.bias' missing" in refused(call, *words, tmp_path / "named.safetensors")
    save_file({"1.weight": torch.zeros(2, 9), "1.bias": torch.zeros(2)}, tmp_path / "shaped.safetensors")
    assert "'1.weight' of shape (2, 9)" in refused(call, *words, tmp_path / "shaped.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(b"abc")
    assert "must be a safetensors file" in refused(call, *words, tmp_path / "cut.safetensors")
    assert "must be an existing file" in refused(call, *words, tmp_path / "absent.safetensors")


def test_a_pickle_of_something_else_is_not_run(call: Call, tmp_path: Path, models: Path, dots: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str, str]]:
            return open, (str(tmp_path / "trapped"), "w")

    (tmp_path / "trap.pt").write_bytes(pickle.dumps(Trap()))
    words = ["--model", f"{models}:build", "--data", dots, "--weights", tmp_path / "trap.pt"]
    assert "plain tensors" in refused(call, "certify", *OK, *words, "--out", tmp_path / "run")
    assert not (tmp_path / "trapped").exists()


def test_places_that_cannot_be_written(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    told = "--out {}: {}; got file, a file. Choose another --out."
    for place, rule in (
        (tmp_path / "file", "must be a run or an empty folder"),
        (tmp_path / "file" / "run", "must be a folder below folders"),
    ):
        assert told.format(place, rule) in refused(call, "certify", *OK, "--out", place)
    assert (tmp_path / "file").read_text() == "mine"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine")
    message = refused(call, "certify", *OK, "--out", tmp_path / "full")
    assert f"--out {tmp_path / 'full'}: must be a run or an empty folder" in message
    assert "Choose another --out." in message
    assert "thesis.tex" in message
    if os.geteuid() != 0:
        (tmp_path / "locked").mkdir(mode=0o500)
        assert "Choose a folder you may write to" in refused(call, "certify", *OK, "--out", tmp_path / "locked" / "run")


def test_a_table_that_cannot_be_written_is_told_before_the_run(call: Call, tmp_path: Path) -> None:
    message = refused(call, "certify", *OK, "--csv", tmp_path, "--out", tmp_path / "run")
    assert f"error: --csv: must be the name of a file; got {tmp_path}, a folder. Name a file in it." in message
    assert not (tmp_path / "run").exists()


def test_folders_and_long_names_in_the_place_of_files(call: Call, tmp_path: Path, finished: dict[str, Path]) -> None:
    for place, remedy in (
        (tmp_path, "Name a file, not a folder."),
        (tmp_path / ("x" * 300), "Choose a shorter name."),
    ):
        assert remedy in refused(call, "export", "csv", finished["fixed"], "--out", place)


@pytest.mark.parametrize("command", ["rank", "variance", "weights"])
@pytest.mark.parametrize("count", [-1, 0, 10**23])
def test_numbers_of_classes_that_no_network_has(call: Call, command: str, count: int) -> None:
    words = [command, "--members", "default,default:1", "--sigma", 0.5, "--limit", 2, f"--classes={count}"]
    assert f"error: --classes: must be at least 2 and at most 2147483647; got {count}." in refused(call, *words)


def test_a_full_disk_keeps_what_was_written(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync, left = os.fsync, [6]

    def fills_up(descriptor: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    words = ["certify", *OK, "--out", tmp_path / "run"]
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fills_up)
        message = refused(call, *words)
    assert "No space left on device" in message
    assert "same command continues" in message
    call(*words)
    assert len(rf.RunFolder.open(tmp_path / "run").read()) == 2
    assert not list((tmp_path / "run").rglob(".writing-*"))


def test_changed_settings_are_refused_by_name(call: Call, tmp_path: Path) -> None:
    call("certify", *OK, "--out", tmp_path / "run")
    before = rf.RunFolder.open(tmp_path / "run").records()
    words = ["--sigma", 0.25, "--limit", 2, "--n", 200, "--batch", 50, "--seed", 3]
    message = refused(call, "certify", *words, "--out", tmp_path / "run")
    for part in ("sigma: 0.25 now, 0.5", "procedure.n: 200 now, 100", "seed: 3 now, 0", "another --out"):
        assert part in message
    assert "alpha" not in message
    assert rf.RunFolder.open(tmp_path / "run").records().equals(before)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["metrics", "nowhere"], ("nowhere", "run folder or a log", "nothing there", "Check the path")),
        (["certify", "no.yaml"], ("no.yaml", "YAML or JSON file", "got No such file or directory.", "Check the file")),
        (["certify", "."], ("YAML or JSON file", "got Is a directory.", "Name a run folder by --out.")),
        (
            ["train", "--data", "default", "--objective", "dtr", "--out", "x"],
            ("--objective", "'dtr'", "Did you mean drt?"),
        ),
        (
            ["train", "--data", "default", "--rho1", "1", "--out", "x"],
            ("gaussian has the settings copies", "got 1.0", "rho1 belongs to the objectives drt."),
        ),
        (
            ["train", "--data", "default", "--objective", "drt", "--set", "rho=1", "--out", "x"],
            ("drt has the settings", "Did you mean rho"),
        ),
        (["metrics", "nowhere", "--radii", "a"], ("--radii", "numbers", "'a'", "Write")),
        (
            ["metrics", "nowhere", "--format", "csv"],
            ("--format", "must be one of auto, run, cohen", "'csv'", "Use auto"),
        ),
        (["metrics", "nowhere", "--sigma", "-1"], ("error: --sigma:", "positive", "-1", "0.25")),
        (["verify", "nowhere"], ("nowhere", "run folder", "nothing there", "a certification wrote")),
        (["verify", __file__], ("must be JSON", "Give a certificate, or the folder of a run.")),
        (["info", "nowhere"], ("nowhere", "run folder", "nothing there", "a certification wrote")),
        (["export", "cohen", "nowhere"], ("nowhere", "run folder", "nothing there", "a certification wrote")),
        (["import", "cohen", "nowhere", "--sigma", "1", "--out", "run"], ("nowhere", "readable", "Check the path")),
        (["plan", "--sigma", "0"], ("error: --sigma:", "positive", "got 0", "0.25")),
        (["plan", "--sigma", "1", "--inputs", "0"], ("--inputs", "at least 1", "got 0", "how many")),
        (
            ["plan", "--sigma", "1", "--data", "x.npz"],
            ("error: --model:", "--data is of use with a model", "got none", "Add --model, or leave --data out."),
        ),
        (
            ["plan", "--sigma", "1", "--weights", "w.pt", "--device", "cpu"],
            (
                "--model",
                "--weights, --device are of use with a model",
                "leave --weights, --device out",
            ),
        ),
        (
            ["plan", "--sigma", "1", "--procedure", "fixed", "--radius", "half"],
            ("error: --radius:", "must be a number", "got 'half'"),
        ),
        (
            ["plan", "--sigma", "1", "--procedure", "anytime", "--radius", "-1"],
            ("error: --radius:", "must be at least 0", "got -1"),
        ),
        (
            ["attack", "nowhere", "--seed", "-1"],
            ("--seed:", "must lie in [0, 4.29497e+09]", "got -1", "usual value is 1"),
        ),
        (
            ["attack", "nowhere", "--limit", "9" * 20],
            ("--limit:", "must lie in [1,", "got 99999999999999999999", "Leave it out"),
        ),
        (["plan", "--sigma", "1", "--alpha", "7"], ("error: --alpha:", "between 0 and 1", "got 7", "0.001")),
        (
            ["plan", "--sigma", "1", "--procedure", "staged"],
            ("error: --radius:", "needed by the staged", "none", "Give --radius,"),
        ),
    ],
)
def test_other_commands(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], parts: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    message = refused(call, *words)
    for part in parts:
        assert part in message, f"{part!r} is not in {message!r}"
    assert not list(tmp_path.iterdir())


def test_a_log_with_bad_rows_names_the_line(call: Call, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t3\t3\t0.5\t1\t0:00:01\n1\t3\tcat\t0.5\t1\t0:00:01\n2\t3\t3\t0.1\t1\t1\n"
    )
    for words in (["metrics", log], ["import", "cohen", log, "--sigma", 0.25, "--out", tmp_path / "run"]):
        message = refused(call, *words)
        assert "line 3" in message
        assert "Mend or remove this line" in message


def test_a_model_that_ends_the_program_does_not_end_it_well(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "leaves.py"
    file.write_text(
        "import sys\nfrom torch import nn\nclass Leaves(nn.Module):\n    def forward(self, x):\n        sys.exit(0)\n"
    )
    message = refused(call, "certify", *OK, "--model", f"{file}:Leaves", "--out", tmp_path / "run")
    assert "SystemExit(0) while it ran" in message
    assert "Remove sys.exit" in message


def test_a_batch_that_no_memory_holds(call: Call, tmp_path: Path) -> None:
    message = refused(call, "certify", "--sigma", 1, "--limit", 1, "--batch", 10**12, "--out", tmp_path / "run")
    assert "must fit into the" in message
    assert "1000000000000 rows" in message
    assert "Use auto" in message


def problems(told: str) -> int:
    """How many mistakes were told at once."""
    return int(told.split("error: ")[1].split(" problems:")[0])


def test_model_weights_and_data_are_told_together(call: Call, tmp_path: Path) -> None:
    wrong = ("--model", "nosuch", "--weights", tmp_path / "no.pt", "--data", tmp_path / "no.npz")
    told = refused(call, "certify", *OK, *wrong, "--out", tmp_path / "run")
    assert problems(told) == 3
    assert all(word in told for word in ("nosuch: must be default", "no.pt: must be", "no.npz"))
    told = refused(call, "certify", "--sigma", -1, *wrong, "--out", tmp_path / "run")
    assert problems(told) == 4, "and what is wrong before anything is loaded"
    words = ("--sigma", -1, "--mean", "a", "--std", "b", "--members", "default", "--consensus", 1.5)
    told = refused(call, "certify", *words, "--out", tmp_path / "run")
    assert all(f"- --{name}: must" in told for name in ("sigma", "mean", "std", "consensus")), told
    tree = f"soft(nosuch, lenet@{tmp_path / 'no.pt'})"
    assert problems(refused(call, "certify", *OK, "--model", tree, "--out", tmp_path / "run")) == 2


def test_all_wrong_options_of_train_are_told_together(call: Call, tmp_path: Path) -> None:
    wrong = ("--objective", "gausian", "--epochs", 0, "--lr", -1, "--lr-every", 0, "--arch", "lenett")
    told = refused(call, "train", "--data", tmp_path / "no.npz", *wrong, "--out", tmp_path / "ckpt")
    assert problems(told) == 6
    named = ("--objective: must", "--epochs: must", "--lr: must", "--lr-every: must", "--arch: must", "no.npz")
    assert all(word in told for word in named), told


def test_all_wrong_options_of_attack_are_told_together(call: Call, tmp_path: Path, finished: dict[str, Path]) -> None:
    wrong = ("--radii", "0.5,-1", "--steps", 0, "--attack", "pdg", "--n", 0, "--batch", 0)
    told = refused(call, "attack", tmp_path / "no", *wrong)
    assert problems(told) == 6
    named = ("--radii: must", "--steps: must", "--attack: must", "--n: must", "--batch: must", "must be a run folder")
    assert all(word in told for word in named), told
    told = refused(call, "attack", finished["fixed"], "--model", "nosuch", "--data", tmp_path / "no.npz")
    assert problems(told) == 2


def test_a_setting_of_another_objective_is_named_as_it_was_written(call: Call, tmp_path: Path) -> None:
    told = refused(call, "train", "--data", "default", "--rho1", 0.5, "--out", tmp_path / "ckpt")
    assert told.startswith("error: --rho1: gaussian has the settings")
    assert "got 0.5. rho1 belongs to the objectives drt." in told
    assert "--set" not in told


def test_names_may_be_written_with_hyphens_and_underscores(call: Call, tmp_path: Path) -> None:
    members = ("--members", "default,default:1", "--sigma", 0.5, "--save", tmp_path / "job.yaml")
    for one, other in (("max_margin", "max-margin"), ("max-margin", "max-margin")):
        call("certify", *members, "--vote", one)
        assert other in (tmp_path / "job.yaml").read_text()
    for name in ("after_smoothing", "after-smoothing"):
        call("certify", *members, "--procedure", name)
        assert "name: after-smoothing" in (tmp_path / "job.yaml").read_text()
    out = ("--data", "default", "--out", tmp_path / "ckpt", "--epochs", 0)
    told = refused(call, "train", "--objective", "denoise_mse", "--schedule", "one_cycle", *out)
    assert "objective" not in told
    assert "schedule" not in told


def test_all_wrong_options_are_told_together(call: Call) -> None:
    words = ("certify", "--sigmaa", "0.5", "--limit", "few", "--foo=3", "--skip", "2.5", "--out", "r", "--alpha")
    told = " ".join(call(*words, code=2).stderr.replace("│", " ").split())
    for part in ("No such option: --sigmaa", "No such option: --foo", "--limit", "'few'", "--skip", "'2.5'", "--alpha"):
        assert part in told, part
    assert "No such option: --sigmaa" in call("certify", "--sigmaa", "0.5", code=2).stderr
    assert "got 'few'" in call("certify", "--limit", "few", code=2).stderr


def test_a_comma_in_a_number_is_answered_with_a_point(call: Call, tmp_path: Path) -> None:
    told = call("certify", "--sigma", "0,25", "--radius", "x", "--n", "1,000", "--out", tmp_path / "run", code=2).stderr
    lines = " ".join(told.replace("│", " ").split())
    assert "Write 0.25." in lines
    assert "--radius: must be a number; got 'x'." in lines, "although it is checked elsewhere"
    assert "Write 1000." in lines
    told = refused(call, "certify", "--sigma", 0.25, "--radius", "0,5", "--n", "1,000", "--out", tmp_path / "run")
    assert "--radius: must be a number; got '0,5'. Write 0.5." in told
    assert "--n: must be a whole number; got '1,000'. Write 1000." in told
    for written, meant in (("1e3", "Write 1000."), ("2.5E+2", "Write 250."), ("1.5e0", "got '1.5e0'.")):
        told = call("rank", "--members", "default,default:1", "--sigma", 0.25, "--draws", written, code=2).stderr
        assert meant in " ".join(told.replace("│", " ").split())


def test_pixels_from_0_to_255_are_told_one_remedy(call: Call, tmp_path: Path) -> None:
    """The warning of the range names none: for a network with its own normalisation it would be another one."""
    np.savez(tmp_path / "loud.npz", x=np.arange(2 * 784, dtype=np.float32).reshape(2, 1, 28, 28) % 256, y=[0, 1])
    with warnings.catch_warnings(action="always"):
        told = refused(call, "certify", *OK, "--data", tmp_path / "loud.npz", "--out", tmp_path / "run")
    assert "inputs range over [0, 255], not [0, 1]" in told.replace("\n", " ")
    assert "Give --range 0..255, or divide by 255" in told.replace("\n", " ")
    assert "mean" not in told


def test_inputs_off_the_lattice_are_told_which_noise_takes_them(call: Call, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.full((2, 1, 28, 28), 0.123, np.float32), y=[0, 1])
    words = ("--data", tmp_path / "d.npz", "--noise-form", "exact", "--out", tmp_path / "run")
    told = refused(call, "certify", *OK, *words).replace("\n", " ")
    assert "exact noise needs inputs on the lattice of step 1/255" in told
    assert "or use float noise: --noise-form float" in told
    assert "Mend the data" not in told, "it is not broken"
    call("certify", *OK, "--no-check", *words[:2], "--noise-form", "float", *words[-2:])


def test_the_table_of_a_run_is_written_into_a_folder_that_is_not_there_yet(call: Call, tmp_path: Path) -> None:
    """After the run it is late to hear that there is none."""
    table = tmp_path / "tables" / "today" / "answers.csv"
    call("certify", *OK, "--out", tmp_path / "run", "--csv", table)
    assert len(table.read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["report", "out", "--out", "page.html"], "out: must"),
        (["attack", "data"], "data: must"),
        (["plot", "kind", "--kind", "curve", "--out", "a.png"], "kind: must"),
        (["certify", "model", "--out", "run"], "model: must"),
        (["aces", "frontier", "radii"], "radii: must"),
        (["export", "csv", "out"], "out: must"),
        (["seal", "key", "--key", "key"], "key: must"),
        (["serve", "jobs", "--port", "0"], "jobs: must"),
        (["sweep", "data"], "data: must"),
        (["sweep", "good.yaml", "--unpack", "out"], "--unpack out: must hold archives"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
@pytest.mark.parametrize("there", [False, True], ids=["missing", "empty folder"])
def test_what_is_called_like_an_option_is_told_as_it_was_written(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str, there: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text("certify:\n- name: one\n  settings: {sigma: 0.5, limit: 2, n: 100}\n")
    if there:
        (tmp_path / message.split(":")[0].split()[-1]).mkdir()
    assert f"error: {message}" in refused(call, *words)
