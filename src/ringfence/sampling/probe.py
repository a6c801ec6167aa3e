"""Probe: which forward shape is fastest here, found in a moment before the run."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ringfence.classifiers import KConsensus, Members
from ringfence.classifiers.folding import NORMS
from ringfence.classifiers.fused import count_resnets, whole_waves, why_not
from ringfence.errors import ArgumentError, ClassifierError, first_line
from ringfence.sampling.forward import Forward
from ringfence.sampling.plan import (
    BATCHES_IN_MEMORY,
    ForwardPlan,
    Precision,
    check_memory,
    free_memory,
    out_of_memory,
    smaller,
)

CPU_BATCHES = (20, 100, 200, 400)
FEATURES_BATCH = 1600
"""Rows of features are so cheap that a batch's fixed costs are most of its time: half the time of 400 rows."""
LARGE_FEATURES_BATCH, LARGE_FEATURES_RUN, FEW_FEATURES = 6400, 100_000, 160
"""More of them in runs of more draws, which many rows of a table make, three quarters of the time again; where inputs
have at most so many numbers: of 784 no faster, of 2048 slower by a quarter."""
USUAL_BATCHES, USUAL_NUMBERS = (100, 50, 20, 10), 3_100_000
"""Rows a forward on a CPU where nothing is measured, the most whose inputs have so few numbers: of larger batches what
layers return fits into no cache. A chunk of a hundred draws is cut into whole batches."""
SMALL_RUN = 5000
"""Draws up to which half a hundred rows are enough: the check asks a few batches, and the last one is not full."""
WORTH_FOLDING = 1000
"""Draws from which on folding norms pays on a CPU: tracing takes as long as about 20 rows, each of which gets 6 to 10%
faster."""
FEATURES_USUAL = 400
"""Of features in such a run, and where the draws are not known."""
CUDA_BATCHES = (1024, 2048, 4096, 8192)
ENOUGH_SECONDS = 0.25
"""A forward this long is past its fixed costs: larger batches would only delay progress."""
FAIR_ROWS, FAIR_SECONDS = 400, 0.04
"""Small batches are timed several in a row, up to so many rows or so long: one alone is over before other programs
interrupt it, larger ones are not, so that on a busy CPU a forward of 20 rows won that takes twice the time of 400."""
SHORT_RUN = 500 * FAIR_ROWS
"""Draws of which measuring all sizes on a CPU would take a thirtieth or more: in shorter runs nothing is measured."""
WORTH_TIMING, LONG_SECONDS = 100, 60.0
"""But where there are so many batches two of them are asked, and where the run takes so long by that, it is no short
one: of a slow network, the sizes that are worth trying are few."""
BRIEF = 1e-3
"""Seconds of a forward in such a run up to which twice as many rows are taken: what a batch takes beside it is felt. A
LeNet in two threads: 7% faster with 200 rows; in one, where 100 take 1.5 ms, it is no faster."""
LAYOUT_ROWS = 8
"""Asked twice in each layout before a shorter run of a large network: 32 rows, of a thousand or more."""
CLEARLY = 0.9
"""Of the time of images channels last, which the other layout must stay below: on one CPU a ResNet-20 is a quarter
faster channels last, a ResNet-18 a quarter slower."""
BESIDE = 3e-4
"""Seconds that a batch takes on a CPU beside its forward: of networks of features most of it, where rows are few."""
AUTOTUNE_SECONDS = 600.0
"""Trying kernels takes a minute or two and saves about a third: it pays if a run, uncompiled, would take this long."""
SLOWEST = 100.0
"""Rows a second of the slowest networks on a GPU: fewer draws are not worth the half second that measuring takes."""
COMPILE_SECONDS = 180.0
"""Compiling takes up to a minute and about halves the time: it pays if a run, uncompiled, would take this long."""
LAYER_SECONDS = 5.0
"""On a CPU on top of it, for each layer that has weights: of large networks compiling takes minutes."""
ROUNDS = 3
"""In which what is compiled and what is not are measured in turn: others may use the CPU, and the run will be long."""
CONSENSUS_PARTS, LONG_PARTS = 4, 16
"""Batches a K-consensus handles at a time: the few undecided rows of one alone would not fill a forward. Compiled,
their forwards have one shape, and what pads the last one costs least where there are many; so in a long run."""
LONG_RUN = 64
"""Batches of so many parts that make a run long: five of them are asked before it, and the last one is not full."""
SMALL_INPUT, SMALL_NETWORK, MANY_ROWS = 1024, 2**21, 65_536
"""Numbers of an input, and of a network, up to which a long run that is compiled takes so many rows at a time: the work
on fewer is done before the host has the next ones ready. A wide LeNet on an H200: 12.7 million draws a second, 4.8 by
8,192 rows. A larger network may have no room for them."""


