"""Maps over the simplex and a run's points on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from simulated_runs import simulated_run, spread

from ringfence.analysis.bounds import RunBounds
from ringfence.analysis.simplex import SimplexMap, simplex_map, simplex_points
from ringfence.errors import ArgumentError, StoreError
from ringfence.mechanisms import best_of, mechanism, neyman_pearson, one_sided, pixeldp, renyi
from ringfence.procedures import Multinomial, Softmax
from ringfence.store import import_cohen

LOG = Path(__file__).resolve().parents[1] / "fixtures" / "cohen" / "cifar10_noise_0.25_sigma_0.25"


@pytest.mark.parametrize(
    ("right", "median"), [("one-sided", 1.67), ("renyi", 1.148), ("pixeldp", 2.92), ("analytic-dp", 1.029)]
)
def test_summary_gives_the_known_medians(right: str, median: float) -> None:
    facts = simplex_map("neyman-pearson", right).summary()
    assert facts["ratio"]["median"] == pytest.approx(median, abs=0.006)
    assert facts["right_wins"] == 0.0
    assert facts["left_wins"] + facts["equal"] == pytest.approx(1.0)


def test_the_region_is_the_ordered_simplex() -> None:
    found = simplex_map("one-sided", "renyi", step=0.02)
    e0, e1 = np.meshgrid(found.e0, found.e1)
    assert (e0 > e1)[found.inside].all()
    assert (e0 + e1)[found.inside].max() == pytest.approx(1.0)
    triangle = sum(1 for i in range(1, 51) for j in range(1, i) if i + j <= 50)
    assert found.inside.sum() == triangle
    outside = ~found.inside
    assert not found.left_radius[outside].any()
    assert np.isnan(found.value[outside]).all()


def test_figure_2_one_sided_wins_only_near_the_edge() -> None:
    found = simplex_map("one-sided", "renyi", "difference")
    e0, e1 = np.meshgrid(found.e0, found.e1)
    rest = (1 - e0 - e1)[found.largest("one-sided")]
    assert 0.05 < found.summary()["left_wins"] < 0.2
    assert rest.max() < 0.2
    assert found.value[found.inside & (e0 <= 0.5)].max() < 0


def test_figure_3_analytic_dp_wins_most_of_the_simplex() -> None:
    alone = simplex_map("analytic-dp", "pixeldp").summary()
    assert alone["left_wins"] == 1.0
    assert alone["ratio"]["max"] < 6
    crowd = simplex_map("analytic-dp", "pixeldp+renyi+one-sided").summary()
    assert crowd["left_wins"] > 0.75
    assert sum(crowd["largest"].values()) == pytest.approx(1.0, abs=0.01)
    assert crowd["largest"]["pixeldp"] == 0.0


def test_a_set_is_the_best_of_its_members() -> None:
    assert mechanism("renyi+one-sided").name == best_of(renyi, one_sided).name
    assert mechanism("best-of:renyi+one-sided").name == best_of(renyi, one_sided).name
    assert mechanism("Neyman-Pearson") is neyman_pearson
    found = simplex_map("renyi+pixeldp", "one-sided", step=0.05)
    np.testing.assert_array_equal(found.left_radius, np.maximum(found.members["renyi"], found.members["pixeldp"]))


def test_radii_are_linear_in_sigma() -> None:
    one, three = (simplex_map("renyi", "pixeldp", "difference", sigma, 0.05) for sigma in (1.0, 3.0))
    np.testing.assert_allclose(three.value[one.inside], 3 * one.value[one.inside], rtol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"left": "reny"}, "Did you mean renyi"),
        ({"statistic": "product"}, "ratio or difference"),
        ({"step": 0.0}, "between 0.0005 and 0.1"),
        ({"sigma": -1.0}, "sigma: must be positive"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        simplex_map(**({"left": "renyi", "right": "one-sided"} | arguments))  # type: ignore[arg-type]


@pytest.mark.parametrize("procedure", [Multinomial(n=1000), Softmax(n=1000)])
def test_points_are_bounds_means_and_radii(tmp_path: Path, procedure) -> None:  # type: ignore[no-untyped-def]
    p = spread(15)
    simulated_run(tmp_path, procedure, p, range(15))
    run = RunBounds.load(tmp_path)
    points = simplex_points(run, "one-sided", "renyi+pixeldp")
    ordered = np.sort(p, axis=1)
    np.testing.assert_allclose(points.mean_0, ordered[:, -1], atol=0.06)
    np.testing.assert_allclose(points.mean_1, ordered[:, -2], atol=0.06)
    assert (points.bound_0 < points.mean_0).all()
    assert (points.bound_1 > points.mean_1).all()
    np.testing.assert_array_equal(points.right, np.maximum(run.radius(renyi), run.radius(pixeldp)))
    facts = points.summary()
    assert sum(facts["largest"].values()) == facts["inputs"] == 15
    assert facts["left_wins"] + facts["right_wins"] + facts["neither_certifies"] == 15


def test_a_log_has_no_place_on_the_simplex(tmp_path: Path) -> None:
    import_cohen(LOG, 0.25, tmp_path)
    with pytest.raises(StoreError, match=r"placed on the simplex.*The log has none"):
        simplex_points(RunBounds.load(tmp_path), "one-sided", "renyi")


@pytest.mark.parametrize("statistic", ["ratio", "difference"])
def test_drawings_have_borders_regions_and_dots(tmp_path: Path, statistic: str) -> None:
    pytest.importorskip("altair")
    from ringfence.report.simplex_drawing import simplex_specification

    found: SimplexMap = simplex_map("one-sided", "renyi+analytic-dp", statistic, step=0.02)  # type: ignore[arg-type]
    simulated_run(tmp_path, Multinomial(n=1000), spread(15), range(15))
    points = simplex_points(RunBounds.load(tmp_path), "one-sided", "renyi")
    held = list(simplex_specification(found, points)["datasets"].values())
    cells, dots = (next(rows for rows in held if name in rows[0]) for name in ("value", "input"))
    assert len(cells) == found.inside.sum()
    regions = {row["region"] for rows in held for row in rows if "region" in row}
    assert any(words.startswith("analytic-dp is the largest") for words in regions)
    only = {row["only"] for rows in held for row in rows if "only" in row}
    assert only == ({"only renyi+analytic-dp certifies"} if statistic == "ratio" else set())
    assert [row["input"] for row in dots] == points.ids.tolist()


def test_a_mechanism_against_itself_is_drawn_without_borders() -> None:
    pytest.importorskip("altair")
    from ringfence.report.simplex_drawing import simplex_specification

    found = simplex_map("one-sided", "one-sided", step=0.05)
    assert len(simplex_specification(found)["layer"]) == 1, "cells only"
    assert found.summary()["equal"] == 1.0


def test_borders_follow_the_zeros_of_a_function() -> None:
    from ringfence.report.simplex_drawing import zero_lines

    x, y = np.linspace(-1, 1, 41), np.linspace(-1, 1, 31)
    circle = x[None, :] ** 2 + y[:, None] ** 2 - 0.36
    (path,) = zero_lines(x, y, circle)
    assert path[0] == path[-1], "closed"
    np.testing.assert_allclose(np.hypot(*np.array(path).T), 0.6, atol=2e-3)
    half = np.where(x[None, :] + y[:, None] <= 0.1, circle, np.nan)
    (path,) = zero_lines(x, y, half)
    assert path[0] != path[-1], "open, because half of it is not known"
    # The ends lie in squares of which one corner is not known, half a square from the edge of the rest.
    assert max(px + py for px, py in path) > 0.05
    assert zero_lines(x, y, np.ones_like(circle)) == []
