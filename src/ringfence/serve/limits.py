"""Limits: what a server lets a request ask for, how much of everything it takes, and how it refuses the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from pydantic import ConfigDict

from ringfence.errors import ArgumentError, RingfenceError
from ringfence.settings import check_settings, count, setting, share

MORE = "Ask again, or for more seconds."
"""What helps where the time was too short."""


class Busy(RingfenceError):
    """As much as it takes is waiting already; after says in how many seconds to come again."""

    status = 429

    def __init__(self, rule: str, received: object, after: float = 1.0) -> None:
        super().__init__("request", rule, received, f"Come again in {after:g} s.")
        self.after = after


class Gone(RingfenceError):
    """There is no answer: no time was left, the server stops, or its model is no longer what it was."""

    status = 503

    def __init__(self, rule: str, received: object, remedy: str = "Ask again.") -> None:
        super().__init__("request", rule, received, remedy)


class NotFound(RingfenceError):
    """There is nothing of that name."""

    status = 404


class Damaged(RingfenceError):
    """What was kept on the disk is no longer what was written there."""

    status = 410


class TooLarge(RingfenceError):
    """A body of more bytes than are read, or one that took too long."""

    status = 413


class UnknownKind(RingfenceError):
    """A body that is none of the kinds that are read."""

    status = 415


@final
@dataclass(frozen=True)
class Limits:
    """Of one server; a request outside is refused with the limit it met."""

    least_alpha: float = share(1e-6, help="Smallest alpha of a request.")
    most_alpha: float = share(0.05, help="Largest alpha of a request.")
    alpha: float = share(0.001, help="Alpha of a request that names none.")
    seconds: float = setting(10.0, help="Longest time budget of a request, in seconds.", above=0)
    usual_seconds: float = setting(2.0, help="Time budget of a request that names none.", above=0)
    draws: int = count(100_000, help="Draws of a request, at most.")
    together: int = setting(256, help="Requests of a model in work at once, at least.", low=1)
    waiting: int = setting(64, help="Requests that may wait; more are told to come again.", low=1)
    body: int = setting(16 * 2**20, help="Bytes of a request, at most.", low=1)
    body_seconds: float = setting(10.0, help="Time in which a request must have been sent.", above=0)
    per_minute: int = setting(600, help="Requests of a client in a minute.", low=1)
    job_inputs: int = setting(10_000, help="Inputs that jobs may have waiting, all together.", low=1)
    kept_jobs: int = setting(1_000, help="Finished jobs that are kept, the newest.", low=1)
    drain: float = setting(30.0, help="Seconds that requests have to end after SIGTERM.", above=0)

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.least_alpha <= self.alpha <= self.most_alpha:
            rule = f"must lie between `least_alpha` and `most_alpha`, {self.least_alpha:g} and {self.most_alpha:g}"
            raise ArgumentError("alpha", rule, self.alpha, "Widen them, or choose another.")
        if self.usual_seconds > self.seconds:
            rule = f"must be at most `seconds`, {self.seconds:g}"
            raise ArgumentError("usual_seconds", rule, self.usual_seconds, "Raise `seconds`.")


@final
@dataclass(frozen=True)
class Question:
    """What is asked about an input: radius null for the largest that is proved in time, 0 for the class alone;
    seconds null for no budget, as jobs may have none."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)  # as part of an answer
    alpha: float
    radius: float | None = None
    seconds: float | None = None

    @classmethod
    def within(
        cls, limits: Limits, alpha: float | None, radius: float | None, seconds: float | None, job: bool = False
    ) -> Question:
        """With what is usual where nothing is said; refused outside the limits."""
        alpha = limits.alpha if alpha is None else alpha
        if not limits.least_alpha <= alpha <= limits.most_alpha:
            rule = f"must lie between {limits.least_alpha:g} and {limits.most_alpha:g} on this server"
            raise ArgumentError("alpha", rule, alpha, f"Usual is {limits.alpha:g}.")
        if radius is not None and not 0 <= radius < 1e6:
            raise ArgumentError("radius", "must be a number from 0 to 1e6", radius, "Leave it out for the largest.")
        if seconds is None:
            return cls(alpha, radius, None if job else limits.usual_seconds)
        if not 0 < seconds <= limits.seconds:
            rule = f"must be above 0 and at most {limits.seconds:g} on this server"
            raise ArgumentError("seconds", rule, seconds, "Ask for less, or as a job.")
        return cls(alpha, radius, seconds)
