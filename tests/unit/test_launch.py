"""The launcher, with small scripts in the place of shards and workers."""

import functools
import json
import os
import signal

import pytest
from fake_launch import JOINED, SHARD, Seen, make_plan, run

from grpc_ps.client import cluster_file
from grpc_ps.client.shared.errors import UsageError

HANGING = (
    JOINED
    + """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("hanging", flush=True)
while True:
    signal.pause()
"""
)
# Says to each worker that all have come, and then does nothing.
GATHERING = SHARD.replace("    peer.recv(1)", "    peer.sendall(b'.')\nsignal.pause()")
PATIENT = JOINED + "print('patient', flush=True); signal.pause()"


@pytest.fixture
def plan(tmp_path):
    return functools.partial(make_plan, tmp_path)


def test_all_end_by_themselves(plan, tmp_path):
    outcome, seen = run(plan(shards=2, workers=3))
    assert (outcome.exit_code, outcome.reason) == (0, "")
    assert seen.codes() == {"ps 0": 0, "ps 1": 0, "worker 0": 0, "worker 1": 0, "worker 2": 0}
    assert len(set(seen.addresses)) == 2
    # Shard 1 was told where the lead is; the lead itself was not.
    assert seen.lines("ps 0")[0] == "some line None"
    assert seen.lines("ps 1")[0] == f"some line {seen.addresses[0]}"
    summary = outcome.summary()
    assert [worker["worker"] for worker in summary["workers"]] == [0, 1, 2]
    assert (summary["global_step"], summary["accuracy"]) == (102, 0.5)
    assert summary["metrics"] == {"accuracy": 0.5, "mse": 0.25}
    assert "joined" in (tmp_path / "worker-2.log").read_text()


def test_cluster_file_while_it_runs_and_afterwards(plan, tmp_path):
    found = []
    seen = Seen("patient", lambda child: found.append(cluster_file.find(tmp_path)[1]))
    finish = PATIENT.replace("signal.pause()", "sys.exit(0)")
    run(plan(shards=2, workers=1, worker=finish), seen)
    running = found[0]
    assert running.addresses == seen.addresses
    assert (running.launcher, running.exit_code) == (os.getpid(), None)
    assert [process.name for process in (*running.shards, *running.workers)] == ["ps 0", "ps 1", "worker 0"]
    assert cluster_file.find(tmp_path)[1].exit_code == 0


def test_the_cluster_file_says_where_a_shard_has_its_figures(plan, tmp_path):
    found = []
    seen = Seen("patient", lambda child: found.append(cluster_file.find(tmp_path)[1]))
    line = 'print(f"METRICS shard={flags.shard} url=http://h:1/metrics")'
    figures = SHARD.replace('print("some line"', f'{line}\nprint("some line"')
    run(plan(shard=figures, worker=PATIENT.replace("signal.pause()", "sys.exit(0)")), seen)
    assert [process.metrics for process in (*found[0].shards, *found[0].workers)] == ["http://h:1/metrics", ""]


def test_first_failure_ends_all_with_its_code_and_last_lines(plan, tmp_path):
    failing = "peers[0].recv(1)\nprint('NaN in w', file=sys.stderr)\nif flags.index == 1: sys.exit(5)\nsignal.pause()"
    outcome, seen = run(plan(workers=3, worker=JOINED + failing, shard=GATHERING))
    assert outcome.exit_code == 5
    assert outcome.reason == "worker 1 failed with exit code 5"
    assert outcome.last_lines == ("[worker 1] joined", "[worker 1] NaN in w")
    assert seen.codes() == {"ps 0": 143, "worker 0": 143, "worker 1": 5, "worker 2": 143}
    assert cluster_file.ClusterFile.read(tmp_path).exit_code == 5


def test_a_killed_shard_is_a_failure(plan):
    seen = Seen("patient", lambda child: os.kill(shard_pid(seen), signal.SIGKILL))
    outcome, _ = run(plan(worker=PATIENT), seen)
    assert (outcome.exit_code, outcome.reason) == (137, "ps 0 failed with exit code 137")


