"""Pace: how long things take on a server, as they lately did; deadlines are kept by it."""

from __future__ import annotations

import math
import time
from typing import final

HALF_LIFE = 2.0
"""Seconds after which what was seen counts half: without requests there is nothing new to see."""
RECENT = 0.05
"""Weight of the newest in a mean."""


@final
class RecentLongest:
    """The longest that something took lately: it rises at once and falls slowly, so that who plans by it is in time."""

    def __init__(self) -> None:
        self._seen, self._at = 0.0, 0.0

    def saw(self, seconds: float) -> None:
        """It took so long now."""
        self._seen, self._at = max(seconds, self.seconds), time.monotonic()

    @property
    def seconds(self) -> float:
        """How long it may take."""
        return self._seen * math.exp2((self._at - time.monotonic()) / HALF_LIFE)


@final
class Pace:
    """What a request must have time for.

    step: a batch with all that is done between two; lead: from its beginning to its first look, without which there is
    no answer; held: from its last draw to the word that the model has not changed; reply: from that word to the reply.
    stay: seconds that requests are in work, a mean. Threads write all of these without a lock: what one of them
    overwrites was one measurement among many.
    """

    def __init__(self) -> None:
        self.step, self.lead, self.held, self.reply = (RecentLongest() for _ in range(4))
        self.stay = 0.0

    def left(self, seconds: float) -> None:
        """A request was in work for so long."""
        self.stay += RECENT * (seconds - self.stay)

    @property
    def reserve(self) -> float:
        """How long before its deadline drawing for a request must end."""
        return self.step.seconds + self.held.seconds + self.reply.seconds

    @property
    def least(self) -> float:
        """How long the shortest answer takes from its beginning on."""
        return self.lead.seconds + self.reserve
