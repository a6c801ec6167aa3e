"""Steps of one or several trainings as one CUDA graph: small networks are launch-bound, and a replay is one launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ringfence.training.checkpoints import undone
from ringfence.training.stepper import Stepper

WARM_UP_STEPS = 3
"""Steps before a graph is recorded, so that libraries have chosen their algorithms; they are undone."""


def steps_of(steppers: Sequence[Stepper]) -> Callable[[], None]:
    """What takes every one of these by the step it was aimed at: a recorded graph on CUDA where plans ask for it."""
    if all(one.recordable for one in steppers):
        return record(steppers).replay

    def one_after_the_other() -> None:
        for stepper in steppers:
            stepper.step()

    return one_after_the_other


def record(steppers: Sequence[Stepper]) -> torch.cuda.CUDAGraph:
    """One graph with a branch per training: branches overlap on the device, where processes would take turns.

    What a stepper does in it depends on its own memory and generator alone, so that it ends with the weights that
    it would have found by itself. (Threads that replay a graph each were tried and did not end.)
    """
    device = steppers[0].device
    streams = [torch.cuda.Stream(device) for _ in steppers]  # type: ignore[no-untyped-call]
    main = torch.cuda.current_stream(device)
    graph = torch.cuda.CUDAGraph()
    kept = [{name: value.clone() for name, value in one.tensors().items()} for one in steppers]
    with undone([member for one in steppers for member in one.members]):
        for stepper, stream in zip(steppers, streams, strict=True):
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                for _ in range(WARM_UP_STEPS):
                    stepper.step()
            main.wait_stream(stream)
            graph.register_generator_state(stepper.generator)
            stepper.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            begun = torch.cuda.current_stream(device)
            for stepper, stream in zip(steppers, streams, strict=True):
                stream.wait_stream(begun)
                with torch.cuda.stream(stream):
                    stepper.step()
            for stream in streams:
                begun.wait_stream(stream)
    for stepper, tensors in zip(steppers, kept, strict=True):
        stepper.restore(tensors)
    return graph
