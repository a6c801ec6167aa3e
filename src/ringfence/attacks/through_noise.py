"""Attacks on smoothed classifiers: PGD and DDN through noise that stays fixed during the attack.

They give the empirical upper bound beside a certificate, and SmoothAdv its training inputs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from ringfence.classifiers import LOGITS, Kinds, kinds_of, log_probabilities
from ringfence.errors import ArgumentError
from ringfence.noise import Gaussian
from ringfence.progress import followed

Scores = Callable[[Tensor], Tensor]
"""A batch (rows, *shape) -> scores (rows, K)."""

Lifted = Callable[[Tensor], Tensor]
"""Inputs (B, *shape) -> the points (B, *lifted) that noise is added to, differentiable."""

Look = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Attacked inputs (B, *shape) -> the gradient of the smoothed loss there, and the smoothed prediction (B,)."""


def log_mean_softmax(scores: Tensor, copies: int, kinds: Kinds = LOGITS) -> Tensor:
    """log( (1/m) sum_i softmax(f(x + e_i)) ): scores (m*B, K), copies outermost, -> (B, K); never log(0)."""
    logs = log_probabilities(scores, kinds).view(copies, -1, scores.shape[-1])
    return torch.logsumexp(logs, 0) - math.log(copies)


def at_input(x: Tensor) -> Tensor:
    """Noise on the input itself."""
    return x


def smoothed_log_probabilities(classifier: Scores, x: Tensor, noise: Tensor, lifted: Lifted = at_input) -> Tensor:
    """log of the mean probabilities (B, K) of x (B, *shape) under the fixed draws noise (m, B, *lifted)."""
    return log_mean_softmax(classifier((lifted(x) + noise).flatten(0, 1)), len(noise), kinds_of(classifier))


def smoothed_loss(classifier: Scores, x: Tensor, y: Tensor, noise: Tensor) -> Tensor:
    """-log mean_i softmax(f(x + e_i))_y per input (B,): what SmoothAdv ascends (Salman et al. 2019, eq. 6)."""
    logs = smoothed_log_probabilities(classifier, x, noise)
    return -logs.gather(1, y.unsqueeze(1)).squeeze(1)


def norms(x: Tensor) -> Tensor:
    """l2 norm of each input: (B, *shape) -> (B, 1, ..., 1); its gradient is never needed here."""
    lengths: Tensor = torch.linalg.vector_norm(x.flatten(1), dim=1)
    return lengths.view(-1, *[1] * (x.dim() - 1))


def unit(gradient: Tensor) -> Tensor:
    """Each input's gradient at length 1; a zero gradient stays zero."""
    return gradient / norms(gradient).clamp_min(1e-12)


def into_l2_ball(delta: Tensor, eps: Tensor | float) -> Tensor:
    """The nearest points (B, *shape) of the l2 ball of radius eps."""
    return delta * (eps / norms(delta).clamp_min(1e-12)).clamp_max(1.0)


def into_l1_ball(delta: Tensor, eps: Tensor | float) -> Tensor:
    """The nearest points (B, *shape), in l2, of the l1 ball of radius eps (Duchi et al. 2008).

    All sizes shrink by one amount t, at most to 0: with the sizes sorted, t = (u_1 + ... + u_k - eps) / k for the
    largest k with u_k above it.
    """
    sizes = delta.flatten(1).abs()
    limit = torch.as_tensor(eps, device=delta.device, dtype=delta.dtype).expand(len(delta), *[1] * (delta.dim() - 1))
    ordered = sizes.sort(1, descending=True).values
    shrunk = (ordered.cumsum(1) - limit.flatten(1)) / torch.arange(1, sizes.shape[1] + 1, device=delta.device)
    kept = (ordered > shrunk).sum(1, keepdim=True).clamp_min(1)
    amount = shrunk.gather(1, kept - 1).clamp_min(0)
    return ((sizes - amount).clamp_min(0) * delta.flatten(1).sign()).view_as(delta)


