"""Served: a certification that answers while requests come; everything but HTTP."""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import final

from torch import Tensor

from ringfence.certification import Certification
from ringfence.data import Input
from ringfence.driver import CHECKED_ON, Begun, begin, confirmed, lifted
from ringfence.errors import ArgumentError, RingfenceError
from ringfence.lift import Lift
from ringfence.loaded import Loaded
from ringfence.noise.exact import onto_lattice
from ringfence.procedures import Anytime
from ringfence.serve.asked import Asked
from ringfence.serve.limits import MORE, Busy, Gone, Limits
from ringfence.serve.model import Load, Model, Terms
from ringfence.serve.pace import Pace
from ringfence.serve.sharing import Flights, SharedSampler
from ringfence.store.atomic import create_exclusively, read_file, writing_errors
from ringfence.work import Execution

BACKGROUND = 8
"""Inputs of jobs that are in work at once, at most: slots stay free for those who wait."""

N0, LOOK = 50, 25
"""Draws that choose the class, and up to the first look: few, because most requests are easy and wait for an answer."""
STEPS = 20
"""Batches that fit into the usual budget, at least, where nobody chose their size: deadlines are kept by whole ones."""
log = logging.getLogger("ringfence.serve")


def read_secret(path: Path) -> bytes:
    """The secret in a file; a new one, which only its owner reads, where there is none."""
    if not path.exists():
        with writing_errors(path), suppress(FileExistsError):  # of a server that was started at the same time
            create_exclusively(path, f"{secrets.token_hex(32)}\n".encode(), mode=0o600)
    return read_file(path).strip()


def input_hash(x: Tensor) -> str:
    """SHA-256 of an input: its shape, then its float32 values, little-endian; the same for every file it came in.

    Equal inputs have equal hashes: a zero has no sign, or its sign would be a way to draw again.
    """
    values = (x.contiguous().numpy() + 0.0).astype("<f4", copy=False)
    return sha256(json.dumps(list(x.shape)).encode() + b"\n" + values.tobytes()).hexdigest()


@final
class Waiting:
    """Requests that nobody works on yet: those with a deadline first, a bounded number of them."""

    def __init__(self, most: int, pace: Pace) -> None:
        self._most, self._pace, self.closed, self._changed = most, pace, False, threading.Condition()
        self._urgent: deque[Asked] = deque()
        self._background: deque[Asked] = deque()
        self._idle = 0  # devices that wait here for something to do

    def __len__(self) -> int:
        return len(self._urgent)

    def put(self, asked: Asked) -> None:
        """Add one; refused where there are too many, or no more are taken."""
        with self._changed:
            if self.closed:
                raise Gone("is not taken any more", "a server that stops")
            if not asked.background and len(self._urgent) >= self._most:
                raise Busy(f"waits where {self._most} others do already", "one more")
            (self._background if asked.background else self._urgent).append(asked)
            self._changed.notify()

    def take(self, block: bool, background: Callable[[], bool] = lambda: True) -> Asked | None:
        """The next one; None where there is none, or after closing, when all have been taken.

        block: there is nothing else to do, so that whoever has any time left is taken. Devices that have something to
        do leave one for each that has nothing. background: whether a job's would be taken.
        """
        while True:
            late: list[Asked] = []
            with self._changed:
                if not (block or self.closed) and len(self._urgent) + len(self._background) <= self._idle:
                    return None
                found = self._next(background, 0.0 if block else self._pace.least, late)
                over = found is not None or self.closed or not block
                if not (over or late):
                    self._idle += 1
                    self._changed.wait()
                    self._idle -= 1
            for one in late:  # without the lock: whoever hears of it may do anything
                one.answer.set_exception(Gone("had no time left when its turn came", f"{one.question.seconds} s", MORE))
            if over:
                return found

    def _next(self, background: Callable[[], bool], needed: float, late: list[Asked]) -> Asked | None:
        """The next one that has the time that is needed; late: gets those without, for whom there is no answer."""
        while self._urgent:
            asked = self._urgent.popleft()
            if time.monotonic() + needed < asked.deadline and not asked.timing.left:
                return asked
            late.append(asked)
        return self._background.popleft() if self._background and background() else None

    def close(self) -> None:
        """Take no more; jobs that have not begun stay undone."""
        with self._changed:
            self.closed = True
            left, self._background = self._background, deque()
            self._changed.notify_all()
        for asked in left:
            asked.answer.set_exception(Gone("was not begun", "a server that stops"))


