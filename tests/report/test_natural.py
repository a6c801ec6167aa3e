"""Natural accuracy: PREDICT on draws whose number no outcome could change, or none at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.analysis import metrics
from ringfence.mechanisms import neyman_pearson
from ringfence.procedures import (
    AcesCertify,
    AcesPredict,
    AcesSequential,
    Anytime,
    EnsembleAfterSmoothing,
    Fixed,
    Given,
    Multinomial,
    Predict,
    Procedure,
    Sequential,
    Softmax,
    Staged,
)
from ringfence.procedures.replay import natural_answers
from ringfence.record import Record, StageTally
from ringfence.report.lanes import Material
from ringfence.report.page import report_page
from ringfence.report.reading import load
from ringfence.report.summary import summary_table
from ringfence.stats import rank_test
from ringfence.store import RunFolder
from ringfence.types import ABSTAIN

FakeRun = Callable[..., RunFolder]
LOG = Path(__file__).resolve().parents[1] / "fixtures" / "cohen" / "cifar10_noise_0.25_sigma_0.25"

PROCEDURES = [
    (Fixed(n=500), 500),
    (Multinomial(n=400), 400),
    (Sequential(radius=0.3, n=2000), 100),
    (Staged(radius=0.3, stages=(300, 900)), 300),
    (Anytime(n=2000), 100),
    (Predict(n=700), 700),
]


def by_hand(records: list[Record], request: int, alpha: float) -> float:
    """Share right under the rank test on that request's votes."""
    right = []
    for record in records:
        votes = record.stages[request].cells["votes"]
        second, top = np.sort(votes)[-2:]
        right.append(bool(rank_test(top, second) <= alpha) and int(votes[:-1].argmax()) == record.label)
    return float(np.mean(right))


@pytest.mark.parametrize(("test", "draws"), PROCEDURES, ids=lambda value: getattr(value, "name", str(value)))
def test_it_is_predict_on_the_first_fixed_number_of_draws(
    fake_run: FakeRun, tmp_path: Path, test: Procedure, draws: int
) -> None:
    run = fake_run(tmp_path / "a", 60, test)
    material = load([run.path])
    found = material.natural(material.lanes[0])
    assert found is not None
    request = 0 if test.name in ("multinomial", "predict") else 1
    assert (found.draws, found.alpha, found.run) == (draws, 0.001, "a")
    assert found.accuracy == by_hand(run.read(), request, 0.001)
    assert 0.5 < by_hand(run.read(), request, 0.001) < 1


def test_later_looks_are_never_read(fake_run: FakeRun, tmp_path: Path) -> None:
    run = fake_run(tmp_path / "a", 60, Sequential(radius=0.3, n=2000))
    records, given = run.read(), Given(4, 0.5, neyman_pearson)

    def changed(record: Record) -> Record:
        later = [replace(entry, cells={"votes": np.roll(entry.cells["votes"], 1)}) for entry in record.stages[2:]]
        return replace(record, stages=(*record.stages[:2], *later))

    test = Sequential(radius=0.3, n=2000)
    before = natural_answers(records, test, given)
    after = natural_answers([changed(record) for record in records], test, given)
    assert any(len(record.stages) > 2 for record in records)
    assert before is not None
    assert after is not None
    assert (before == after).all()


def test_numbers_of_draws_that_differ_are_no_predict(fake_run: FakeRun, tmp_path: Path) -> None:
    records = fake_run(tmp_path / "a", 10).read()
    entry = replace(records[0].stages[1], draws=499)
    records[0] = replace(records[0], stages=(records[0].stages[0], entry))
    assert natural_answers(records, Fixed(n=500), Given(4, 0.5, neyman_pearson)) is None


def test_a_predict_run_on_the_same_inputs_answers_for_the_others(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "few", 60, Predict(n=50), seed=3)
    many = fake_run(tmp_path / "many", 60, Predict(n=5000), seed=4)
    fake_run(tmp_path / "fixed", 60)
    fake_run(tmp_path / "louder", 60, sigma=1.0)
    fake_run(tmp_path / "less", 59)
    paths = [tmp_path / name for name in ("fixed", "many", "few", "louder", "less")]
    material = load(paths)
    by_name = {lane.name: material.natural(lane) for lane in material.lanes}
    assert {name: one.run for name, one in by_name.items() if one} == {
        "fixed": "many",
        "many": "many",
        "few": "few",
        "louder": "louder",
        "less": "less",
    }
    assert by_name["fixed"] == by_name["many"]
    expected = metrics(many, [0.0]).accuracy
    assert by_name["many"] is not None
    assert by_name["many"].accuracy == expected
    assert "PREDICT with 5,000 draws per input (those of many)" in report_page(material)


