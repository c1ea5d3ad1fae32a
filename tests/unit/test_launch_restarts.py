"""What the launcher starts again."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_launch import FLAGS, Acting, Seen, make_plan, run

from grpc_ps.client.cluster_file import ClusterFile
from grpc_ps.client.launch import LaunchPlan, Restart
from grpc_ps.client.restarts import Restarts

# Counts its lives in a file of the current folder; answers each hello, and ends when as many workers as it is told have
# said that they are done.
LASTING_SHARD = (
    FLAGS
    + """
import os, threading
from pathlib import Path
lives = Path(f"ps-{flags.shard}.lives")
life = lives.stat().st_size if lives.exists() else 0
with lives.open("a") as file: file.write("x")
server = socket.create_server(("127.0.0.1", flags.port))
print(f"READY shard={flags.shard} address=127.0.0.1:{server.getsockname()[1]}", flush=True)
done = []
def serve(peer):
    while word := peer.recv(1):
        if word == b"h":
            HELLO
            peer.sendall(b"o")
        if word == b"d": done.append(1)
        if len(done) == flags.workers: os._exit(0)
while True: threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""
)
# Says hello to all shards until each has answered, again and again if one is gone, and then that it is done.
LASTING_WORKER = (
    FLAGS
    + """
import json, os, time
from pathlib import Path
lives = Path(f"worker-{flags.index}.lives")
life = lives.stat().st_size if lives.exists() else 0
with lives.open("a") as file: file.write("x")
def greet(address):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            peer = socket.create_connection(address)
            peer.sendall(b"h")
            if peer.recv(1): return peer
        except OSError:
            time.sleep(0.01)
    sys.exit("no shard")
peers = [greet((host, int(port))) for host, port in (one.split(":") for one in flags.ps.split(","))]
GREETED
for peer in peers: peer.sendall(b"d")
print(json.dumps({"worker": flags.index, "global_step": 100 + life}))
"""
)
KILL = "os.kill(os.getpid(), 9)"


def shard(*, hello: str = "pass") -> str:
    return LASTING_SHARD.replace("HELLO", hello)


def worker(*, greeted: str = "pass") -> str:
    return LASTING_WORKER.replace("GREETED", greeted)


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., LaunchPlan]:
    monkeypatch.chdir(tmp_path)
    return functools.partial(make_plan, tmp_path, shard=shard(), worker=worker())


def test_a_killed_worker_is_started_again(plan: Callable[..., LaunchPlan], tmp_path: Path) -> None:
    dies = worker(greeted=f"if flags.index == 1 and life == 0: {KILL}\nif flags.index == 1 and life == 1: sys.exit(1)")
    outcome, seen = run(plan(worker=dies, workers=2, max_restarts=3))
    assert (outcome.exit_code, outcome.reason, outcome.restarts) == (0, "", 2)
    assert seen.restarts() == [
        "restart worker 1 (signal 9), 1 of 3",
        "restart worker 1 (exit code 1), 2 of 3, in 0.5 s",
    ]
    assert outcome.summary()["restarts"] == 2
    assert [record["global_step"] for record in outcome.workers] == [100, 102]
    assert len(seen.lives("ps 0")) == len(seen.lives("worker 0")) == 1
    first, second, third = seen.lives("worker 1")
    assert len({first, second, third}) == 3
    assert ClusterFile.read(tmp_path).workers[1].pid == third
    assert '"global_step": 102' in (tmp_path / "worker-1.log").read_text()


@pytest.mark.parametrize("number", [0, 1])
def test_a_killed_shard_gets_its_port_again(plan: Callable[..., LaunchPlan], tmp_path: Path, number: int) -> None:
    dies = shard(hello=f"if flags.shard == {number} and life == 0: {KILL}")
    outcome, seen = run(plan(shard=dies, shards=2, workers=3, max_restarts=1, checkpoints=tmp_path))
    assert (outcome.exit_code, outcome.reason, outcome.restarts) == (0, "", 1)
    assert seen.restarts() == [f"restart ps {number} (signal 9), 1 of 1"]
    assert len(seen.addresses) == 2
    ready = f"READY shard={number} address={seen.addresses[number]}"
    assert seen.lines(f"ps {number}") == [ready, ready]
    assert (tmp_path / f"ps-{number}.log").read_text().splitlines() == [ready, ready]
    after = ClusterFile.read(tmp_path)
    assert after.addresses == seen.addresses
    assert after.shards[number].pid == seen.lives(f"ps {number}")[-1]


def test_the_cluster_file_follows_while_the_job_runs(plan: Callable[..., LaunchPlan], tmp_path: Path) -> None:
    dies = worker(greeted=f"if life == 0: {KILL}\nprint('here', flush=True); signal.pause()")
    found = []

    def look(child: object) -> None:
        found.append(ClusterFile.read(tmp_path))
        os.kill(os.getpid(), signal.SIGTERM)

    outcome, seen = run(plan(worker=dies, max_restarts=1), Seen("here", look))
    assert outcome.exit_code == 143
    assert [(file.workers[0].pid, file.exit_code) for file in found] == [(seen.lives("worker 0")[1], None)]


def test_no_restart_is_left(plan: Callable[..., LaunchPlan]) -> None:
    outcome, seen = run(plan(worker=worker(greeted=KILL), max_restarts=2))
    assert (outcome.exit_code, outcome.restarts) == (137, 2)
    assert outcome.reason == "worker 0 failed with exit code 137; all 2 restarts are used"
    assert seen.restarts()[-1] == "restart worker 0 (signal 9), 2 of 2, in 0.5 s"
    assert seen.codes() == {"worker 0": 137, "ps 0": 143}


