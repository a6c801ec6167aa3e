"""A sweep file becomes jobs that fit together, or one error that names everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.errors import DataError, RingfenceError
from ringfence.sweep import Sweep
from ringfence.sweep.document import combinations, filled, read_document
from ringfence.sweep.read import ENTRY, SWEEP

Read = Callable[..., Sweep]


def test_braces_take_every_combination_and_values_stay_as_written(sweep: Read) -> None:
    found = sweep(
        "zoo: z\nshared: {end: '{s}-{r}', more: {x: 7}}\n"
        "train: [{name: 'net-{s}', each: {s: [1.0, 0.10]}, use: [more]}]\n"
        "certify: [{name: 'run-{end}', each: [{s: 1.0, r: [3, 0:1:0.01]}, {s: 0.10, r: 5}],"
        " settings: {x: 'zoo:z/net-{s}:0'}, minutes: 1.5}]\n".replace("0:1:0.01", "1e-3")
    )
    assert [job.name for job in found.jobs] == ["net-1.0", "net-0.10", "run-1.0-3", "run-1.0-1e-3", "run-0.10-5"]
    assert found.jobs[0].words == ("train", "--x", "7", "--out", "zoo/z/net-1.0")
    last = found.jobs[-1]
    assert last.words == ("certify", "--x", "zoo:z/net-0.10:0", "--out", "runs/run-0.10-5")
    assert (last.needs, last.minutes, last.entry) == (("train net-0.10",), 1.5, "run-{end}")


def test_numbers_are_no_times_of_day_and_words_no_truth(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text("a: [0:1:0.01, 1:30, yes, 010, 1_000, 2020-01-01, true, false, null, ~]\n")
    assert read_document(file)["a"] == [
        *["0:1:0.01", "1:30", "yes", "010", "1_000", "2020-01-01"],
        *[True, False, None, None],
    ]


def test_nearer_settings_win_and_tiny_ones_over_all(sweep: Read) -> None:
    text = (
        "always: {train: {x: always, bad: 1}}\nfull: {train: {long: full}}\ntiny: {train: {x: tiny}}\n"
        "shared: {s: {x: shared}}\ntrain:\n- {name: a}\n- {name: b, use: [s]}\n"
        "- {name: c, use: [s], settings: {x: own}, tiny: {bad: 2}}\n- {name: d, settings: --x 'two words'}\n"
    )
    assert [" ".join(job.words[1:-2]) for job in sweep(text).jobs] == [
        "--x always --bad 1 --long full",
        "--x shared --bad 1 --long full",
        "--x own --bad 1 --long full",
        "--x two words --bad 1 --long full",
    ]
    assert [" ".join(job.words[1:-2]) for job in sweep(text, tiny=True).jobs[:3]] == [
        "--x tiny --bad 1",
        "--x tiny --bad 1",
        "--x tiny --bad 2",
    ]


def test_a_value_that_is_nothing_but_a_name_keeps_its_kind() -> None:
    assert filled("{a}", {"a": None}) is None
    assert filled(["{a}", "{a}-{b}"], {"a": True, "b": [1, "c"]}) == [True, "true-1,c"]
    assert list(combinations({"a": [1, 2], "b": 3})) == [{"a": 1, "b": 3}, {"a": 2, "b": 3}]


def test_all_problems_are_told_at_once_with_their_lines(sweep: Read) -> None:
    text = """nonsense: 1
shared: {odd: [1]}
train:
- name: a
  settings: {sigm: 1}
- name: a
  settings: {x: wrong}
