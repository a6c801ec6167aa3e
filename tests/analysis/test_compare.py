"""Paired comparisons on runs whose answers are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import rankdata
from simulated_runs import simulated_run, spread

from ringfence.analysis.bounds import RunBounds
from ringfence.analysis.compare import Radii, as_csv, best_of_runs, compare, summarise
from ringfence.errors import AlphaError, ArgumentError, StoreError
from ringfence.mechanisms import MECHANISMS, best_of, neyman_pearson, one_sided, renyi
from ringfence.procedures import Fixed, Multinomial, Sequential, Softmax, TwoSided
from ringfence.store import import_cohen

LOG = Path(__file__).resolve().parents[1] / "fixtures" / "cohen" / "cifar10_noise_0.25_sigma_0.25"
IDS = np.arange(40) * 3


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunBounds:
    path = tmp_path_factory.mktemp("runs") / "multinomial"
    simulated_run(path, Multinomial(n=2000), spread(40), IDS)
    return RunBounds.load(path)


def radii(name: str, ids: list[int], values: list[float]) -> Radii:
    return Radii(name, np.array(ids), np.array(values, float))


def test_every_figure_of_a_small_example_by_hand() -> None:
    ours = radii("a", [1, 2, 3, 4, 5], [0.2, 0.5, 0.0, 0.3, 1.0])
    theirs = radii("b", [2, 3, 4, 5, 6], [0.4, 0.0, 0.0, 2.0, 9.0])
    found = compare(ours, theirs, above=0.35, gains=(0, 30))
    assert (found.inputs, found.dropped) == (4, 2)
    assert (found.won, found.lost, found.equal) == (0.5, 0.25, 0.25)
    assert found.median_gain == pytest.approx(0.05)  # of 0.1, 0, 0.3, -1
    assert found.mean_gain == pytest.approx(-0.15)
    assert found.median_gain_percent == pytest.approx(-12.5)  # of 25 and -50, where the baseline is positive
    assert found.mean_gain_percent == pytest.approx(-12.5)
    assert (found.above, found.above_against) == (0.5, 0.5)
    assert found.gaining == {0.0: 0.5, 30.0: 0.25}  # from nothing to 0.3 exceeds every percentage
    assert found.median_radius == pytest.approx(0.4)
    assert found.median_radius_against == pytest.approx(0.2)


def test_wilcoxon_ranks_zeros_as_pratt_does() -> None:
    gain = np.array([0.0, 0.0, 0.1, -0.2, 0.3, 0.4, 0.5, -0.05])
    ours, theirs = radii("a", list(range(8)), (gain + 1).tolist()), radii("b", list(range(8)), [1.0] * 8)
    ranks = rankdata(np.abs(gain))  # zeros take part in the ranking and are then left out of the sums
    expected = min(ranks[gain > 0].sum(), ranks[gain < 0].sum())
    assert compare(ours, theirs).statistic == expected


def test_equal_contestants_show_no_difference() -> None:
    same = radii("a", [1, 2], [0.5, 0.0])
    found = compare(same, same)
    assert (found.equal, found.p_value, found.mean_gain) == (1.0, 1.0, 0.0)


def test_without_common_inputs_nothing_is_compared() -> None:
    with pytest.raises(ArgumentError, match="share inputs"):
        compare(radii("a", [1], [1.0]), radii("b", [2], [1.0]))


def test_neyman_pearson_never_loses_on_the_same_bounds(run: RunBounds) -> None:
    for one in MECHANISMS.values():
        assert compare(Radii.of(run, neyman_pearson), Radii.of(run, one)).lost == 0.0
    ensemble = best_of(*(one for one in MECHANISMS.values() if one is not neyman_pearson))
    assert compare(Radii.of(run, neyman_pearson), Radii.of(run, ensemble)).won > 0.5


@pytest.mark.parametrize("procedure", [Multinomial(n=2000), TwoSided(n=2000), Fixed(n=2000), Softmax(n=500)])
def test_mechanisms_that_were_not_stored_are_computed_alike(tmp_path: Path, procedure) -> None:  # type: ignore[no-untyped-def]
    simulated_run(tmp_path / "all", procedure, spread(20), range(20))
    simulated_run(tmp_path / "one", procedure, spread(20), range(20), mechanisms=[one_sided])
    full, lean = RunBounds.load(tmp_path / "all"), RunBounds.load(tmp_path / "one")
    assert list(lean.records[0].radii) == ["one_sided"]
    for one in MECHANISMS.values():
        np.testing.assert_array_equal(full.radius(one), lean.radius(one))


def test_an_abstention_by_the_main_mechanism_hides_nothing(tmp_path: Path) -> None:
    simulated_run(tmp_path, TwoSided(n=2000), np.array([[0.45, 0.2, 0.2, 0.15]]), [0], mechanisms=[one_sided])
    run = RunBounds.load(tmp_path)
    assert run.records[0].abstained
    assert run.radius(one_sided)[0] == 0.0
    assert run.radius(neyman_pearson)[0] > run.radius(renyi)[0] > 0.1


def test_summary_holds_the_columns_of_table_1(run: RunBounds) -> None:
    found = summarise(run)
    rows = {one.mechanism: one for one in found.mechanisms}
    assert (found.n, found.inputs, found.seconds) == (2000, 40, 0.5)
    assert found.top_1 == np.mean(run.means[2] == 0)
    assert rows["renyi"].median_radius == np.median(run.radius(renyi))
    others = sum(row.largest for name, row in rows.items() if name != "neyman_pearson")
    assert others == pytest.approx(np.mean(run.radius(neyman_pearson) > 0))


def test_choosing_the_better_run_must_be_paid_for(tmp_path: Path) -> None:
    simulated_run(tmp_path / "fixed", Fixed(n=1000), spread(12), range(12))
    simulated_run(tmp_path / "two", TwoSided(n=1000), spread(12), range(2, 14))
    runs = [RunBounds.load(tmp_path / name) for name in ("fixed", "two")]
    with pytest.raises(AlphaError, match=r"fails with up to 0\.002, the sum of the runs' alphas"):
        best_of_runs(runs, 0.001)
    best = best_of_runs(runs, 0.002)
    assert best.ids.tolist() == list(range(2, 12))
    np.testing.assert_array_equal(best.radius, np.maximum(runs[0].main_radius[2:], runs[1].main_radius[:10]))


def test_votes_and_softmax_are_two_smoothed_classifiers(tmp_path: Path) -> None:
    simulated_run(tmp_path / "votes", Fixed(n=500), spread(4), range(4))
    simulated_run(tmp_path / "soft", Softmax(n=500), spread(4), range(4))
    with pytest.raises(ArgumentError, match="one smoothed classifier"):
        best_of_runs([RunBounds.load(tmp_path / name) for name in ("votes", "soft")], 0.5)


def test_an_imported_log_says_that_it_has_no_counts(tmp_path: Path) -> None:
    import_cohen(LOG, 0.25, tmp_path)
    log = RunBounds.load(tmp_path)
    assert summarise(log).top_1 is None
    assert [one.mechanism for one in summarise(log).mechanisms] == ["one_sided"]
    with pytest.raises(StoreError, match=r"must hold raw counts for radii by renyi.*The log has none"):
        Radii.of(log, renyi)
    assert compare(Radii.of(log), Radii.of(log, one_sided)).equal == 1.0


def test_runs_that_tried_one_radius_have_none_to_compare(tmp_path: Path) -> None:
    simulated_run(tmp_path, Sequential(radius=0.2, n=2000), spread(3), range(3))
    with pytest.raises(StoreError, match=r"only tried to prove the radius 0\.2"):
        RunBounds.load(tmp_path)


def test_an_unknown_lane_is_refused(tmp_path: Path) -> None:
    simulated_run(tmp_path, Fixed(n=100), spread(3), range(3))
    with pytest.raises(ArgumentError, match="must be one of"):
        RunBounds.load(tmp_path, "second")


def test_csv_has_one_line_per_comparison(run: RunBounds) -> None:
    found = [compare(Radii.of(run, one), Radii.of(run, one_sided)) for one in (renyi, neyman_pearson)]
    lines = as_csv(found).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("name,against,inputs,dropped,won")
    assert lines[0].endswith("gaining_more_than_100_percent")
