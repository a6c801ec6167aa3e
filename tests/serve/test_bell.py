"""Answers of other threads wake the loop, all of them, and not more often than it must be."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

import pytest

from ringfence.serve.bell import heard


def test_every_answer_is_heard_whenever_it_comes() -> None:
    async def main() -> None:
        for round_ in range(50):  # the loop sleeps, wakes, and is rung again while it looks
            answers = [Future[int]() for _ in range(8)]
            waiting = [heard(one) for one in answers]
            threads = [threading.Thread(target=one.set_result, args=(round_,)) for one in answers]
            for one in threads:
                one.start()
            await asyncio.wait_for(asyncio.gather(*waiting), 20)
            for one in threads:
                one.join()

    asyncio.run(main())


def test_many_answers_wake_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> int:
        loop, woken = asyncio.get_running_loop(), list[object]()
        wake = loop.call_soon_threadsafe
        monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *call: (woken.append(call), wake(*call)))
        answers = [Future[int]() for _ in range(20)]
        waiting = [heard(one) for one in answers]
        for one in answers:
            one.set_result(0)
        await asyncio.wait_for(asyncio.gather(*waiting), 20)
        return len(woken)

    assert asyncio.run(main()) == 1


def test_who_no_longer_waits_and_a_loop_that_has_ended_harm_nobody() -> None:
    late = Future[int]()

    async def main() -> None:
        given_up, answer = Future[int](), Future[int]()
        heard(late)
        heard(given_up).cancel()
        waiting = heard(answer)
        given_up.set_result(0)
        answer.set_result(0)
        await asyncio.wait_for(waiting, 20)

    asyncio.run(main())
    late.set_result(0)
    asyncio.run(main())