BALLS = {"l1": into_l1_ball, "l2": into_l2_ball}
ORDERS = {"l1": 1, "l2": 2}
"""Norms in which attacks move inputs, as torch counts them."""


class Attack(ABC):
    """Moves inputs within a ball of radius eps, in the norm that it names, so that the smoothed classifier errs.

    Subclasses are final and write ``perturb``. box keeps attacked inputs in [0, 1], as images must be; a
    certificate holds outside the box too, so the strongest attempt to break one leaves it off.
    """

    name: ClassVar[str]
    norm: ClassVar[str] = "l2"
    eps: float
    steps: int
    box: bool

    @final
    def __call__(
        self,
        classifier: Scores,
        x: Tensor,
        y: Tensor,
        noise: Tensor,
        share: Tensor | float = 1.0,
        lifted: Lifted = at_input,
    ) -> Tensor:
        """Attacked inputs (B, *shape), detached; noise (m, B, *lifted) is fixed, share scales eps (warm-up)."""
        check_attack(self.eps, self.steps)
        look = partial(gradient_of_loss, classifier, y=y, noise=noise, lifted=lifted)
        with torch.enable_grad():
            return (x + self.perturb(look, x.detach(), y, self.eps * share)).detach()

    @abstractmethod
    def perturb(self, look: Look, x: Tensor, y: Tensor, eps: Tensor | float) -> Tensor:
        """The perturbation (B, *shape), of norm at most eps."""

    def project(self, x: Tensor, delta: Tensor, eps: Tensor | float) -> Tensor:
        """Into the box, if there is one, then into the ball: shrinking towards x cannot leave a box around x."""
        if self.box:
            delta = (x + delta).clamp(0, 1) - x
        return BALLS[self.norm](delta, eps)


def check_attack(eps: float, steps: int) -> None:
    """Refuse what no attack can mean."""
    if not (math.isfinite(eps) and eps > 0):
        raise ArgumentError("eps", "must be a positive radius", eps, "Yang et al. (2022) use 1.0 on MNIST.")
    if steps < 1:
        raise ArgumentError("steps", "must be at least 1", steps, "10 is usual.")


def gradient_of_loss(
    classifier: Scores, x: Tensor, y: Tensor, noise: Tensor, lifted: Lifted = at_input
) -> tuple[Tensor, Tensor]:
    """Gradient (B, *shape) of the smoothed loss at x, and the smoothed prediction (B,) there."""
    x = x.detach().requires_grad_()
    logs = smoothed_log_probabilities(classifier, x, noise, lifted)
    loss = -logs.gather(1, y.unsqueeze(1)).sum()
    return torch.autograd.grad(loss, x)[0], logs.detach().argmax(1)


@final
@dataclass(frozen=True)
class Pgd(Attack):
    """T steps of length 2*eps/T along the normalised gradient of the smoothed loss (Salman et al. 2019, alg. 1)."""

    eps: float = 1.0
    steps: int = 10
    box: bool = True
    name: ClassVar[str] = "pgd"

    def perturb(self, look: Look, x: Tensor, y: Tensor, eps: Tensor | float) -> Tensor:
        """Ascend, project, repeat."""
        delta = torch.zeros_like(x)
        for _ in followed(range(self.steps), "attacking"):
            gradient, _ = look(x + delta)
            delta = self.project(x, delta + 2 * eps / self.steps * unit(gradient), eps)
        return delta