@dataclass(frozen=True)
class _Network:
    """What a plan is for: a classifier, the shape of its inputs, its classes, and the device."""

    classifier: nn.Module
    shape: tuple[int, ...]
    num_classes: int
    device: torch.device

    def forward(self, plan: ForwardPlan) -> Forward:
        """In the form and at the shape of a plan."""
        return Forward(self.classifier, plan, self.device, self.num_classes)


def fastest_plan(
    classifier: nn.Module,
    shape: tuple[int, ...],
    num_classes: int,
    device: torch.device,
    precision: Precision = "fp32",
    compile: bool | None = False,
    batch: int | None = None,
    autotune: bool | None = None,
    draws: int = 0,
    tell: Callable[[str], None] = lambda told: None,
) -> ForwardPlan:
    """The plan with the highest rate of noisy forwards; batch fixes the size and leaves the layout to measure.

    On a CPU it is the usual one unless a long run is known to follow: measuring takes as long as thousands of draws.
    A compiled network is not measured, because compiling every candidate would cost minutes: it gets what was fastest
    wherever it was tried, the largest batch, channels last, folded batch norms and, where it can, the fused ResNets.
    compile None: where so many draws would take so long without that it pays; on a CPU only if it is faster, in the
    shape that was fastest without. tell: is told before something takes long.
    """
    if batch is not None:
        check_memory(batch, shape, device)
    network = _Network(classifier, shape, num_classes, device)
    image, cpu, cuda = len(shape) == 3, device.type == "cpu", device.type == "cuda"
    waits = any(isinstance(part, KConsensus) for part in classifier.modules())
    parts = CONSENSUS_PARTS if waits and batch is None else 1
    plain = ForwardPlan(batch or 1, precision, channels_last=image, maxima=cpu and len(shape) > 1)
    if compile:
        plan = replace(plain, compile=True, fold=True)
        return _compiled(network, plan, parts, batch, autotune, draws)
    if not measures(device, draws):
        usual = replace(plain, batch=batch or parts * usual_rows(shape, draws), parts=parts)
        if draws >= WORTH_FOLDING:
            usual = replace(usual, fold=has_norms(classifier))
        if draws <= max(SMALL_RUN, WORTH_TIMING * usual.batch - 1):
            few = replace(usual, batch=min(LAYOUT_ROWS, usual.batch), fold=False)
            asks = image and not 0 < draws < WORTH_FOLDING and weights_of(classifier) > SMALL_NETWORK
            return replace(usual, channels_last=_in_faster_layout(network, few)[0].channels_last) if asks else usual
        usual, seconds = _in_faster_layout(network, usual)
        if draws * seconds <= LONG_SECONDS * usual.batch:
            return usual if batch or seconds > BRIEF else replace(usual, batch=2 * usual.batch)
    search = _Search(network, replace(plain, fold=cuda))
    search.try_all((batch,) if batch else sizes(device, shape))
    if cpu and has_norms(classifier):
        search.measure(replace(search.best, fold=True))
    if compile is None and cuda and draws > COMPILE_SECONDS * search.rate:
        return fastest_plan(classifier, shape, num_classes, device, precision, True, batch, autotune, draws)
    if compile is None and cpu and not waits and draws > _pays_from(classifier) * search.rate:
        tell("compiling the network for this processor: some seconds, of a large one minutes")
        search.try_compiled(image)
    if parts == 1:
        return search.best
    together = replace(search.best, batch=parts * search.best.batch, parts=parts)
    return _fitting(network, together)[0]


def measures(device: torch.device, draws: int) -> bool:
    """Whether plans are measured here for so many draws, where nothing is compiled."""
    return device.type != "cpu" or draws > SHORT_RUN


