"""Commands around the server that need none: keys, certificates, seals, and what is refused before it starts."""

from __future__ import annotations

import errno
import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fastapi import testclient
from torch import Tensor
from typer.testing import CliRunner

import ringfence as rf
from ringfence.cli import app
from ringfence.cli.serve import name_and_path
from ringfence.errors import StoreError
from ringfence.serve.app import create_app
from ringfence.serve.asked import Asked
from ringfence.serve.certificates import SigningKey
from ringfence.serve.jobs import Jobs
from ringfence.serve.limits import Busy, Gone, Limits, Question
from ringfence.serve.schemas import Answer, JobState
from ringfence.serve.served import Served, read_secret

Serve = Callable[..., Served]


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.output


def until_done(jobs: Jobs, job: str) -> JobState:
    while (state := jobs.state(job, "me")) is not None and state.state != "done" and jobs._thread.is_alive():
        time.sleep(0.01)
    assert state is not None
    assert state.state == "done"
    return state


def test_a_remedy_names_no_option_that_the_command_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text("import torch\ndef guess(): return torch.nn.Sequential(torch.nn.Flatten())\n")
    Path("job.yaml").write_text("classifier: model.py:guess\nnoise: {sigma: 0.5}\n")
    code, said = run("serve", "job.yaml", "--device", "cpu", "--together")
    assert code == 2
    assert "better than by guessing" in said
    assert "--no-check" not in said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--host", "0.0.0.0"], "needs bearer tokens"),
        (["--limit", "nothing=1"], "must be one of least_alpha"),
        (["--limit", "seconds=-1"], "--limit seconds: must be positive and finite; got -1"),
        (["--limit", "seconds=abc"], "--limit seconds: must be a number; got 'abc'"),
        (["--limit", "seconds=a", "--limit", "draws=b"], "- --limit draws: must be a whole number; got 'b'"),
        (["--limit", "draws"], "--limit draws: must be a whole number; got ''"),
        (["--limit", "alpha=0.9"], "--limit alpha: must lie between --limit least_alpha and --limit most_alpha"),
        (["--limit", "usual_seconds=60"], "Raise --limit seconds."),
        (["--limit", "seconds=5", "--limit", "seconds=6"], "--limit seconds: takes one value; got 5.0 and 6"),
        (["--key", "job.yaml"], "Ed25519"),
        (["job.yaml"], "names of their own"),
        (["runs/misspelt"], "runs/misspelt: must be a run folder or a job file; got nothing there"),
        (["--tokens", "job.yaml"], "at least 16 characters"),
    ],
)
def test_what_is_wrong_is_told_before_the_server_starts(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text("noise: {sigma: 0.5}\nseed: 1\n")
    code, said = run("serve", "job.yaml", *words)
    assert code == 2
    assert told in said


def test_a_port_that_is_taken_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text("noise: {sigma: 0.5}\nseed: 1\n")
    monkeypatch.setattr("ringfence.cli.serve.served_models", lambda *_, **__: pytest.fail("this can take minutes"))
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = str(other.getsockname()[1])
        code, said = run("serve", "job.yaml", "--port", taken, "--batch", "16")
    assert code == 2
    assert f"127.0.0.1:{taken}" in said
    assert "Choose another --port" in said


def test_models_are_named_after_their_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As sweeps name them: with a number at the end, and with an =."""
    monkeypatch.chdir(tmp_path)
    for folder in ("gaussian-0.25", "sigma=0.5"):
        Path(folder).mkdir()
    assert name_and_path("gaussian-0.25") == ("gaussian-0.25", Path("gaussian-0.25"))
    assert name_and_path("sigma=0.5") == ("sigma=0.5", Path("sigma=0.5"))
    assert name_and_path("quiet=sigma=0.5") == ("quiet", Path("sigma=0.5"))
    assert name_and_path("jobs/one.yaml") == ("one", Path("jobs/one.yaml"))
    assert name_and_path(".") == (tmp_path.name, Path("."))


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("uvicorn", "app(['serve', 'runs/x'])"),
        ("fastapi", "app(['serve', 'runs/x'])"),
        ("cryptography", "app(['keygen', 'key'])"),
        ("httpx", "rf.Client"),
    ],
)
def test_without_the_extra_its_name_is_told(module: str, code: str) -> None:
    program = (
        f"import sys; sys.modules[{module!r}] = None\nimport ringfence as rf\nfrom ringfence.cli import app\n{code}"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode != 0
    told = " ".join(done.stderr.split())
    assert f"serve: needs {module}; got not installed. Install it: pip install 'ringfence[serve]'." in told
    assert code == "rf.Client" or "Traceback" not in told


def test_a_secret_is_made_once_and_kept(tmp_path: Path) -> None:
    first = read_secret(tmp_path / "secret")
    assert len(first) == 64
    assert read_secret(tmp_path / "secret") == first
    assert (tmp_path / "secret").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("make", [read_secret, SigningKey.make], ids=["secret", "key"])
def test_no_half_of_a_secret_or_key_is_left_behind(
    make: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty file would be found by every later start, and refused."""

    def refuse(descriptor: int) -> None:
        assert [file.stat().st_mode & 0o077 for file in tmp_path.iterdir()] == [0]
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StoreError, match="No space left"):
        make(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    make(tmp_path / "file")


def test_a_secret_of_a_server_that_was_faster_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret"

    def meanwhile(count: int) -> str:
        path.write_text("f" * 2 * count)
        return "0" * 2 * count

    monkeypatch.setattr("secrets.token_hex", meanwhile)
    assert read_secret(path) == b"f" * 64


def test_jobs_have_one_server_and_an_end(serve: Serve, digits: list[Tensor], tmp_path: Path) -> None:
    served = serve()
    jobs = Jobs(tmp_path, {"default": served}, Limits(job_inputs=3, kept_jobs=2))
    try:
        with pytest.raises(StoreError, match=r"^jobs .*: a folder has one writer; .* choose another `jobs`\."):
            create_app([served], jobs=tmp_path)  # not only when it is asked to listen
        with pytest.raises(Busy, match="of at most 3"):
            jobs.submit("default", torch.stack(digits[:4]), Question(0.001, 0.0), "me")
        kept = []
        for _ in range(4):
            kept.append(jobs.submit("default", torch.stack(digits[:2]), Question(0.001, 0.0), "me"))
            until_done(jobs, kept[-1])
        done, answers = jobs.state(kept[-1], "me"), jobs.base.answers(kept[-1])
        jobs._finish([(kept[-1], 0, None, "once more")])
        assert jobs.state(kept[-1], "me") == done, "an answer is written once"
        assert jobs.base.answers(kept[-1]) == answers
        assert [jobs.state(one, "me") is None for one in kept] == [True, False, False, False], "the oldest is dropped"
    finally:
        jobs.close()


def test_another_file_in_the_place_of_the_queue_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "jobs.sqlite").write_text("no database, " * 100)
    for _ in range(2):  # and the folder is free again
        with pytest.raises(StoreError, match="must be a queue of jobs"):
            Jobs(tmp_path, {}, Limits())