@final
class Served(Model):
    """One model under service: requests wait in one line, and every device works on what is next.

    Draws depend on the secret, the config and the input, on nothing else: asking again, for another radius or alpha or
    with another budget, shows more or fewer of the same draws, about which the anytime bound holds all at once.
    """

    def __init__(
        self,
        certification: Certification,
        secret: bytes,
        *,
        name: str = "default",
        limits: Limits | None = None,
        execution: Execution | None = None,
        devices: Sequence[str] = (),
    ) -> None:
        self._secret, limits = secret, limits or Limits()
        if len(secret) < 16:
            raise ArgumentError("secret", "must have at least 16 bytes", len(secret), "Use 32 random ones.")
        execution = execution or Execution()
        _refuse_other_claims(certification)
        certification = certification.in_form(None)  # nobody knows on which lattice requests will lie, if on any
        self.certification = certification
        self.loaded: Loaded = certification.load(execution.device)
        _refuse_map_of_each(self.loaded.lift)
        usual, data = _anytime(certification, limits), self.loaded.dataset
        places = devices or (execution.device,)
        self._begun = [_begin(self.loaded, usual, limits, replace(execution, device=one)) for one in places]
        shape, lattice = tuple(data.shape), certification.noise.law.lattice
        given = self._begun[0].given
        super().__init__(Terms(name, limits, self.loaded.config, shape, data.class_names, usual, given, lattice))
        self._waiting = Waiting(limits.waiting, self.pace)
        self._flights: list[Flights] = []
        self._samplers = [SharedSampler(begun.sampler, self.pace) for begun in self._begun]
        self._threads = [
            threading.Thread(target=self._work, args=parts, daemon=True, name=f"{name}-{number}")
            for number, parts in enumerate(zip(self._begun, self._samplers, strict=True))
        ]
        for thread in self._threads:
            thread.start()

    # Asking

    def noise_key(self, x: Tensor) -> int:
        """HMAC-SHA256(secret, config, input and looks): which draws this input gets, a signed 64-bit number.

        Neither the radius asked for nor the budget takes part: both only say when to stop. Nor does alpha: from the
        same draws the bound at a smaller one is the lower, so that all answers at alphas up to a hold together with
        probability 1 - a, and nobody asks at thousands of them until a lucky one comes. On the lattice of exact
        noise it is that of the lattice point, which several floats stand for; inputs off the lattice are refused.
        """
        usual, lattice = self._usual, self.terms.lattice
        x = x if lattice is None else onto_lattice("input", x, lattice)
        looks = {"n0": usual.n0, "n": usual.n, "look": usual.look, "ratio": usual.ratio}
        about = json.dumps([self.config_hash, input_hash(x), looks], sort_keys=True)
        return int.from_bytes(hmac.digest(self._secret, about.encode(), "sha256")[:8], "little", signed=True)

    def _identify(self, x: Tensor) -> int:
        return self.noise_key(x)

    def _enqueue(self, asked: Asked) -> None:
        self._waiting.put(asked)

    @property
    def load(self) -> Load:
        """What it has to do now."""
        samplers, in_work = self._samplers, sum(len(one.open_now) for one in self._flights)
        drawn, batches = sum(one.drawn for one in samplers), sum(one.batches for one in samplers)
        slots, pace = sum(one.slots for one in samplers), self.pace
        return Load(drawn, batches, slots, in_work, len(self._waiting), pace.stay, pace.least)

    def close(self) -> None:
        """As of every model; a device that hangs is not waited for any longer."""
        self._waiting.close()
        for asked in [one for flights in self._flights for one in list(flights.everything)]:
            if asked.background:
                asked.leave()
        until = time.monotonic() + self.limits.drain
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    # Answering

    def _work(self, begun: Begun, sampler: SharedSampler) -> None:
        value, loaded = self.certification, self.loaded
        flights = Flights(sampler, begun, value.mechanisms[1:], loaded.lift, value.seed, self.config_hash, self.pace)
        self._flights.append(flights)
        try:
            while (first := self._waiting.take(block=True)) is not None:
                arriving = self._arriving(first, flights)
                for item, records in confirmed(sampler, flights, begun.facts, arriving, lambda _: None):
                    assert isinstance(item, Asked)
                    now = time.monotonic()
                    self.pace.left(now - item.timing.began)
                    self.pace.lead.saw(item.timing.first)
                    self.pace.held.saw(now - item.timing.ended)
                    item.timing.ended = now
                    item.answer.set_result(records[0])
        except BaseException as error:  # whatever it was, nobody may wait for ever
            self._break(flights, error)

    def _arriving(self, first: Asked, flights: Flights) -> Iterator[tuple[Input, Mapping[str, int]] | None]:
        """A request, and then whatever waits when the loop asks for more: None while nothing does."""
        asked: Asked | None = first
        while True:
            if asked is not None:
                flights.take_on(asked)
                if asked.background and self._waiting.closed:  # since close() looked for jobs that must leave
                    asked.leave()
            yield None if asked is None else (asked, {})
            asked = self._waiting.take(block=False, background=lambda: flights.jobs < BACKGROUND)

    def _break(self, flights: Flights, error: BaseException) -> None:
        """Nothing that was decided since the model was last seen unchanged is answered.

        Clients hear the rule it broke; what was found instead may be words of the model's own, with names of files.
        """
        rule = error.rule if isinstance(error, RingfenceError) else None
        self.broken = f"one that broke a rule: it {rule}" if rule else type(error).__name__
        log.error(json.dumps({"error": "model", "model": self.name, "why": str(error)}), exc_info=rule is None)
        self._waiting.close()
        left = [*flights.everything]
        while (asked := self._waiting.take(block=False)) is not None:
            left.append(asked)
        for asked in left:
            if not asked.answer.done():
                asked.answer.set_exception(Gone("needs a model that stays as it was", self.broken))