@dataclass
class _Search:
    """The fastest plan so far, and its rows per second."""

    network: _Network
    best: ForwardPlan
    rate: float = 0.0

    def measure(self, wanted: ForwardPlan) -> tuple[ForwardPlan, float]:
        """Take it if it is faster; what fits of it into memory, and its rows per second."""
        plan, rate = _fitting(self.network, wanted)
        if rate > self.rate:
            self.best, self.rate = plan, rate
        return plan, rate

    def try_all(self, sizes: Iterable[int]) -> None:
        """Rows a forward, the other layout, and members at once."""
        before = 0.0
        for size in sizes:
            wanted = replace(self.best, batch=size)
            plan, rate = self.measure(wanted)
            # On a CPU it may be others that use it.
            slower = self.network.device.type == "cuda" and rate < 0.95 * before
            if slower or plan != wanted or rate * ENOUGH_SECONDS < size:  # or memory is full, or it is long enough
                break
            before = rate
        if self.best.channels_last:  # at that size alone: all sizes again would cost seconds of every start
            self.measure(replace(self.best, channels_last=False))
        with suppress(ClassifierError):  # not every network can be stacked: one may ask what its own numbers are
            if any(isinstance(one, Members) and one.stackable for one in self.network.classifier.modules()):
                self.measure(replace(self.best, stacked=True))

    def try_compiled(self, image: bool) -> None:
        """In the shape that is fastest so far; where it is no faster, or there is no C++ compiler, the plan says so."""
        why, before = "no faster here", self.best
        try:
            for _ in range(ROUNDS):
                self.measure(replace(before, channels_last=image, compile=True, fold=True, stacked=False))
                self.measure(before)
        except Exception as error:  # it may fail in any way, and the network itself has answered
            if out_of_memory(error):
                raise
            why = first_line(error.__cause__ if isinstance(error.__cause__, Exception) else error)
        if not self.best.compile:
            self.best = replace(self.best, refused=(f"compile: {why}",))


def _compiled(
    network: _Network, plan: ForwardPlan, parts: int, batch: int | None, autotune: bool | None, draws: int
) -> ForwardPlan:
    """What was fastest wherever it was tried, for a network that is compiled; parts: more than 1 for a K-consensus."""
    device, size = network.device, batch or _rows(network, 0 if parts > 1 else draws)
    fused = plan.precision == "bf16" and _fuses(network)
    # Of several networks whole waves of blocks: a last one that is nearly empty costs each; of one, noise fills it.
    if fused and batch is None and count_resnets(network.classifier) > 1:
        size = whole_waves(size, device)
    parts = consensus_parts(size, network.shape, device, draws) if parts > 1 and not fused else parts
    plan = replace(plan, batch=size * parts)
    others = device.type == "cuda" and not fused  # on a GPU, where the time is not spent in our own kernel
    if autotune is None:
        asked = others and draws > AUTOTUNE_SECONDS * SLOWEST
        autotune = asked and _takes_long(network, plan, draws)
    half = others and plan.precision == "bf16"
    return replace(plan, parts=parts, fused=fused, joined=half, exchanged=half, autotune=autotune)


def _in_faster_layout(network: _Network, plan: ForwardPlan) -> tuple[ForwardPlan, float]:
    """The plan, not channels last where that is clearly faster on a CPU, and seconds of its forward."""
    took = _of_two_batches(network, plan)
    if plan.channels_last:
        other = replace(plan, channels_last=False)
        if 0 < (seconds := _of_two_batches(network, other)) < CLEARLY * took:
            return other, seconds
    return plan, took


def _of_two_batches(network: _Network, plan: ForwardPlan) -> float:
    """Seconds of the faster one; 0 where memory is full: the run will find out how many rows there is room for."""
    forward, times = network.forward(plan), []
    batch = torch.randn(plan.batch, *network.shape, dtype=torch.float32)
    for _ in range(2):
        begin = time.perf_counter()
        try:
            forward(batch)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            return 0.0
        times.append(time.perf_counter() - begin)
    return min(times)


def has_norms(classifier: nn.Module) -> bool:
    """Whether there is something to fold."""
    return any(isinstance(part, NORMS) for part in classifier.modules())


def weights_of(classifier: nn.Module) -> int:
    """Numbers that it has learnt."""
    return sum(one.numel() for one in classifier.parameters())


def _pays_from(classifier: nn.Module) -> float:
    """Seconds of a run on a CPU, uncompiled, from which on compiling it pays with room to spare."""
    layers = sum(any(one.dim() > 1 for one in part.parameters(recurse=False)) for part in classifier.modules())
    return COMPILE_SECONDS + LAYER_SECONDS * layers


def _rows(network: _Network, draws: int) -> int:
    """Of a compiled forward, in a run of so many draws."""
    small = torch.Size(network.shape).numel() <= SMALL_INPUT and weights_of(network.classifier) <= SMALL_NETWORK
    long = network.device.type == "cuda" and draws >= LONG_RUN * MANY_ROWS
    return MANY_ROWS if small and long else max(sizes(network.device, network.shape))


