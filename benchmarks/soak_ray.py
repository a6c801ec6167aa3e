"""Twenty kills at random moments of one run on Ray: drivers, workers, machines; then its records against a quiet one.

python benchmarks/soak_ray.py
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench_load import workers
from common import Bar, Grid, Report, finish, options_parser

import ringfence as rf

COMMAND = [sys.executable, "-m", "ringfence", "certify", "--sigma", "0.5", "--batch", "100", "--no-check", "--quiet"]
KINDS = ("driver", "worker", "machine")


def parts(out: Path) -> int:
    """Parts that are there."""
    return len(list((out / "parts").glob("part-*")))


def strike(kind: str, driver: subprocess.Popen[bytes], cluster: Any) -> bool:
    """Kill one of a kind; whether there was one."""
    if kind == "driver":
        driver.kill()
        driver.wait()
        return True
    if kind == "worker":
        there = workers()
        if there:
            os.kill(random.choice(there), signal.SIGKILL)
        return bool(there)
    others = [node for node in cluster.list_all_nodes() if node is not cluster.head_node]
    cluster.remove_node(others[0], allow_graceful=False)
    cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    return True


def told(out: Path) -> dict[int, Any]:
    """What a run says of each input; no input is there twice."""
    run = rf.RunFolder.open(out)
    records = run.read()
    assert run.records(["radius"]).num_rows == len({one.input_id for one in records}) == len(records)
    assert rf.verify(run) == []
    return {
        one.input_id: (one.prediction, one.radius, [s.cells["votes"].tolist() for s in one.stages]) for one in records
    }


def main() -> int:
    parser = options_parser(__doc__ or "")
    parser.add_argument("--kills", type=int, default=20)
    options = parser.parse_args()
    os.environ |= {"RAY_worker_niceness": "0"}
    from ray.cluster_utils import Cluster

    few = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**few, "include_dashboard": False})
    cluster.add_node(**few)
    chance, killed, begin = random.Random(0), Counter[str](), time.perf_counter()
    begun = 0
    with tempfile.TemporaryDirectory() as folder:
        out, quiet = Path(folder) / "run", Path(folder) / "quiet"
        work = ["--n", "2000", "--limit", str(20 if options.quick else 800)]
        where = ["--engine", "ray", "--address", cluster.address, "--workers", "2", "--out", str(out)]
        while sum(killed.values()) < options.kills:
            driver = subprocess.Popen([*COMMAND, *work, *where])
            begun += 1
            while driver.poll() is None and sum(killed.values()) < options.kills:
                before = parts(out)
                while driver.poll() is None and parts(out) <= before:
                    time.sleep(0.1)
                time.sleep(chance.uniform(0, 2))
                kind = chance.choice(KINDS)
                if driver.poll() is None and strike(kind, driver, cluster):
                    killed[kind] += 1
                    print(f"{sum(killed.values())}: {kind}, {parts(out)} parts", flush=True)
            if driver.wait() == 0:
                break  # it was faster than we, or is done after the last kill
        code = subprocess.run([*COMMAND, *work, *where], check=False).returncode
        subprocess.run([*COMMAND, *work, "--out", str(quiet)], check=True)
        same = told(out) == told(quiet)
    seconds = time.perf_counter() - begin
    cluster.shutdown()
    rows = [[kind, str(killed[kind])] for kind in KINDS] + [["commands begun", str(begun + 1)]]
    bars = [
        Bar("kills at random moments", "at least", options.kills, sum(killed.values())),
        Bar("the last command's exit code", "at most", 0, code),
        Bar(
            "records that differ from an undisturbed run's, are lost or doubled (1: some)", "at most", 0, int(not same)
        ),
    ]
    measured = {"killed": dict(killed), "seconds": seconds}
    report = Report(
        "soak", {"kills": options.kills}, [Grid("Killed with SIGKILL", ["", "times"], rows)], bars, measured
    )
    return finish(report, options)


if __name__ == "__main__":
    sys.exit(main())