- {name: b, wrds: 1}
- name: ../c
- name: d-{nothing}
- {name: e, needs: [nobody], minutes: soon}
- {name: f, settings: {out: here}}
- {name: g, use: [odd]}
- just text
certify:
- {name: h, settings: {x: "zoo:sweep/absent:0"}}
- {name: i, settings: {x: runs/j}}
- {name: j, settings: {x: runs/i}}
- {name: h, settings: {x: runs/nowhere/parts}}
- {name: k, each: [1]}
- {name: l, each: {a: [[1]]}}
- {each: {a: [1]}}
"""
    with pytest.raises(DataError) as error:
        sweep(text)
    told = str(error.value)
    for part in (
        "unknown key 'nonsense'",
        "shared, odd: must be a text, or a mapping",
        "line 4, train a: sigm: must be an option of train",
        "line 6, train a: x: must not be wrong",
        "line 8, train b: unknown key 'wrds'",
        "'../c' is no name of a folder",
        "nothing says what {nothing} is",
        "minutes: must be a number of at least 0; got 'soon'",
        "out: the sweep says where results go",
        "'odd' is no mapping under shared",
        "train 9: must be a mapping",
        "zoo/sweep/absent is made by no job of this file, and no zoo has it",
        "runs/nowhere is made by no job",
        "the job of line 16 has the same name",
        "jobs wait for each other: certify",
        "each must be a mapping of lists",
        "each holds texts and numbers",
        "a job needs a name",
    ):
        assert part in told, part
    assert "Traceback" not in told


def test_those_that_wait_for_a_wrong_job_are_not_wrong(sweep: Read) -> None:
    with pytest.raises(DataError, match=r"1 problem\n.*train net: x: must not be wrong"):
        sweep("train: [{name: net, settings: {x: wrong}}]\ncertify: [{name: a, settings: {x: 'zoo:sweep/net:0'}}]")


def test_the_last_problem_ends_in_one_full_stop(sweep: Read) -> None:
    with pytest.raises(DataError, match=r"[^.]\. See docs/sweep\.md\.$"):
        sweep("train: [{name: net, settings: {x: wrong}}]")


def test_a_mistake_in_every_job_of_a_grid_is_told_once(sweep: Read) -> None:
    with pytest.raises(DataError, match=r"1 problem\nline 1, train a\{i\} \(a1\): x: must not be wrong"):
        sweep("train: [{name: 'a{i}', each: {i: [1, 2, 3]}, settings: {x: wrong}}]")


def test_names_may_be_any_value_of_a_grid(sweep: Read) -> None:
    assert [job.name for job in sweep("train: [{name: '{x}', each: {x: [true, 1.0, a]}}]").jobs] == ["true", "1.0", "a"]


def test_needs_that_nobody_makes_are_told(sweep: Read) -> None:
    with pytest.raises(DataError, match="needs: no job is called 'nobody'"):
        sweep("train: [{name: e, needs: [nobody]}]")
    found = sweep("train: [{name: e, needs: [f]}, {name: f}]\ncertify: [{name: e, needs: [e]}]")
    assert [job.needs for job in found.jobs] == [("train f",), (), ("train e",)]


def test_trainings_made_elsewhere_are_found_in_zoos(sweep: Read, tmp_path: Path) -> None:
    (tmp_path / "zoo" / "cifar10" / "net").mkdir(parents=True)
    (tmp_path / "zoo" / "cifar10" / "net" / "final-0.safetensors").touch()
    (tmp_path / "zoo" / "mnist").mkdir()
    (tmp_path / "zoo" / "mnist" / "lone.safetensors").touch()
    text = "certify: [{name: a, settings: {x: 'soft(zoo:cifar10/net:0, zoo:mnist/lone)'}}]"
    assert sweep(text, zoos=[tmp_path / "none", tmp_path / "zoo"]).given == [Path("cifar10/net"), Path("mnist/lone")]


LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12))
MERGED = "a0: &a0 {x: y}\n" + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 9))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (LAUGHS, "at most 50,000 values"),
        (MERGED, "at most 50,000 values"),
        ("a: &a [*a]", "recursive|at most"),
        ("[" * 100_000, "nested less deeply|must be YAML"),
        ("train: {a: 1", "line 1"),
        ("a: 1\na: 2", "line 2: the key 'a' stands twice"),
        ("? [1, 2]\n: 3", "must be text"),
        ("- 1\n- 2", "must be a mapping"),
        ("", "must be a mapping"),
        ("!!python/object/apply:os.system [true]", "could not determine a constructor"),
        ("a: !!int x", "could not determine a constructor"),
        ("a: !!bool {}", "expected a scalar"),
        ("a: !!timestamp x", "could not determine"),
        ("a: !!float {}", "must be YAML"),
        ("train: 7", "train: must be a list"),
        ("about: just words", "holds no job"),
        ("zoo: ../up\ntrain: [{name: a}]", "zoo: must be a plain name"),
        ("always: {train: [1]}\ntrain: [{name: a}]", "hold a mapping of settings, or a text, for train"),
        ("shared: {a: '{b}', b: '{a}'}\ntrain: [{name: '{a}'}]", "stand for each other"),
        ("shared: {a: '{b}{b}{b}{b}', b: '{c}{c}{c}{c}', c: '{d}{d}{d}{d}', d: '{e}{e}{e}{e}', e: '{f}{f}{f}{f}',"
         " f: '{g}{g}{g}{g}', g: '{h}{h}{h}{h}', h: '{i}{i}{i}{i}', i: xxxx}\ntrain: [{name: '{a}'}]", "too long"),
        ("train: [{name: 'a{x}', each: {x: [" + ",".join(["1"] * 100) + "], y: [" + ",".join(["1"] * 100) + "]}}]",
         "more than 5,000 jobs"),
        ("train: [{name: a, settings: '--x \"'}]", "No closing quotation"),
        ("train: [{name: {}}]", "name: must be text"),
        ("train: [{name: [x]}]", "name: must be text"),
        ("train: [{name: a, use: [[x]]}]", "is no mapping under shared"),
        ("train: [{name: a, settings: '{b}', each: {b: true}}]", "stray words"),
        ("certify: [{name: a, needs: [{b: c}]}]", "a mapping has no place inside a text"),
    ],
)  # fmt: skip
def test_hostile_files_end_in_a_clear_error(sweep: Read, text: str, match: str) -> None:
    with pytest.raises(DataError, match=match):
        sweep(text)


def test_a_file_that_is_no_file_or_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RingfenceError, match="must be a readable file"):
        read_document(tmp_path / "none.yaml")
    (tmp_path / "large.yaml").write_text("a: " + "x" * 2**20)
    with pytest.raises(DataError, match="smaller than 1 MiB"):
        read_document(tmp_path / "large.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00a")
    with pytest.raises(DataError, match="must be"):
        read_document(tmp_path / "bytes.yaml")


PIECES = st.sampled_from(
    ["train", "certify", "name", "each", "use", "settings", "needs", "tiny", "always", "shared", "x", "{x}", "a", "zoo"]
)
VALUES = st.recursive(
    PIECES | st.booleans() | st.none() | st.integers() | st.text("{}ax", max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PIECES, inner, max_size=4),
    max_leaves=20,
)

ENTRIES = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["a", "b-{x}", "{x}"])}, optional={key: VALUES for key in ENTRY if key != "name"}
    )
)
SWEEPS = st.fixed_dictionaries({"train": ENTRIES}, optional=dict.fromkeys(SWEEP, VALUES) | {"certify": ENTRIES})


@settings(max_examples=150, deadline=None)
@given(content=st.dictionaries(PIECES, VALUES, max_size=5) | SWEEPS | st.binary(max_size=60))
def test_any_content_is_a_sweep_or_a_clear_error(tmp_path_factory: pytest.TempPathFactory, content: object) -> None:
    import yaml

    from ringfence.sweep import read_sweep

    from .conftest import FakeCommands

    file = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    file.write_bytes(content if isinstance(content, bytes) else yaml.safe_dump(content).encode())
    with suppress(RingfenceError):
        assert read_sweep(file, FakeCommands()).jobs
