"""The embedded network under service, and digits to ask about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from torch import Tensor

import ringfence as rf
from ringfence.sampling import ForwardPlan

pytest.importorskip("fastapi", reason="needs the serve extra")

SECRET = bytes(range(32))


@pytest.fixture(scope="session")
def digits() -> list[Tensor]:
    return [item.x for item in rf.load_dataset("default", limit=24)]


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[..., Any]]:
    """Serve a certification, the embedded default where none is named; closed at the end."""
    from ringfence.serve.limits import Limits
    from ringfence.serve.served import Served

    opened = []

    def make(value: rf.Certification | None = None, plan: ForwardPlan | None = None, **limits: Any) -> Served:
        value = value or rf.Certification("default", noise=rf.Gaussian(0.5), procedure=rf.Fixed(n=1000))
        execution = rf.Execution(device="cpu", plan=plan or ForwardPlan(100))
        opened.append(Served(value, SECRET, limits=Limits(**limits), execution=execution))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@pytest.fixture(scope="session")
def served(serve: Callable[..., Any]) -> Any:
    return serve(draws=2000, seconds=60.0, usual_seconds=60.0)