@final
@dataclass(frozen=True)
class PgdL1(Attack):
    """T steps of length 2*eps/T in l1 along the signs of the gradient's largest coordinates, a share of them (Tramer
    and Boneh 2019): steepest ascent would move one coordinate a step."""

    eps: float = 1.0
    steps: int = 10
    box: bool = True
    share: float = 0.01
    name: ClassVar[str] = "pgd-l1"
    norm: ClassVar[str] = "l1"

    def perturb(self, look: Look, x: Tensor, y: Tensor, eps: Tensor | float) -> Tensor:
        """Ascend, project, repeat; coordinates at the edge of the box that would leave it stay where they are."""
        delta, moved = torch.zeros_like(x), max(1, round(self.share * x[0].numel()))
        for _ in followed(range(self.steps), "attacking"):
            gradient, _ = look(x + delta)
            if self.box:
                outward = ((x + delta >= 1) & (gradient > 0)) | ((x + delta <= 0) & (gradient < 0))
                gradient = torch.where(outward, 0.0, gradient)
            sizes = gradient.flatten(1).abs()
            chosen = torch.zeros_like(sizes).scatter_(1, sizes.topk(moved).indices, 1 / moved).view_as(x)
            delta = self.project(x, delta + 2 * eps / self.steps * chosen * gradient.sign(), eps)
        return delta


@final
@dataclass(frozen=True)
class Ddn(Attack):
    """Decoupled direction and norm (Rony et al. 2019), through noise as in Salman et al. 2019.

    The ball shrinks by gamma after each step at which the input is already misclassified and grows otherwise,
    never above eps; the shortest misclassified perturbation wins, the last one where there was none.
    """

    eps: float = 1.0
    steps: int = 10
    gamma: float = 0.05
    box: bool = True
    name: ClassVar[str] = "ddn"

    def perturb(self, look: Look, x: Tensor, y: Tensor, eps: Tensor | float) -> Tensor:
        """Step lengths fall from 1 to 0.01 on a cosine, as published."""
        delta, best = torch.zeros_like(x), torch.zeros_like(x)
        column = norms(x)
        shortest = torch.full_like(column, math.inf)
        radius = torch.ones_like(column).minimum(torch.as_tensor(eps, device=x.device, dtype=x.dtype))
        for step in followed(range(self.steps + 1), "attacking"):
            gradient, predicted = look(x + delta)
            fooled = (predicted != y).view_as(column)
            better = fooled & (norms(delta) < shortest)
            best = torch.where(better, delta, best)
            shortest = torch.where(better, norms(delta), shortest)
            if step == self.steps:
                break
            length = 0.01 + 0.99 * (1 + math.cos(math.pi * step / self.steps)) / 2
            radius = torch.where(fooled, radius * (1 - self.gamma), radius * (1 + self.gamma))
            radius = radius.minimum(torch.as_tensor(eps, device=x.device, dtype=x.dtype))
            delta = delta + length * unit(gradient)
            delta = self.project(x, delta * radius / norms(delta).clamp_min(1e-12), eps)
        return torch.where(shortest.isfinite(), best, delta)


ATTACKS: dict[str, type[Pgd] | type[PgdL1] | type[Ddn]] = {one.name: one for one in (Pgd, Ddn, PgdL1)}
"""Attacks by name; of those in a norm the first is the usual one."""


@final
class SmoothedScores(nn.Module):
    """log( (1/m) sum_i softmax(f(x + e_i)) ) under m fixed draws: its cross-entropy is the smoothed loss.

    That is what SmoothAdv ascends (Salman et al. 2019, eq. 6), and any library that attacks networks can too:
    ``foolbox.PyTorchModel(SmoothedScores(net, sigma=0.25), bounds=(0, 1))``. The draws are the same for every input
    and every call, so that an attack sees one function; judge what it finds with fresh draws (``Smoothed.predict``).
    """

    def __init__(self, model: nn.Module, sigma: float, copies: int = 32, seed: int = 0) -> None:
        super().__init__()
        if copies < 1:
            raise ArgumentError("copies", "must be at least 1", copies, "32 is usual.")
        self.model, self.noise, self.copies, self.seed = model, Gaussian(sigma), copies, seed

    def forward(self, x: Tensor) -> Tensor:
        """(B, *shape) -> log-probabilities (B, K), differentiable in x."""
        drawn = torch.empty((self.copies, 1, *x.shape[1:]), dtype=torch.float32, device=x.device)
        self.noise.fill(drawn, self.seed)
        return smoothed_log_probabilities(self.model, x, drawn.expand(-1, len(x), *x.shape[1:]))