def shard_pid(seen):
    return next(event.child.pid for event in seen.events if event.child.name == "ps 0")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_cluster(plan, number, code, request):
    # Whoever started the tests may ignore it, as `nohup` does, and then a launch does too.
    request.addfinalizer(functools.partial(signal.signal, number, signal.signal(number, signal.SIG_DFL)))
    seen = Seen("patient", lambda child: os.kill(os.getpid(), number))
    outcome, _ = run(plan(worker=PATIENT), seen)
    assert (outcome.exit_code, outcome.reason) == (code, f"ended by {number.name}")
    assert seen.codes() == {"ps 0": 143, "worker 0": 143}


def test_a_process_that_ignores_sigterm_is_killed(plan):
    seen = Seen("hanging", lambda child: os.kill(os.getpid(), signal.SIGINT))
    outcome, _ = run(plan(worker=HANGING, grace=0.1), seen)
    assert outcome.exit_code == 130
    assert seen.codes() == {"ps 0": 143, "worker 0": 137}


def test_ctrl_c_before_the_shards_are_ready(plan):
    never = "import signal; print('loading', flush=True); signal.pause()"
    seen = Seen("loading", lambda child: os.kill(os.getpid(), signal.SIGINT))
    outcome, _ = run(plan(shard=never), seen)
    assert outcome.exit_code == 130
    assert seen.codes() == {"ps 0": 143}


@pytest.mark.parametrize("ready", ["READY shard=0", "ready shard=0 address=a:1", "[READY shard=0 address=a:1]", ""])
def test_a_shard_that_does_not_say_ready_in_time(plan, ready):
    outcome, _ = run(plan(shard=f"import signal; print({ready!r}, flush=True); signal.pause()", ready_timeout=0.3))
    assert (outcome.exit_code, outcome.reason) == (4, "ps 0 was not ready within 0.3 s")


def test_a_shard_that_fails_before_it_is_ready(plan):
    refuse = "import sys; sys.exit('psserver: error: --port 1: taken')"
    outcome, seen = run(plan(shard=refuse, shards=2))
    assert outcome.exit_code == 1
    assert outcome.last_lines == ("[ps 0] psserver: error: --port 1: taken",)
    assert seen.codes() == {"ps 0": 1}


def test_a_shard_that_ends_well_before_it_is_ready_is_a_failure_too(plan):
    outcome, _ = run(plan(shard="print('bye')"))
    assert (outcome.exit_code, outcome.reason) == (4, "ps 0 ended before it was ready")


def test_shards_that_stay_after_the_last_worker_are_ended(plan):
    stays = SHARD + "\nsignal.pause()"
    outcome, seen = run(plan(shard=stays, drain_timeout=0.2))
    assert (outcome.exit_code, outcome.reason) == (4, "ps 0 did not end after the others had within 0.2 s")
    assert seen.codes() == {"worker 0": 0, "ps 0": 143}


@pytest.mark.parametrize("text", ["{broken", "[1]", "done", "{}"])
def test_what_is_no_summary_is_left_out(plan, text):
    outcome, _ = run(plan(worker=JOINED + f"print({text!r})"))
    assert outcome.exit_code == 0
    assert outcome.workers == ()
    assert outcome.summary()["global_step"] is None


def test_output_that_is_not_utf_8_does_no_harm(plan):
    binary = JOINED + "sys.stdout.buffer.write(bytes(range(255)) + b'\\n')"
    outcome, _ = run(plan(worker=binary))
    assert outcome.exit_code == 0


def test_cluster_file_that_is_missing_or_damaged(tmp_path):
    with pytest.raises(UsageError, match=r"cluster\.json: No such file"):
        cluster_file.find(tmp_path)
    for text in ("", "[]", "{}", '{"shards": [{}], "workers": []}', '{"shards": 1, "workers": []}'):
        (tmp_path / cluster_file.NAME).write_text(text)
        with pytest.raises(UsageError, match="not a cluster file"):
            cluster_file.find(tmp_path)


def test_without_a_folder_the_newest_run_is_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="give --ps or --log-dir"):
        cluster_file.find(None)
    for number in (1, 2):
        folder = cluster_file.RUNS / f"run-{number}"
        folder.mkdir(parents=True)
        shard = cluster_file.Process(name="ps 0", pid=1, address=f"127.0.0.1:{number}")
        cluster_file.ClusterFile(launcher=1, shards=(shard,)).write(folder)
        os.utime(folder / cluster_file.NAME, (number, number))
    assert cluster_file.find(None)[1].addresses == ("127.0.0.1:2",)
    assert json.loads((cluster_file.RUNS / "run-1" / cluster_file.NAME).read_text())["exit_code"] is None