def _anytime(certification: Certification, limits: Limits) -> Anytime:
    """The looks that all requests have: the certification's, where it has any."""
    own = certification.procedure
    if isinstance(own, Anytime):
        return replace(own, seconds=limits.seconds, n=min(own.n, limits.draws), radii=())
    return Anytime(alpha=limits.alpha, n0=N0, n=limits.draws, look=LOOK, seconds=limits.seconds)


def _begin(loaded: Loaded, usual: Anytime, limits: Limits, execution: Execution) -> Begun:
    """Engine and checks; where nobody chose the batch, one that takes a small part of the usual budget."""
    samples = list(islice(loaded.dataset, CHECKED_ON)) or [Input(0, loaded.dataset.first_readable, None, "")]
    work = replace(loaded.work((), execution), procedure=usual, lanes=("main",))
    start = partial(begin, samples=lifted(samples, loaded.lift), slots=limits.together)
    begun = start(work)
    if execution.batch is not None or execution.plan is not None:
        return begun
    batch, took, most = begun.sampler.plan.batch, begun.sampler.time_of_batch(), limits.usual_seconds / STEPS
    if took <= most or batch == 1:
        return begun
    return start(replace(work, execution=replace(execution, batch=max(1, int(batch * most / took)))))


def _refuse_other_claims(value: Certification) -> None:
    """Requests are answered from votes, for one classifier: another claim would be about another function."""
    lanes, test = value.lanes, value.test
    if len(lanes) != 1:
        rule = "must have one lane: whoever may choose among several answers chooses a lucky one"
        raise ArgumentError("certification", rule, f"{len(lanes)} lanes", "Name one vote, without prefixes.")
    if test.needs != ("votes",) or test.predictor(1) is None:
        rule = "must be about the class that most noisy copies vote for"
        raise ArgumentError("certification", rule, f"procedure {test.name}", "Serve one of fixed, sequential, anytime.")
    if not value.sound:
        rule = "must be sound to be served"
        raise ArgumentError("certification", rule, f"a paper form of {test.name}", "Use the sound form.")


def _refuse_map_of_each(lift: Lift) -> None:
    """Here an input's id follows from its values: moved a little, it would have another map, another classifier."""
    if lift.by_id:
        rule = "must cut all inputs alike: a perturbed one would get other patches, about which nothing is proved"
        raise ArgumentError("certification", rule, f"lift {lift.name} of each input's id", "Use sampling=dense.")