@pytest.mark.parametrize("how", ["damaged", "other columns"])
def test_a_damaged_queue_is_refused_by_name(serve: Serve, digits: list[Tensor], tmp_path: Path, how: str) -> None:
    served, path = serve(), tmp_path / "jobs.sqlite"
    served.broken = "so that it waits"
    jobs = Jobs(tmp_path, {"default": served}, Limits())
    jobs.submit("default", torch.stack(digits), Question(0.001, 0.0), "me")
    jobs.close()
    if how == "damaged":
        content = path.read_bytes()
        path.write_bytes(content[:4096] + bytes(len(content) - 4096))
    else:
        with closing(sqlite3.connect(path)) as base:
            base.execute("ALTER TABLE jobs RENAME COLUMN owner TO whose")
    with pytest.raises(StoreError, match="must be a queue of jobs"):
        Jobs(tmp_path, {"default": served}, Limits())


def test_an_input_that_was_changed_on_the_disk_costs_no_other(
    serve: Serve, digits: list[Tensor], tmp_path: Path
) -> None:
    broken = serve()
    broken.broken = "so that it waits"
    jobs = Jobs(tmp_path, {"default": broken}, Limits())
    changed, whole = (jobs.submit("default", torch.stack(digits[:3]), Question(0.001, 0.0), "me") for _ in range(2))
    jobs.close()
    with closing(sqlite3.connect(tmp_path / "jobs.sqlite")) as base:
        base.execute("UPDATE items SET input = x'00' WHERE job = ? AND place = 0", (changed,))
        base.execute("UPDATE items SET input = NULL WHERE job = ? AND place = 1", (changed,))
        base.commit()
    jobs = Jobs(tmp_path, {"default": serve()}, Limits())
    found = [until_done(jobs, one) for one in (changed, whole)]
    jobs.close()
    assert [(one.answered, list(one.failed)) for one in found] == [(1, [0, 1]), (3, [])]


