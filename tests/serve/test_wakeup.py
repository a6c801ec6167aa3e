"""What other threads tell wakes the loop, all of it, and not more often than it must be."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

import pytest

from ringfence.serve.wakeup import from_threads


def heard(answer: Future[int]) -> asyncio.Queue[Future[int]]:
    queue, put = from_threads()
    answer.add_done_callback(put)
    return queue


def test_every_answer_is_heard_whenever_it_comes() -> None:
    async def main() -> None:
        for round_ in range(50):  # the loop sleeps, wakes, and is told more while it looks
            answers = [Future[int]() for _ in range(8)]
            waiting = [heard(one) for one in answers]
            threads = [threading.Thread(target=one.set_result, args=(round_,)) for one in answers]
            for one in threads:
                one.start()
            told = await asyncio.wait_for(asyncio.gather(*(one.get() for one in waiting)), 60)
            assert told == answers, "each by who waits for it"
            for one in threads:
                one.join()

    asyncio.run(main())


def test_what_one_thread_tells_comes_in_order() -> None:
    async def main() -> list[int]:
        queue, put = from_threads()
        threading.Thread(target=lambda: [put(number) for number in range(1000)]).start()
        return [await asyncio.wait_for(queue.get(), 60) for _ in range(1000)]

    assert asyncio.run(main()) == list(range(1000))


def test_many_answers_wake_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> int:
        loop, woken = asyncio.get_running_loop(), list[object]()
        wake = loop.call_soon_threadsafe
        monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *call: (woken.append(call), wake(*call)))
        answers = [Future[int]() for _ in range(20)]
        waiting = [heard(one) for one in answers]
        for one in answers:
            one.set_result(0)
        await asyncio.wait_for(asyncio.gather(*(one.get() for one in waiting)), 60)
        return len(woken)

    assert asyncio.run(main()) == 1


def test_who_no_longer_waits_and_a_loop_that_has_ended_harm_nobody() -> None:
    late = Future[int]()

    async def main() -> None:
        given_up, answer = Future[int](), Future[int]()
        heard(late)
        asyncio.ensure_future(heard(given_up).get()).cancel()
        waiting = heard(answer)
        given_up.set_result(0)
        answer.set_result(0)
        await asyncio.wait_for(waiting.get(), 60)

    asyncio.run(main())
    late.set_result(0)
    asyncio.run(main())
