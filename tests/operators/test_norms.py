"""Certified norms: never below a dense singular value, above it by less than 1e-6; values known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.operators import Crops, Stack, pad, resize
from ringfence.operators.norms import gram_bound, largest_eigenvalue, norm_bound, stack_bound


def exact(matrix: np.ndarray) -> float:
    """The largest singular value by a dense decomposition."""
    return float(np.linalg.svd(matrix, compute_uv=False)[0])


def check(bound: float, matrix: np.ndarray) -> None:
    true = exact(matrix)
    assert true * (1 - 1e-14) <= bound <= true + 1e-6


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 10**6), st.floats(-8, 8))
@settings(max_examples=150, deadline=None)
def test_a_matrix_of_any_shape_and_scale(rows: int, columns: int, seed: int, scale: float) -> None:
    matrix = np.random.default_rng(seed).normal(size=(rows, columns)) * 10**scale
    true = exact(matrix)
    assert true * (1 - 1e-14) <= norm_bound(matrix) <= true * (1 + 1e-9)


@pytest.mark.parametrize("matrix", [np.zeros((3, 4)), np.eye(7), np.ones((40, 40)), np.diag([1.0, 1.0, 1 - 1e-12])])
def test_zeros_and_repeated_eigenvalues(matrix: np.ndarray) -> None:
    check(norm_bound(matrix), matrix)


def test_the_bound_is_proved_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An eigenvalue solver that answers far too little is overruled by the factorisation."""
    gram = np.diag([1.0, 2.0, 3.0])
    monkeypatch.setattr(np.linalg, "eigvalsh", lambda matrix: np.array([0.1]))
    assert largest_eigenvalue(gram) >= 3.0


@pytest.mark.parametrize("kind", ["bilinear", "bicubic"])
@pytest.mark.parametrize("crops", [
    {"size": 12, "resize": 14, "count": 4},
    {"size": 9, "resize": 14, "count": 9},
    {"size": 12, "pad": 2, "count": 4},
    {"size": 12, "crop": 9, "count": 6},
    {"size": 10, "resize": 16, "pad": 1, "stride": 3},
    {"size": 12, "count": 1},
])  # fmt: skip
def test_dense_patches_agree_with_the_svd(kind: str, crops: dict[str, int]) -> None:
    windows = Crops(kind=kind, **crops).on(12, 13)  # type: ignore[arg-type]
    check(windows.norm_bound, windows.explicit.dense())
    isometries, _ = windows.explicit.polar()
    check(isometries.norm_bound, isometries.dense())


@pytest.mark.parametrize("seed", range(6))
def test_scattered_patches_agree_with_the_svd_and_stay_below_the_bound_for_any_draw(seed: int) -> None:
    windows = Crops(size=8, resize=14, count=7, sampling="random", seed=seed).on(12, 12)
    check(windows.norm_bound, windows.explicit.dense())
    assert windows.norm_bound <= windows.norm_of_any


def test_random_patches_may_all_fall_on_one_place() -> None:
    """Then the norm is sqrt(k) times that of one patch: what the random factor must cover."""
    windows = Crops(size=12, count=5, sampling="random").on(12, 12)
    assert exact(windows.explicit.dense()) == pytest.approx(5**0.5)
    assert windows.norm_of_any >= exact(windows.explicit.dense())


def test_scattered_patches_of_large_images_have_a_looser_bound_that_still_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    windows = Crops(size=8, resize=14, count=7, kind="bicubic", sampling="random", seed=3).on(12, 12)
    monkeypatch.setattr("ringfence.operators.norms.DENSE_LIMIT", 0)
    explicit = windows.explicit
    bound = stack_bound(explicit.rows, explicit.columns, explicit.pairs)
    assert exact(explicit.dense()) <= bound <= windows.norm_of_any * (1 + 1e-9)


@pytest.mark.parametrize(("source", "target", "size", "count", "patch", "per_patch_input"), [
    (32, 36, 32, 4, 2.2555, 2.0),
    (224, 256, 224, 16, 4.593, 4.0),
])  # fmt: skip
def test_known_values(source: int, target: int, size: int, count: int, patch: float, per_patch_input: float) -> None:
    windows = Crops(size=size, resize=target, count=count).on(source, source)
    assert windows.norm_bound == pytest.approx(patch, abs=5e-4)
    assert windows.explicit.polar()[0].norm_bound == pytest.approx(per_patch_input, abs=1e-6)


def test_paper_offsets() -> None:
    assert {top for top, _ in Crops(size=224, resize=256, count=16).on(224, 224).positions} == {0, 11, 21, 32}
    assert Crops(size=32, resize=36, count=4).on(32, 32).positions == ((0, 0), (0, 4), (4, 0), (4, 4))


@pytest.mark.parametrize("kind", ["bilinear", "bicubic"])
def test_separable_maps(kind: str) -> None:
    for one in (resize((9, 8), (12, 5), kind), pad((9, 8), 3), pad((12, 5), 2).after(resize((9, 8), (12, 5), kind))):
        check(one.norm_bound, np.kron(one.rows, one.columns))


def test_weights_and_stacks_of_unequal_height() -> None:
    draw = np.random.default_rng(0)
    one, two = draw.normal(size=(3, 5)), draw.normal(size=(7, 5))
    check(gram_bound([one, two], [2.0, 0.5]) ** 0.5, np.concatenate([2**0.5 * one, 0.5**0.5 * two]))
    assert Stack([one], [two], [(0, 0)]).norm_bound == pytest.approx(exact(one) * exact(two))
