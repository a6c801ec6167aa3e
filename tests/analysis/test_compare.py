"""Paired comparisons on runs whose answers are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from configs import altered, small_config
from scipy.stats import rankdata
from simulated_runs import simulated_run, spread

from ringfence.analysis.bounds import RunBounds
from ringfence.analysis.compare import Radii, as_csv, best_of_runs, compare, summarise
from ringfence.analysis.envelope import envelope
from ringfence.analysis.metrics import RunMetrics, load_metrics
from ringfence.errors import AlphaError, ArgumentError, StoreError
from ringfence.mechanisms import Mechanism, best_of, mechanisms_named, neyman_pearson, one_sided, pixeldp, renyi
from ringfence.procedures import EnsembleAfterSmoothing, Fixed, Multinomial, Predict, Sequential, Softmax, TwoSided
from ringfence.record import StageTally
from ringfence.stats import NoiseLaw
from ringfence.store import RunConfig, RunFolder, import_cohen
from ringfence.types import FloatArray

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


def test_average_radii_count_right_answers_alone_and_have_an_interval_of_their_difference() -> None:
    ours = replace(radii("a", [1, 2, 3, 4], [9.0, 9.0, 9.0, 9.0]), earned=np.array([0.2, 0.0, 0.6, np.nan]))
    theirs = replace(radii("b", [1, 2, 3, 4], [1.0, 1.0, 1.0, 1.0]), earned=np.array([0.1, 0.3, 0.2, 0.5]))
    found = compare(ours, theirs)
    assert (found.acr, found.acr_against) == (pytest.approx(0.8 / 3), pytest.approx(0.2))  # of three that have labels
    error = 1.96 * np.std([0.1, -0.3, 0.4], ddof=1) / np.sqrt(3)
    assert (found.acr_gain_low, found.acr_gain_high) == (pytest.approx(0.2 / 3 - error), pytest.approx(0.2 / 3 + error))
    one = np.array([0])
    assert compare(*(replace(each, ids=one, radius=one + 1.0, earned=one * 0.0) for each in (ours, theirs))).acr is None


def test_average_radii_are_those_of_metrics_and_of_no_mechanism(run: RunBounds) -> None:
    own, other = Radii.of(run), Radii.of(run, renyi)
    found = compare(own, own)
    assert found.acr == found.acr_against == pytest.approx(load_metrics(run.path, None)[0].acr)
    assert (found.acr_gain_low, found.acr_gain_high) == (0.0, 0.0)
    assert compare(own, other).acr is None


def test_a_mechanism_of_another_norm_has_no_radii_beside_those_of_a_run(run: RunBounds) -> None:
    """Nor would the lift's bound, which is that of the run's norm, be one for it."""

    class Box(Mechanism):
        name, families, norm = "box", frozenset({"gaussian"}), "linf"

        def _radius(self, p_a: FloatArray, p_b: FloatArray, law: NoiseLaw) -> FloatArray:
            return np.ones_like(p_a)

    with pytest.raises(ArgumentError, match="one norm"):
        Radii.of(run, Box())


def test_wilcoxon_ranks_zeros_as_pratt_does() -> None:
    gain = np.array([0.0, 0.0, 0.1, -0.2, 0.3, 0.4, 0.5, -0.05])
    ours, theirs = radii("a", list(range(8)), (gain + 1).tolist()), radii("b", list(range(8)), [1.0] * 8)
    ranks = rankdata(np.abs(gain))  # zeros take part in the ranking and are then left out of the sums
    found = compare(ours, theirs)
    assert found.statistic == ranks[gain > 0].sum()
    assert compare(theirs, ours).statistic == ranks[gain < 0].sum()
    assert found.p_value < 0.5 < compare(theirs, ours).p_value


def test_w_plus_of_a_contestant_that_never_loses_is_large() -> None:
    """The two-sided statistic, the smaller sum of ranks, is 0 here."""
    gain = np.linspace(0.1, 1, 200)
    ours, theirs = radii("a", list(range(200)), (gain + 1).tolist()), radii("b", list(range(200)), [1.0] * 200)
    found = compare(ours, theirs)
    assert found.statistic == 200 * 201 / 2
    assert found.p_value < 1e-30


def test_runs_are_paired_only_on_the_same_data_and_their_differences_named() -> None:
    def one(data: str | None, **settings: object) -> Radii:
        reading = {"precision": settings.pop("precision", "fp32")}
        config = altered(small_config(), {"data_hash": data} | settings)
        return Radii("x", np.arange(3), np.ones(3), True, config, reading)

    first = one("v2 inputs:1 labels:1 v1:77")
    for other in ("v2 inputs:2 labels:1", "v2 inputs:1 labels:3", "78"):
        with pytest.raises(ArgumentError, match="same data to be paired"):
            compare(first, one(other))
    for other in ("v2 inputs:1 labels:1", "77", None):
        assert compare(first, one(other)).differing == compare(one(other), first).differing == ()
    assert compare(first, one(None, precision="bf16")).differing == ("precision",)
    told = compare(first, one(None, sigma=1.0, model="other", precision="bf16")).differing
    assert told == ("precision", "classifier.tree: 'model' and 'other'", "noise.sigma: 0.5 and 1.0")


def test_digests_of_two_schemes_may_name_one_classifier() -> None:
    """The older digest covered weights alone: whichever run comes first, both know its number."""

    def one(digest: str) -> Radii:
        return Radii("x", np.arange(3), np.ones(3), True, altered(small_config(), {"weights_hash": digest}))

    old, new = one("1" * 32), one(f"v2 weights:5 ours:6 v1:{'1' * 32}")
    assert compare(old, new).differing == compare(new, old).differing == ()
    for other in (one("2" * 32), one("v2 weights:5 ours:6")):
        assert compare(old, other).differing
        assert compare(other, old).differing


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"precision": "bf16"}, "precision"),
        ({"weights_hash": "v2 weights:2"}, "weights"),
        ({"model": "other"}, "tree: 'simulated' and 'other'"),
        ({"mean": [0.5], "std": [0.1]}, "mean"),
        ({"norm": "l1"}, "norm"),
        ({"lift": {"name": "x", "norm_bound": 2.0}}, "lift"),
        ({"sigma": 2.0}, "sigma"),
        ({"data_hash": "v2 inputs:9"}, "same data"),
    ],
)
def test_the_best_of_runs_about_different_classifiers_is_refused(
    run: RunBounds, change: dict[str, object], named: str
) -> None:
    ours = {"weights_hash": "v2 weights:1", "data_hash": "v2 inputs:1"}
    one, other = (replace(run, config=altered(run.config, ours | more)) for more in ({}, change))
    with pytest.raises(ArgumentError, match=named):
        best_of_runs([one, other], 0.5)
    assert best_of_runs([one, one], 0.5).radius.tolist() == run.columns.radius.tolist()


def test_lanes_are_different_classifiers(tmp_path: Path) -> None:
    for lane in ("a", "b"):
        simulated_run(tmp_path / lane, Fixed(n=500), spread(4), range(4), lane=lane)
    with pytest.raises(ArgumentError, match="differ in lane"):
        best_of_runs([RunBounds.load(tmp_path / lane) for lane in ("a", "b")], 0.5)


def test_predict_runs_have_no_radius_to_compare(tmp_path: Path) -> None:
    simulated_run(tmp_path, Predict(n=100), spread(3), range(3))
    with pytest.raises(StoreError, match="a run of predict, which claims none"):
        RunBounds.load(tmp_path)


def test_after_smoothing_compares_like_all_others(tmp_path: Path) -> None:
    """Its radius comes from no mechanism, and its votes are those of several members."""
    procedure = EnsembleAfterSmoothing(n=2000)
    members = np.zeros((2, 5), np.int64)
    members[:, 1] = [1900, 1500]
    members[:, 2] = [100, 500]
    small = np.zeros((2, 5), np.int64)
    small[:, 1] = 100
    stages = (StageTally(0, 0, 100, {"member_votes": small.ravel()}),
              StageTally(1, 0, 2000, {"member_votes": members.ravel()}))  # fmt: skip
    base = simulated_run(tmp_path / "fixed", Fixed(n=2000), spread(3), range(3))
    labels = [one.label for one in base.read()]
    content = base.config.model_dump() | {"procedure": {"name": procedure.name, **procedure.settings()}}
    config = RunConfig.model_validate(content)
    run = RunFolder.create_or_resume(tmp_path / "after", config)
    blank = {"radii": {}, "config_hash": config.digest, "stages": stages, "procedure": procedure.name}
    run.append([replace(one, prediction=1, radius=0.4, label=1, **blank) for one in base.read()])
    after, fixed = RunBounds.load(tmp_path / "after"), RunBounds.load(tmp_path / "fixed")
    assert labels != [1, 1, 1]
    with pytest.raises(ArgumentError, match="with other labels"):
        compare(Radii.of(after), Radii.of(fixed))
    found = compare(replace(Radii.of(after), label=None), Radii.of(fixed))
    assert found.median_radius == 0.4
    (summary,) = summarise(after).mechanisms
    assert (summary.mechanism, summary.median_radius) == ("its own", 0.4)
    assert summarise(after).top_1 == 1.0
    assert after.means[0][0] == 1900 / 2000
    with pytest.raises(StoreError, match="a run of after-smoothing"):
        after.radius(renyi)


def test_the_envelope_takes_the_best_run_of_every_radius() -> None:
    def run(path: str, sound: bool = True, **shares: float) -> RunMetrics:
        curve = {float(radius.removeprefix("r")) / 100: share for radius, share in shares.items()}
        return RunMetrics(9, 0.5, 0.1, 0.1, 0.0, curve, None, 9, 9, 1.0, sound, path=path)

    points = envelope([run("small", r0=0.9, r25=0.5), run("large", sound=False, r0=0.6, r25=0.55, r50=0.4)])
    told = [(one.radius, one.certified_accuracy, one.run, one.sound) for one in points]
    assert told == [(0.0, 0.9, "small", True), (0.25, 0.55, "large", False), (0.5, 0.4, "large", False)]


def test_equal_contestants_show_no_difference() -> None:
    same = radii("a", [1, 2], [0.5, 0.0])
    found = compare(same, same)
    assert (found.equal, found.p_value, found.mean_gain) == (1.0, 1.0, 0.0)


def test_without_common_inputs_nothing_is_compared() -> None:
    with pytest.raises(ArgumentError, match="share inputs"):
        compare(radii("a", [1], [1.0]), radii("b", [2], [1.0]))


def test_neyman_pearson_never_loses_on_the_same_bounds(run: RunBounds) -> None:
    for one in mechanisms_named("all"):
        assert compare(Radii.of(run, neyman_pearson), Radii.of(run, one)).lost == 0.0
    ensemble = best_of(*(one for one in mechanisms_named("all") if one is not neyman_pearson))
    assert compare(Radii.of(run, neyman_pearson), Radii.of(run, ensemble)).won > 0.5


@pytest.mark.parametrize("procedure", [Multinomial(n=2000), TwoSided(n=2000), Fixed(n=2000), Softmax(n=500)])
def test_mechanisms_that_were_not_stored_are_computed_alike(tmp_path: Path, procedure) -> None:  # type: ignore[no-untyped-def]
    simulated_run(tmp_path / "all", procedure, spread(20), range(20))
    simulated_run(tmp_path / "one", procedure, spread(20), range(20), mechanisms=[one_sided])
    full, lean = RunBounds.load(tmp_path / "all"), RunBounds.load(tmp_path / "one")
    assert list(lean.records[0].radii) == ["one_sided"]
    for one in mechanisms_named("all"):
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


def test_equal_mechanisms_share_an_input(run: RunBounds) -> None:
    """All of them had it, so that the shares of a table were more than the whole."""
    twin = best_of(renyi, pixeldp)  # which never exceeds it
    alone, shared = (summarise(run, [neyman_pearson, renyi, *more]).mechanisms for more in ((), (twin,)))
    certified = np.mean(run.radius(renyi) > 0)
    assert alone[1].largest == pytest.approx(certified)
    assert [one.largest for one in shared[1:]] == pytest.approx([certified / 2] * 2)


def test_choosing_the_better_run_must_be_paid_for(tmp_path: Path) -> None:
    simulated_run(tmp_path / "fixed", Fixed(n=1000), spread(12), range(12))
    simulated_run(tmp_path / "two", TwoSided(n=1000), spread(12), range(2, 14))
    runs = [RunBounds.load(tmp_path / name) for name in ("fixed", "two")]
    with pytest.raises(AlphaError, match=r"fails with up to 0\.002, the sum of the runs' alphas"):
        best_of_runs(runs, 0.001)
    best = best_of_runs(runs, 0.002)
    assert best.ids.tolist() == list(range(2, 12))
    np.testing.assert_array_equal(best.radius, np.maximum(runs[0].columns.radius[2:], runs[1].columns.radius[:10]))


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
    with pytest.raises(StoreError, match=r"only tried to prove the radius 0\.2 in l2"):
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
