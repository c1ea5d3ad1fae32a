"""What the launcher starts again, and what the end of a process means at the end of a job."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_launch import FLAGS, JOINED, SHARD, Seen, make_plan, run

from grpc_ps.client.cluster_file import ClusterFile
from grpc_ps.client.launch import LaunchEvent, LaunchPlan, Restart
from grpc_ps.client.processes import Line
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


class Acting(Seen):
    """Does something once, when what it has seen is enough for it."""

    def __init__(self, enough: Callable[[], object], do: Callable[[], object]) -> None:
        super().__init__()
        self._enough, self._do, self._done = enough, do, False

    def observe(self, event: LaunchEvent) -> None:
        super().observe(event)
        if not self._done and self._enough():
            self._done = True
            self._do()


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


# The job is over when both workers have come; one of them sees its shard go and does something else then.
SHORT = SHARD.replace("    peer.recv(1)", "    sys.exit()")
OTHER = (
    "import os, sys; sys.excepthook = lambda *_: os._exit(4)  # started again, it finds no shard"
    + JOINED
    + """
if flags.index == 0: sys.exit(0)
peers[0].recv(1)
"""
)


@pytest.mark.parametrize("max_restarts", [0, 3])
@pytest.mark.parametrize(
    ("then", "code"),
    [("sys.exit(4)", 4), ("print('waiting', flush=True); signal.pause()", 143)],
    ids=["loses its shard", "waits"],
)
def test_when_the_job_is_over_a_worker_need_not_end_well(
    plan: Callable[..., LaunchPlan], then: str, code: int, max_restarts: int
) -> None:
    wait = {"settle": 30.0, "drain_timeout": 600.0, **({"grace": 0.3} if code == 143 else {})}
    outcome, seen = run(plan(shard=SHORT, worker=OTHER + then, workers=2, max_restarts=max_restarts, **wait))
    assert (outcome.exit_code, outcome.reason) == (0, "")
    # Who waits is told to end, and killed if the machine has no time for it until the grace time is over.
    assert seen.codes()["worker 1"] in (code, *((137,) if code == 143 else ()), *((143, 137) if max_restarts else ()))


def test_a_worker_that_is_killed_when_the_job_is_over(plan: Callable[..., LaunchPlan]) -> None:
    """It is killed once the shard's end was seen, as the launcher does not look into the future."""
    stays = OTHER + "print('stays', flush=True); signal.pause()"

    seen = Acting(
        lambda: seen.lives("ps 0") and "stays" in seen.lines("worker 1"),
        lambda: next(
            event.child.signal(signal.SIGKILL)
            for event in seen.events
            if isinstance(event, Line) and event.text == "stays"
        ),
    )
    outcome, _ = run(plan(shard=SHORT, worker=stays, workers=2, max_restarts=2), seen)
    assert (outcome.exit_code, outcome.reason, outcome.restarts) == (0, "", 0)
    assert seen.codes()["worker 1"] == 137


def test_a_bug_is_told_even_when_the_job_is_over(plan: Callable[..., LaunchPlan], tmp_path: Path) -> None:
    late = OTHER + "import time\nwhile not os.path.exists('over'): time.sleep(0.01)\nsys.exit(1)"

    seen = Acting(lambda: seen.lives("ps 0"), (tmp_path / "over").touch)
    outcome, _ = run(plan(shard=SHORT, worker=late, workers=2, max_restarts=2), seen)
    assert (outcome.exit_code, outcome.reason) == (1, "worker 1 failed with exit code 1")


# Ends by itself with the job's code when its worker has gone, as the test says by a file.
FOLLOWS = SHARD + "import os, time\nwhile not os.path.exists('gone'): time.sleep(0.01)\nsys.exit(CODE)"


@pytest.mark.parametrize(
    ("workers_code", "shards_code", "reason"),
    [
        (5, 5, "worker 0 failed with exit code 5"),
        (4, 6, "ps 0 failed with exit code 6"),
        (4, 4, "worker 0 failed with exit code 4"),
        (6, 4, "worker 0 failed with exit code 6"),
    ],
)
def test_the_others_end_with_the_jobs_code_and_the_cause_is_named(
    plan: Callable[..., LaunchPlan], tmp_path: Path, workers_code: int, shards_code: int, reason: str
) -> None:
    seen = Acting(lambda: seen.lives("worker 0"), (tmp_path / "gone").touch)
    fails = JOINED + f"sys.exit({workers_code})"
    outcome, _ = run(plan(shard=FOLLOWS.replace("CODE", str(shards_code)), worker=fails, settle=30.0), seen)
    assert seen.codes() == {"worker 0": workers_code, "ps 0": shards_code}
    assert (outcome.exit_code, outcome.reason) == (int(reason[-1]), reason)


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
