"""Law: what is counted for a tree of models, however its nodes are nested, are the votes of the function it spells out.

Trees are drawn at random, and each is written a second time with torch alone, as its nodes' names say.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, interpolate, one_hot, pad, relu
from toys import draws_of

import ringfence as rf
from ringfence.types import BINS, SCORE_EDGES

CLASSES, SIDE, TREES = 4, 10, 24
NEAR_TIES = 4
"""Votes that rounding may move from one class to another, of 230 draws."""


class Small(nn.Module):
    """Images of any size -> scores of how their four corners differ, so that noise alone decides: no class is usual.
    Trained by nobody, and left in training mode."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.Dropout()
        self.last = nn.Linear(24, CLASSES, bias=False)
        with torch.no_grad():
            for value in self.parameters():
                value.normal_(generator=generator)

    def forward(self, x: Tensor) -> Any:
        corners = adaptive_avg_pool2d(self.drop(relu(self.norm(self.conv(x)))), 2)
        return self.last((corners - corners.mean((2, 3), keepdim=True)).flatten(1))


class Spelled(NamedTuple):
    """A tree, the same written out, and whether its scores are logits."""

    tree: Any
    scores: Callable[[Tensor], Tensor]
    logits: bool

    def shares(self, x: Tensor) -> Tensor:
        found = self.scores(x)
        return found.softmax(-1) if self.logits else found / found.sum(-1, keepdim=True).clamp_min(1.0)


def drawn(draw: Random, generator: torch.Generator, depth: int) -> Spelled:
    """A random tree of at most this depth."""
    if depth == 0:
        net = Small(generator)
        twin = Small(generator)
        twin.load_state_dict(net.state_dict())
        return Spelled(net, twin.eval(), True)
    make = draw.choice([voted, voted, moved, patched])
    return make(draw, [drawn(draw, generator, depth - 1) for _ in range(3 if make is voted else 1)])


def voted(draw: Random, parts: list[Spelled]) -> Spelled:
    trees = [one.tree for one in parts]
    alike = len({one.logits for one in parts}) == 1
    every = lambda x: torch.stack([one.scores(x) for one in parts], 1)  # noqa: E731
    shares = lambda x: torch.stack([one.shares(x) for one in parts], 1)  # noqa: E731

    def margins(x: Tensor) -> Tensor:
        top = shares(x).topk(2, -1).values
        return shares(x)[torch.arange(len(x)), (top[..., 0] - top[..., 1]).argmax(1)]

    def agreed(x: Tensor) -> Tensor:
        votes = every(x)[:, :2].argmax(-1)
        return torch.where((votes[:, 0] == votes[:, 1])[:, None], every(x)[:, :2].mean(1), every(x).mean(1))

    def ballots(x: Tensor) -> Tensor:
        return one_hot(every(x).argmax(-1), CLASSES).float().mean(1) + shares(x).mean(1) / 6

    found = [
        Spelled(rf.softmax(*trees), lambda x: shares(x).mean(1), False),
        Spelled(rf.hard(*trees), ballots, False),
        Spelled(rf.max_margin(*trees), margins, False),
        Spelled(
            rf.weighted(*trees, weights=[1, 3, 4], on="softmax"),
            lambda x: (shares(x) * torch.tensor([1, 3, 4])[:, None] / 8).sum(1),
            False,
        ),
    ]
    if alike:
        found.append(Spelled(rf.soft(*trees), lambda x: every(x).mean(1), parts[0].logits))
        found.append(Spelled(rf.consensus(*trees, agree=2), agreed, parts[0].logits))
    return draw.choice(found)


def moved(draw: Random, parts: list[Spelled]) -> Spelled:
    (one,) = parts
    size, kind = draw.choice([5, 8, 13]), draw.choice(["bilinear", "bicubic"])
    blur = nn.Conv2d(1, 1, 3, padding=1, bias=False)
    nn.init.constant_(blur.weight, 1 / 9)

    def resized(x: Tensor) -> Tensor:
        same = x.shape[-1] == size
        return one.scores(x if same else interpolate(x, (size, size), mode=kind, antialias=True, align_corners=False))

    return draw.choice(
        [
            Spelled(rf.resized(one.tree, size=size, kind=kind), resized, one.logits),
            Spelled(rf.denoised(blur, one.tree), lambda x: one.scores(blur(x)), one.logits),
        ]
    )


def patched(draw: Random, parts: list[Spelled]) -> Spelled:
    (one,) = parts
    which = draw.choice(["resize", "pad", "crop"])
    settings: dict[str, int] = {"resize": {"size": 6, "resize": 9}, "pad": {"size": 5, "pad": 1}}.get(
        which, {"size": 7, "crop": 4}
    )
    side = settings.get("crop", settings["size"])

    def patches(x: Tensor) -> list[Tensor]:
        x = interpolate(x, (9, 9), mode="bilinear", align_corners=False) if which == "resize" else x
        x = pad(x, (1, 1, 1, 1)) if which == "pad" else x
        ends = (0, x.shape[-1] - side)
        cut = [x[..., top : top + side, left : left + side] for top in ends for left in ends]
        return [interpolate(p, (7, 7), mode="bilinear", align_corners=False) for p in cut] if which == "crop" else cut

    def mean(x: Tensor) -> Tensor:
        return torch.stack([one.scores(patch) for patch in patches(x)]).mean(0)

    def largest(x: Tensor) -> Tensor:
        return torch.stack([one.shares(patch) for patch in patches(x)]).amax(0)

    return draw.choice(
        [
            Spelled(rf.patches(one.tree, count=4, reduce="mean", **settings), mean, one.logits),
            Spelled(rf.patches(one.tree, count=4, reduce="max", **settings), largest, False),
        ]
    )


@pytest.mark.parametrize("number", range(TREES))
@torch.no_grad()
def test_votes_of_a_tree_are_those_of_the_function_it_spells_out(number: int) -> None:
    draw, generator = Random(number), torch.Generator().manual_seed(number)
    spelled = drawn(draw, generator, 1 + number % 3)
    noise = rf.Gaussian(0.4, form=draw.choice(["float", "exact"]))
    pixels = torch.randint(256, (2, 1, SIDE, SIDE), generator=generator, dtype=torch.uint8)
    procedure = rf.Softmax(n0=20, n=230) if number % 4 == 0 else rf.Staged(radius=0.01, stages=(70, 230), alpha=0.01)
    records = list(rf.certify(spelled.tree, pixels, noise=noise, procedure=procedure, seed=number, check=False))
    assert len(records) == len(pixels)
    for record in records:
        for stage in record.stages:
            place = (number, record.input_id, stage.stage, stage.start, stage.draws)
            noisy = pixels[record.input_id].float() / 255 + draws_of(noise, (1, SIDE, SIDE), *place)
            if "votes" in stage.cells:
                votes = torch.bincount(spelled.scores(noisy).argmax(1), minlength=CLASSES + 1)
                assert (votes - torch.tensor(stage.cells["votes"])).abs().sum() <= NEAR_TIES
            else:
                histograms = torch.tensor(stage.cells["scores"][:-1]).view(CLASSES, BINS).double() / stage.draws
                low, high = histograms @ torch.tensor(SCORE_EDGES[:-1]), histograms @ torch.tensor(SCORE_EDGES[1:])
                means = spelled.shares(noisy).double().mean(0)
                assert ((low - 1e-5 <= means) & (means <= high + 1e-5)).all()
