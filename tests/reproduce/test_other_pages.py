"""Rows of the other pages: names as the papers have them, claims without proof labelled, histograms."""

from __future__ import annotations

import pytest
from diversity_page import ORDER, row_name
from histograms import histogram
from smooth_reduce_page import claimed, largest_average, linear_example, study_table

from ringfence.data import load_dataset
from ringfence.models import load_model
from ringfence.operators import Crops


@pytest.mark.parametrize(
    ("kind", "lane", "name"),
    [
        ("gaussian", "member-1", "gaussian"),
        ("gaussian", "member-2", None),
        ("gaussian", "max-margin-3", "max-margin(gaussian)"),
        ("smoothadv", "sween-3", "sween(smoothadv)"),
        ("drt-gaussian", "member-1", "drt single(gaussian)"),
        ("drt-smoothadv", "softmax-3", "drt+softmax(smoothadv)"),
        ("adp", "member-1", None),
        ("adp", "softmax-3", "adp"),
        ("gal", "max-margin-3", None),
    ],
)
def test_lanes_have_the_papers_names(kind: str, lane: str, name: str | None) -> None:
    assert row_name(kind, lane) == name
    assert name is None or name in ORDER


def test_rows_without_proof_say_so() -> None:
    row = {"name": "paper-patch-mean", "question": "paper form", "mode": "patch", "sound": False, "factor": 1.0}
    row |= {"factor_left_out": 2.25, "alpha": 0.001, "draws": 275.0, "forwards": 1100.0, "acr": 0.5, "abstention": 0.0}
    text = "\n".join(study_table([{**row, "certified_accuracy": {"0": 1.0}}]))
    assert "**paper-patch-mean (unsound: no guarantee)**" in text
    assert "1 instead of 2.2500" in text
    numbers = {"n": 100_000, "alpha": 0.001, "tables_1_and_3": []}
    numbers["tables_1_and_3"] = [{"sigma": 0.25, "reduce": "mean", "acr": 0.827, "certified_accuracy": {"0": 82.7}}]
    assert "**mean (unsound: no guarantee)**" in "\n".join(claimed(numbers))


def test_the_largest_average_is_that_of_radii_at_the_upper_ends() -> None:
    one = {"sigma": 0.25, "certified_accuracy": {"0": 80.0, "0.25": 50.0}}
    most = 0.25 * 3.8114  # what 100,000 draws that all agree prove at alpha .001
    assert largest_average(one, 100_000, 0.001) == pytest.approx(0.3 * 0.25 + 0.5 * most, abs=1e-4)


def test_only_the_published_claim_exceeds_the_truth() -> None:
    sound, published, truth = linear_example("patch")
    assert sound < truth < published


def test_histograms_count_every_draw_of_the_two_top_classes() -> None:
    network, (item,) = load_model("default").at_input, load_dataset("default", limit=1)
    found = histogram(network, item, Crops(size=28, resize=32, count=4), 0.5)
    assert list(found["panels"]) == ["base logits", "mean logits", "base softmax", "mean softmax", "max softmax"]
    for panel in found["panels"].values():
        assert [sum(counts) for counts in panel["counts"]] == [1000, 1000]
        assert panel["means"][0] > panel["means"][1]