@pytest.mark.parametrize("test", [Softmax(), EnsembleAfterSmoothing()], ids=["softmax", "after"])
def test_votes_do_not_answer_for_other_classifiers(test: Procedure) -> None:
    assert test.predictor(10) is None


def test_predict_of_aces_keeps_its_form() -> None:
    assert AcesCertify(form="paper").predictor(10) == AcesPredict(n=10, form="paper")
    assert AcesSequential(radius=0.5).predictor(10) == AcesPredict(n=10)
    assert AcesSequential(radius=0.5, form="paper").predictor(10) == AcesPredict(n=10, form="paper")


def test_aces_answers_by_class_by_core_or_not_at_all() -> None:
    def record(votes: list[int], bits: list[int], core: int) -> Record:
        cells: Mapping[str, Any] = {"votes": np.array([*votes, 0]), "bits": np.array([*bits, 0])}
        stages = (StageTally(0, 0, 10, cells), StageTally(1, 0, 100, cells))
        facts = {"lane": "theta=0.50", "label": 0, "radius": 0.0, "p_a": 0.0, "p_b": 1.0, "alpha": 0.001}
        more = {"procedure": "aces", "sound": True, "seed": 0, "draws": 110, "forwards": 110, "seconds": 0.0}
        return Record(0, prediction=-1, stages=stages, facts={"core": core}, **facts, **more)  # type: ignore[arg-type]

    records = [record([0, 0, 100], [2, 98], 1), record([0, 0, 100], [98, 2], 1), record([0, 51, 49], [50, 50], 1)]
    answers = natural_answers(records, AcesCertify(n=100), Given(3, 0.5, neyman_pearson))
    assert answers is not None
    assert answers.tolist() == [2, 1, ABSTAIN]
    without = [
        replace(one, stages=(replace(one.stages[0], cells={"votes": one.stages[0].cells["votes"]}),)) for one in records
    ]
    assert natural_answers(without, AcesCertify(n=100), Given(3, 0.5, neyman_pearson)) is None


def cells(material: Material, column: str) -> list[str]:
    table = summary_table(material)
    place = [one["name"] for one in table["columns"]].index(column)
    return [row["cells"][place][0] for row in table["rows"]]


def test_the_table_has_both_accuracies_and_dashes_where_nothing_is_known(fake_run: FakeRun, tmp_path: Path) -> None:
    run = fake_run(tmp_path / "a", 60)
    fake_run(tmp_path / "p", 60, Predict(n=2000), sigma=1.0)
    material = load([run.path, tmp_path / "p", LOG])
    names = [one["name"] for one in summary_table(material)["columns"]]
    assert names.index("at 0") == names.index("natural") + 1
    natural, certified = by_hand(run.read(), 1, 0.001), metrics(run, [0.0]).accuracy
    assert natural != certified
    assert cells(material, "natural")[0] == f"{100 * natural:.1f}%"
    assert cells(material, "at 0")[0] == f"{100 * certified:.1f}%"  # type: ignore[operator]
    assert cells(material, "natural")[2] == "-", "a log has no counts"
    assert [cells(material, name)[1] for name in ("ACR", "at 0.25", "median radius")] == ["-"] * 3, (
        "predict claims none"
    )


def test_the_column_stays_where_only_dashes_are_in_it() -> None:
    assert cells(load([LOG]), "natural") == ["-"]


def test_the_median_radius_is_rounded_down(fake_run: FakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = fake_run(tmp_path / "a", 60)
    (lane,) = load([run.path]).lanes
    monkeypatch.setattr(type(lane), "metrics", replace(lane.metrics, median_radius=0.9996))
    assert cells(load([run.path]), "median radius") == ["0.999"]