@pytest.mark.parametrize(
    "changed",
    [
        "asked = 'x'",
        'asked = \'{"alpha": "often"}\'',
        'asked = \'{"alpha": 0.1, "beta": 1}\'',
        "asked = NULL",
        "inputs = 'x'",
    ],
)
def test_a_job_whose_row_was_changed_is_told_of_as_damaged(
    serve: Serve, digits: list[Tensor], tmp_path: Path, changed: str
) -> None:
    served = serve()
    served.broken = "so that it waits"
    app = create_app([served], jobs=tmp_path)
    with testclient.TestClient(app, base_url="http://127.0.0.1") as client:
        body = {"inputs": torch.stack(digits[:2]).tolist()}
        ids = [client.post("/v1/jobs?radius=0", json=body).json()["id"] for _ in range(2)]
        with closing(sqlite3.connect(tmp_path / "jobs.sqlite")) as base:
            base.execute(f"UPDATE jobs SET {changed} WHERE id = ?", ids[:1])
            base.commit()
        for path in (ids[0], f"{ids[0]}/events"):
            reply = client.get(f"/v1/jobs/{path}")
            assert reply.status_code == 410
            assert reply.json()["error"] == {
                "argument": "job",
                "rule": "must be as it was kept",
                "received": "one that was changed on the server's disk",
                "remedy": "Send its inputs again as another job, and tell the operator.",
            }
        assert client.get(f"/v1/jobs/{ids[1]}").status_code == 200


def test_inputs_of_a_job_whose_question_was_changed_fail_and_say_why(
    serve: Serve, digits: list[Tensor], tmp_path: Path
) -> None:
    broken = serve()
    broken.broken = "so that it waits"
    jobs = Jobs(tmp_path, {"default": broken}, Limits())
    job = jobs.submit("default", torch.stack(digits[:2]), Question(0.001, 0.0), "me")
    jobs.close()
    with closing(sqlite3.connect(tmp_path / "jobs.sqlite")) as base:
        base.execute("UPDATE jobs SET asked = 'x'")
        base.commit()
    jobs = Jobs(tmp_path, {"default": serve()}, Limits())
    while jobs.base.waiting:
        time.sleep(0.01)
    jobs.close()
    with closing(sqlite3.connect(tmp_path / "jobs.sqlite")) as base:
        told = [row[0] for row in base.execute("SELECT failed FROM items WHERE job = ?", (job,))]
    assert len(told) == 2
    assert all("Send its inputs again as another job" in one for one in told)


def test_what_is_interrupted_is_no_answer(serve: Serve, digits: list[Tensor], tmp_path: Path) -> None:
    served = serve(draws=10_000_000)
    jobs = Jobs(tmp_path, {"default": served}, Limits())
    job = jobs.submit("default", torch.stack(digits[:2]), Question(0.001), "me")
    while not any(one.timing.first for flights in served._flights for one in list(flights.open_now.values())):
        time.sleep(0.01)  # it has had a look, whose answer it could give
    served.close()
    jobs.close()  # answers are written beside the work, the last of them now
    jobs = Jobs(tmp_path, {"default": served}, Limits())
    state = jobs.state(job, "me")
    jobs.close()
    assert state is not None
    assert (state.answered, state.failed) == (0, {})