def test_without_checkpoints_a_lost_shard_ends_the_run(plan: Callable[..., LaunchPlan]) -> None:
    outcome, seen = run(plan(shard=shard(hello=KILL), max_restarts=2))
    assert (outcome.exit_code, outcome.restarts, seen.restarts()) == (137, 0, [])
    assert outcome.reason == (
        "ps 0 failed with exit code 137; "
        "its part of the model is gone with it; with --checkpoint-dir it would be started again"
    )


SAYS = """print("12:00:00 psserver 0 resumed checkpoint=ck/step-00000030 global_step=30", file=sys.stderr, flush=True)
print("12:00:01 psserver 0 checkpoint global_step=40 path=ck/step-00000040", file=sys.stderr, flush=True)
"""
SAVED = "the job is saved in ck, at step 40: the same command goes on from there"


def saying(script: str) -> str:
    return script.replace("server = socket", f"{SAYS}server = socket")


def test_who_saved_the_job_is_told_how_it_goes_on(plan: Callable[..., LaunchPlan]) -> None:
    outcome, _ = run(plan(shard=saying(shard(hello=KILL)), checkpoints=Path("ck")))
    assert outcome.reason == f"ps 0 failed with exit code 137; {SAVED}; --max-restarts N does so by itself"
    assert (outcome.exit_code, outcome.resumed) == (137, 30)


def test_where_no_restart_is_left_the_job_goes_on_all_the_same(plan: Callable[..., LaunchPlan]) -> None:
    dies = worker(greeted=KILL)
    outcome, _ = run(plan(shard=saying(shard()), worker=dies, max_restarts=1, checkpoints=Path("ck")))
    assert outcome.reason == f"worker 0 failed with exit code 137; all 1 restarts are used; {SAVED}"


def test_nobody_is_told_of_a_checkpoint_that_is_not_there(plan: Callable[..., LaunchPlan]) -> None:
    outcome, _ = run(plan(shard=shard(hello=KILL), checkpoints=Path("ck")))
    assert (outcome.reason, outcome.resumed) == ("ps 0 failed with exit code 137", None)


def test_a_shard_that_never_served_is_started_again_without_checkpoints(plan: Callable[..., LaunchPlan]) -> None:
    stumbles = shard().replace("server = socket", f"if life == 0: {KILL}\nserver = socket")
    outcome, seen = run(plan(shard=stumbles, shards=2, max_restarts=2))
    assert (outcome.exit_code, outcome.restarts) == (0, 2)
    assert seen.restarts() == ["restart ps 0 (signal 9), 1 of 2", "restart ps 1 (signal 9), 2 of 2"]


def test_a_signal_ends_the_cluster_while_a_restart_is_due(
    plan: Callable[..., LaunchPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_FIRST_PAUSE", "_LONGEST_PAUSE"):
        monkeypatch.setattr(f"grpc_ps.client.restarts.{name}", 600.0)  # longer than a test may take
    seen = Acting(lambda: len(seen.restarts()) == 2, lambda: os.kill(os.getpid(), signal.SIGTERM))
    outcome, _ = run(plan(worker=worker(greeted=KILL), max_restarts=9), seen)
    assert (outcome.exit_code, outcome.reason, outcome.restarts) == (143, "ended by SIGTERM", 2)
    assert len(seen.lives("worker 0")) == 2


@pytest.mark.parametrize("code", [2, 3, 5, 6, 127])
def test_what_would_only_fail_again_is_not_tried_again(code: int) -> None:
    assert Restarts(3).next("worker 0", code) is None


@pytest.mark.parametrize("code", [1, 4, 129, 137, 139, 143])
def test_what_may_end_better_is(code: int) -> None:
    restarts = Restarts(1)
    restart = restarts.next("worker 0", code)
    assert restart == Restart("worker 0", code, 1, 1, 0.0)
    assert restarts.next("worker 0", code) is None
    assert restarts.used == 1


def test_pauses_grow_for_each_process_and_are_bounded() -> None:
    restarts = Restarts(100)
    taken = [restarts.next("worker 1", 137) for _ in range(8)]
    assert [restart.pause for restart in taken if restart] == [0, 0.5, 1, 2, 4, 8, 8, 8]
    other = restarts.next("ps 0", 137)
    assert other == Restart("ps 0", 137, 9, 100, 0.0)
    assert all(restarts.next("worker 1", 137) for _ in range(91))
    assert restarts.next("worker 1", 137) is None


def test_flags_of_single_processes(plan: Callable[..., LaunchPlan]) -> None:
    told = worker(greeted="print('seen', flags.shards, flush=True)")
    outcome, seen = run(plan(worker=told, workers=2, own_flags={"worker 1": ("--shards", "7")}))
    assert outcome.exit_code == 0
    assert (seen.lines("worker 0")[0], seen.lines("worker 1")[0]) == ("seen None", "seen 7")


def test_a_kill_that_was_asked_for_comes_once(plan: Callable[..., LaunchPlan]) -> None:
    rehearsed = {"worker 0": ("--fault", "kill@computed:1")}
    typed = "parser.add_argument('--fault')\nflags = parser.parse_args()\nimport os"
    dies = worker().replace("flags = parser.parse_args()", f"{typed}\nif flags.fault: {KILL}")
    outcome, seen = run(plan(worker=dies, max_restarts=1, own_flags=rehearsed))
    assert (outcome.exit_code, outcome.restarts) == (0, 1)
    assert len(seen.lives("worker 0")) == 2
