"""Ensembles written out: row by row, member by member, in plain Python; slow and plain on purpose."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

Row = list[float]


class Linear2(nn.Module):
    """K classes on the plane, scores W x + b: what it does under Gaussian noise can be computed by brute force."""

    def __init__(self, classes: int, seed: int, spread: float = 1.0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.layer = nn.Linear(2, classes)
        with torch.no_grad():
            base = torch.tensor([[math.cos(6.28 * k / classes), math.sin(6.28 * k / classes)] for k in range(classes)])
            self.layer.weight.copy_(2 * base + spread * torch.randn(classes, 2, generator=generator))
            self.layer.bias.copy_(spread * 0.3 * torch.randn(classes, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.layer(x.flatten(1))
        return scores


class Sometimes(nn.Module):
    """Another module's scores, with one score replaced where the first coordinate is above the limit."""

    def __init__(self, inner: nn.Module, limit: float, bad: float) -> None:
        super().__init__()
        self.inner, self.limit, self.bad = inner, limit, bad

    def forward(self, x: Tensor) -> Tensor:
        scores = self.inner(x).clone()
        scores[x.flatten(1)[:, 0] > self.limit, -1] = self.bad
        return scores


def softmax(row: Row) -> Row:
    top = max(row)
    shares = [math.exp(value - top) for value in row]
    return [share / sum(shares) for share in shares]


def top(row: Row) -> int:
    return max(range(len(row)), key=lambda k: row[k])


def mean(rows: Sequence[Row]) -> Row:
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def soft(rows: Sequence[Row]) -> int:
    return top(mean(rows))


def softmax_vote(rows: Sequence[Row]) -> int:
    return top(mean([softmax(row) for row in rows]))


def hard(rows: Sequence[Row]) -> int:
    ballots = [top(row) for row in rows]
    shares = mean([softmax(row) for row in rows])
    return max(range(len(shares)), key=lambda k: (ballots.count(k), shares[k]))


def max_margin(rows: Sequence[Row]) -> int:
    best, decided = -1.0, 0
    for row in rows:
        first, second = sorted(softmax(row), reverse=True)[:2]
        if first - second > best:
            best, decided = first - second, top(row)
    return decided


def weighted(rows: Sequence[Row], weights: Sequence[float], on: str) -> int:
    used = [softmax(row) for row in rows] if on == "softmax" else rows
    return top([sum(w * value for w, value in zip(weights, column, strict=True)) for column in zip(*used, strict=True)])


def consensus(rows: Sequence[Row], agree: int) -> tuple[int, int]:
    """(class, members asked)."""
    first = rows[:agree]
    if len({top(row) for row in first}) == 1:
        return soft(first), agree
    return soft(rows), len(rows)


def rows_of(members: Sequence[nn.Module], x: Tensor) -> list[list[Row]]:
    """[input][member] -> scores, each from a forward of its own."""
    with torch.inference_mode():
        return [[member(one.unsqueeze(0))[0].tolist() for member in members] for one in x]