def test_a_locked_disk_holds_jobs_up_and_loses_none(
    serve: Serve,
    digits: list[Tensor],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A backup holds the file for longer than anyone waits, just when an answer is to be written."""
    jobs = Jobs(tmp_path, {"default": serve()}, Limits())
    jobs.base.connection.execute("PRAGMA busy_timeout=10")
    backup = sqlite3.connect(tmp_path / "jobs.sqlite", isolation_level=None, check_same_thread=False)
    answer = Answer.of

    def answer_while_it_is_held(*parts: Any) -> Answer:
        if not (backup.in_transaction or caplog.records):
            backup.execute("BEGIN IMMEDIATE")
        return answer(*parts)

    monkeypatch.setattr(Answer, "of", answer_while_it_is_held)
    monkeypatch.setattr("ringfence.serve.jobs.RETRY", 0.01)
    job = jobs.submit("default", torch.stack(digits[:2]), Question(0.001, 0.0), "me")
    while not caplog.records and jobs._thread.is_alive():
        time.sleep(0.01)
    backup.execute("COMMIT")
    state = until_done(jobs, job)
    jobs.close()
    backup.close()
    assert "locked" in caplog.records[0].message
    assert state.answered == 2


def test_a_job_for_which_the_disk_has_no_room_is_refused_and_leaves_nothing(
    serve: Serve, digits: list[Tensor], tmp_path: Path
) -> None:
    jobs = Jobs(tmp_path, {"default": serve()}, Limits())
    jobs.base.connection.execute("PRAGMA max_page_count=20")  # as a full disk, for SQLite
    with pytest.raises(Gone, match="could not be kept"):
        jobs.submit("default", torch.stack(digits * 2), Question(0.001, 0.0), "me")
    assert jobs.base.waiting == 0
    jobs.base.connection.execute("PRAGMA max_page_count=100000")
    assert jobs.state(jobs.submit("default", digits[0][None], Question(0.001, 0.0), "me"), "me") is not None
    jobs.close()


@pytest.mark.parametrize("where", ["here", "in another process"])
def test_an_error_of_the_server_costs_one_input_and_no_other(
    serve: Serve, digits: list[Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    answer, served = Answer.of, serve()
    ask = served.ask

    def fails(x: Tensor, *parts: Any, **how: Any) -> Asked:
        asked = ask(x, *parts, **how)
        if torch.equal(x, digits[0]):
            asked = replace(asked, answer=Future())
            asked.answer.set_exception(RuntimeError("the models' process met an error"))
        return asked

    if where == "here":
        wrong = digits[0]
        monkeypatch.setattr(Answer, "of", lambda *parts: 1 / 0 if torch.equal(parts[1].x, wrong) else answer(*parts))
    else:
        monkeypatch.setattr(served, "ask", fails)
    jobs = Jobs(tmp_path, {"default": served}, Limits())
    job = jobs.submit("default", torch.stack(digits[:2]), Question(0.001, 0.0), "me")
    state = until_done(jobs, job)
    jobs.close()
    assert (state.answered, list(state.failed)) == (1, [0])
    assert "an error of its own" in state.failed[0]


def test_who_listens_to_a_job_holds_none_of_its_answers(
    serve: Serve, digits: list[Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that is read slowly would keep all of them, which of many classes and inputs are gigabytes."""
    jobs, heard = Jobs(tmp_path, {"default": serve()}, Limits()), list[Any]()
    monkeypatch.setattr(jobs, "_tell", lambda job, event: heard.append(event))  # all of it, from the beginning
    job = jobs.submit("default", torch.stack(digits[:2]), Question(0.001, 0.0), "me")
    until_done(jobs, job)
    jobs.close()
    told = [event for event in heard if event[0] in ("answer", "done")]
    assert sorted(told) == [("answer", 0, ""), ("answer", 1, ""), ("done", 0, "")]


def test_a_model_does_not_wait_for_the_disk(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread tells that an input is answered while the queue is being read: all other requests wait for it."""
    reading, read, fetch = threading.Event(), threading.Event(), Jobs._next

    def slowly(self: Jobs) -> list[Any]:
        reading.set()
        assert read.wait(600)
        return fetch(self)

    monkeypatch.setattr(Jobs, "_next", slowly)
    jobs = Jobs(tmp_path, {"default": serve()}, Limits())
    assert reading.wait(60)
    answer = Future[Any]()
    answer.set_exception(RuntimeError())
    asked = Asked(1, torch.zeros(1), None, "", question=Question(0.001), test=rf.Anytime())
    thread = threading.Thread(target=jobs._answered, args=("job", 0, None, asked, answer), daemon=True)
    thread.start()
    thread.join(60)
    waits = thread.is_alive()
    monkeypatch.setattr(jobs, "_finish", lambda rows: None)  # there is no such job
    read.set()
    thread.join(60)
    jobs.close()
    assert not waits


def test_a_commit_that_fails_leaves_the_next_one_free(serve: Serve, digits: list[Tensor], tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, {"default": serve()}, Limits())
    jobs.base.connection.executescript(
        "PRAGMA foreign_keys=ON; CREATE TABLE a(id INTEGER PRIMARY KEY);"
        "CREATE TABLE b(a INTEGER REFERENCES a(id) DEFERRABLE INITIALLY DEFERRED);"
    )
    try:
        with pytest.raises(sqlite3.IntegrityError), jobs.base.transaction():
            jobs.base.connection.execute("INSERT INTO b VALUES(1)")  # refused at its end alone, as by a full disk
        assert jobs.submit("default", torch.stack(digits[:1]), Question(0.001, 0.0), "me")
    finally:
        jobs.close()


def test_a_job_of_a_model_that_is_gone_ends(serve: Serve, digits: list[Tensor], tmp_path: Path) -> None:
    served = serve()
    jobs = Jobs(tmp_path, {"old": served}, Limits())
    served.broken = "so that it waits"
    job = jobs.submit("old", torch.stack(digits[:2]), Question(0.001, 0.0), "me")
    jobs.close()
    jobs = Jobs(tmp_path, {"default": serve()}, Limits(job_inputs=2))
    while jobs.base.waiting and jobs._thread.is_alive():
        time.sleep(0.01)
    state = jobs.state(job, "me")
    assert jobs.submit("default", torch.stack(digits[:2]), Question(0.001, 0.0), "me"), "its inputs count no more"
    jobs.close()
    assert state is not None
    assert state.state == "done"
    assert state.failed == dict.fromkeys((0, 1), "the server was started anew without the model old")


def test_a_job_of_another_model_fails_by_name(serve: Serve, digits: list[Tensor], tmp_path: Path) -> None:
    served = serve()
    jobs = Jobs(tmp_path, {"default": served}, Limits())
    served.close()  # so that it waits
    job = jobs.submit("default", torch.stack(digits[:1]), Question(0.001, 0.0), "me")
    jobs.close()
    other = serve(rf.Certification("default:1", noise=rf.Gaussian(0.5), procedure=rf.Fixed(n=100)))
    jobs = Jobs(tmp_path, {"default": other}, Limits())
    state = until_done(jobs, job)
    jobs.close()
    assert "another one" in state.failed[0]


def test_keys_certificates_and_seals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Serve) -> None:
    """The commands offline: what was signed is in order, and whatever is changed is found."""
    monkeypatch.chdir(tmp_path)

    assert run("keygen", "key")[0] == run("keygen", "other")[0] == 0
    assert Path("key").stat().st_mode & 0o077 == 0
    assert run("keygen", "key")[0] == 2, "a key is never replaced"
    served, key = serve(), SigningKey.read(Path("key"))
    x = rf.load_dataset("default", limit=1)[0].x
    asked = served.ask(x, Question(0.001, 0.0, 60.0))
    answer = Answer.of(served, asked, asked.answer.result(60))
    content = json.loads(key.certificate(answer, served.shape).model_dump_json())
    Path("c.json").write_text(json.dumps(content, indent=1))
    np.save("x.npy", x.numpy())
    np.save("y.npy", 1 - x.numpy())
    assert run("verify", "c.json", "--image", "x.npy", "--key", "key.pub") == (
        0,
        f"c.json: in order, signed by key {key.id}, the one you named\n",
    )
    assert "nobody vouched for" in run("verify", "c.json")[1]
    Path("run").mkdir()
    code, said = run("verify", "c.json", "run", "--image", "x.npy")
    assert (code, "--image: is what a certificate is about, and no run; got run, a folder" in said) == (2, True)
    code, said = run("verify", "c.json", "--key", "other.pub")
    assert code == 1
    assert "not by" in said
    assert "input_sha256" in run("verify", "c.json", "--image", "y.npy")[1]
    for path, value in [("radius", 9.0), ("alpha", 0.0001), ("config_hash", "00"), ("input_sha256", "00")]:
        changed = json.loads(json.dumps(content))
        changed["answer"][path] = value
        Path("changed.json").write_text(json.dumps(changed))
        code, said = run("verify", "changed.json")
        assert code == 1, path
        assert "does not fit what is signed" in said
    rf.Certification("default", rf.Data("default", limit=2), noise=rf.Gaussian(0.5), procedure=rf.Fixed(n=50)).run("r")
    code, told = run("verify", "r", "--key", "key.pub")
    assert code == 1
    assert "every claim follows from its counts; but it has no seal that holds" in " ".join(told.split())
    assert "seal: there is none; ringfence seal RUN --key KEY makes one" in " ".join(told.split())
    assert run("seal", "r", "--key", "key")[0] == 0
    assert "sealed by key" in run("verify", "r")[1]
    code, said = run("verify", "r", "--key", "key.pub")
    assert code == 0
    assert "the one you named" in said
    assert "must hold a private Ed25519 key" in run("seal", "r", "--key", "key.pub")[1]
    assert run("verify", "r", "--key", "other.pub")[0] == 1
    assert run("gate", "r", "--certified", "0.01@0.1")[0] == 0
    run_again = rf.RunFolder.open("r")
    run_again.write_summary({"changed": True})
    for command, left in ((["verify", "r"], 1), (["gate", "r", "--certified", "0.01@0.1"], 2)):
        code, said = run(*command)
        assert code == left
        assert "changed after it was sealed" in " ".join(said.split())