def consensus_parts(size: int, shape: tuple[int, ...], device: torch.device, draws: int) -> int:
    """Batches of this size that a K-consensus of compiled members handles at a time, in a run of so many draws."""
    free, rows = free_memory(device), LONG_PARTS * size
    each = 4 * BATCHES_IN_MEMORY * torch.Size(shape).numel()
    room = free is not None and device.type == "cuda" and 4 * rows * each < free  # the network needs some, too
    return LONG_PARTS if room and draws >= LONG_RUN * rows else CONSENSUS_PARTS


def forward_rate(
    classifier: nn.Module, shape: tuple[int, ...], num_classes: int, device: torch.device
) -> tuple[ForwardPlan, float]:
    """The fastest plan here, and its rows per second."""
    plan = fastest_plan(classifier, shape, num_classes, device)
    return _fitting(_Network(classifier, shape, num_classes, device), plan)


def _takes_long(network: _Network, plan: ForwardPlan, draws: int) -> bool:
    """Whether so many draws, uncompiled, take so long that trying kernels pays."""
    _, rate = _fitting(network, replace(plan, batch=min(plan.batch, CUDA_BATCHES[0]), compile=False))
    return draws / rate > AUTOTUNE_SECONDS


def _fuses(network: _Network) -> bool:
    """Whether there are CIFAR ResNets that see images of their size, on a device where they can be fused."""
    if not count_resnets(network.classifier):
        return False
    if problem := why_not(network.device):
        if "cupy" in problem:
            hint = (
                "CIFAR ResNets would run as one kernel here, and faster, if CuPy were installed: "
                'pip install "ringfence[cuda]".'
            )
            warnings.warn(hint, stacklevel=2)
        return False
    try:
        zeros = torch.zeros(2, *network.shape, dtype=torch.float32, device=network.device)
        network.forward(ForwardPlan(2, "bf16", fused=True))(zeros)
    except ArgumentError:
        return False
    return True


def usual_rows(shape: tuple[int, ...], draws: int = 0) -> int:
    """Of a forward on a CPU where nothing is measured, before so many draws (0: nobody knows)."""
    if len(shape) == 1:
        larger = feature_rows(shape)[-1 if draws > LARGE_FEATURES_RUN else 0]
        return larger if draws > SMALL_RUN else FEATURES_USUAL
    room = USUAL_NUMBERS // max(1, torch.Size(shape).numel())
    few = USUAL_BATCHES[1 if 0 < draws <= SMALL_RUN else 0 :]
    return next((rows for rows in few if rows <= room), few[-1])


def feature_rows(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of a forward on a CPU, of features in runs that are not small."""
    return (FEATURES_BATCH, LARGE_FEATURES_BATCH) if shape[0] <= FEW_FEATURES else (FEATURES_BATCH,)


def sizes(device: torch.device, shape: tuple[int, ...]) -> Iterator[int]:
    """Rows a forward that are tried, the largest last."""
    if device.type == "cpu":
        yield from CPU_BATCHES
        if len(shape) == 1:
            yield from feature_rows(shape)
        return
    # Keep a float32 batch of inputs below about 400 MB.
    largest = max(32, min(CUDA_BATCHES[-1], 100_000_000 // int(torch.Size(shape).numel())))
    yield from (*(size for size in CUDA_BATCHES if size < largest), largest)


def _fitting(network: _Network, plan: ForwardPlan) -> tuple[ForwardPlan, float]:
    """The plan, its batch halved until it fits into memory, and its rows per second."""
    beside = BESIDE if network.device.type == "cpu" else 0.0
    while True:
        try:
            return plan, plan.batch / (_seconds(network.forward(plan), network.shape) + beside)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
        if network.device.type == "cuda":
            torch.cuda.empty_cache()
        plan = smaller(plan)


def _seconds(forward: Forward, shape: tuple[int, ...]) -> float:
    """Time of one forward on standard normal inputs, of several in a row where they are small."""
    batch: Tensor = torch.randn(forward.plan.batch, *shape, dtype=torch.float32, device=forward.device)
    times: list[float] = []
    if forward.plan.compile:
        forward(batch)  # takes as long as compiling does
    start = time.perf_counter()
    for _ in range(3 if forward.device.type == "cpu" else 5):
        begin, done, spent = time.perf_counter(), 0, 0.0
        while done * len(batch) < FAIR_ROWS and spent < FAIR_SECONDS:
            float(forward(batch).scores.sum())  # reading one number waits for the device
            done, spent = done + 1, time.perf_counter() - begin
        times.append(spent / done)
        if time.perf_counter() - start > 2 * ENOUGH_SECONDS:
            break
    return min(times[1:] or times)  # the least disturbed one
