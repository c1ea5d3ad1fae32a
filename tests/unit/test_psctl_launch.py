"""psctl launch with small scripts installed beside it in the place of `psserver` and `worker`."""

import itertools
import json
import os
import re
from pathlib import Path

import click
import pytest
from fake_programs import REFUSING, WORKER, installer, write_cluster

from grpc_ps.client import cluster_file
from grpc_ps.client.commands.group import run
from grpc_ps.client.commands.launch_report import summary_lines
from grpc_ps.client.launch_plan import LaunchResult
from grpc_ps.client.shared.errors import JobFailed, PsError, UsageError
from grpc_ps.worker.command import worker as worker_command


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs scripts beside a psctl in a folder of their own, and makes another one the current folder."""
    return installer(tmp_path, monkeypatch)


def test_launch_shows_lines_and_a_summary(install, capsys):
    install(workers=2)
    assert run(["launch", "--workers", "2", "--model", "mnist"]) == 0
    output = capsys.readouterr().out.splitlines()
    assert output[0].startswith("logs: grpc-ps-logs/")
    (started,) = (line for line in output if line.startswith("[ps 0] started "))
    assert started.startswith("[ps 0] started ['--host', '127.0.0.1', '--lease', '10.0', ")
    assert started.endswith(", '--shard', '0', '--shards', '1', '--port', '0']")
    assert "[worker 1] ended with exit code 0" in output
    assert not any("{" in line for line in output)
    assert output[-3].startswith("done: global step 30, accuracy 0.9125, gap not finite, mse 1.2e-05, ")
    assert output[-2:] == [f"  worker {index}: local step 15, applied 15" for index in (0, 1)]


def test_launch_json_is_one_object_on_stdout(install, capsys):
    install()
    assert run(["launch", "--model", "mnist", "--json", "--log-dir", "logs"]) == 0
    captured = capsys.readouterr()
    summary = json.loads(captured.out)
    assert (summary["exit_code"], summary["global_step"], summary["accuracy"]) == (0, 30, 0.9125)
    assert summary["metrics"] == {"accuracy": 0.9125, "mse": 0.000012, "gap": None}
    assert summary["log_dir"] == "logs"
    assert summary["workers"][0]["outcomes"] == {"APPLIED": 15, "LATE": 0}
    assert "[ps 0] READY shard=0" in captured.err
    assert cluster_file.ClusterFile.read(Path("logs")).exit_code == 0


def worker_flags(capsys):
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("[worker 0] flags "))
    return line.removeprefix("[worker 0] flags ").split()


def test_launch_passes_flags_on(install, capsys):
    install(workers=3)
    typed = "--model mnist --model-arg hidden=5 --model-arg layers=2 --steps 10 --lr 0.5 --no-nesterov --threads 7"
    assert run(["launch", *typed.split(), "--mode", "sync", "--workers", "2", "--backup", "1"]) == 0
    flags = worker_flags(capsys)
    passed_on = flags[: flags.index("--ps")]
    wanted = "--mode sync --backup 1 --threads 7 --steps 10 --no-nesterov --learning-rate 0.5 --model mnist"
    wanted += " --model-arg hidden=5 --model-arg layers=2 --grace 5.0 --workers 2"
    assert passed_on == wanted.split()


@pytest.mark.parametrize(
    "typed",
    [
        "--until accuracy>=0.97",
        "--eval-every 50",
        "--schedule piecewise:10=0.1,20=0.01",
        "--warmup-steps 5",
        "--max-staleness 2",
        "--init-from weights.npz",
        "--optimizer adamw",
        "--weight-decay 0.01",
        "--global-clip-norm 1.5",
        "--push-dtype bfloat16",
        "--compress topk:0.01",
        "--device cpu:1",
        "--overlap",
    ],
)
def test_launch_passes_each_flag_on_as_it_is_typed(install, capsys, typed):
    install()
    assert run(["launch", "--model", "linear", "--threads", "1", *typed.split()]) == 0
    assert typed in " ".join(worker_flags(capsys))


def test_launch_passes_on_what_a_worker_reads_again(install, capsys):
    """A flag may have been read into another form; the worker's own flags must take that."""
    install()
    assert run(["launch", "--model", "linear", "--until", "loss = 1e-3", "--max-staleness", "none"]) == 0
    flags = worker_flags(capsys)
    context = worker_command.make_context("worker", flags)
    assert (context.params["until"], context.params["max_staleness"]) == ("loss<=0.001", -1)


def test_launch_passes_on_both_types_of_one_flag(install, capsys):
    install()
    assert run(["launch", "--model", "linear", "--threads", "1", "--wire-dtype", "float16"]) == 0
    assert "--push-dtype float16 --pull-dtype float16" in " ".join(worker_flags(capsys))


def test_async_workers_of_own_data_are_told_how_many_share_it(install, capsys):
    install(workers=2)
    assert run(["launch", "--model", "linear", "--data", "mine.py:load", "--workers", "2"]) == 0
    assert "--workers 2" in " ".join(worker_flags(capsys))


def test_async_workers_are_not_told_their_number(install, capsys):
    install()
    assert run(["launch", "--model", "linear"]) == 0
    flags = worker_flags(capsys)
    assert "--workers" not in flags
    cores = len(os.sched_getaffinity(0))
    assert int(flags[flags.index("--threads") + 1]) == max(1, cores // 2), "one shard and one worker share the cores"


def test_what_the_worker_refuses_is_refused_before_anything_starts(install, capsys):
    install(worker=REFUSING)
    with pytest.raises(JobFailed, match=r"^unknown model 'mnits', did you mean 'mnist'") as refused:
        run(["launch", "--model", "mnits"])
    assert refused.value.exit_code == 2
    assert capsys.readouterr().out == ""
    assert os.listdir() == []


def test_a_check_that_does_not_end_is_given_up(install, monkeypatch):
    install(worker="import signal\nsignal.pause()")
    monkeypatch.setattr("grpc_ps.client.commands.launch._CHECK_SECONDS", 0.1)
    with pytest.raises(JobFailed, match=r"^worker --check has not ended within 0\.1 s$"):
        run(["launch", "--model", "mnist"])
    assert os.listdir() == []


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--ps", "0"], "--ps 0: must be"),
        (["--ps", "a:1"], "--ps a:1: must be a whole number"),
        (["--workers", "0"], "--workers 0: must be"),
        (["--workers", "-1"], "--workers -1: must be"),
        (["--backup", "1"], "--backup 1: only with --mode sync"),
        (["--mode", "sync", "--workers", "2", "--min-workers", "3"], "--min-workers 3: must be 1 to 2"),
        (["--lr", "nan"], "--learning-rate/--lr nan: must be a finite number"),
        (["--batch-size", "0"], "--batch-size 0: must be at least 1"),
        (["--mode", "snyc"], "(did you mean sync?)"),
        (["--wrokers", "2"], "unknown option --wrokers (did you mean --workers?)"),
        (["-ps=2"], "unknown option -ps=2 (did you mean --ps?)"),
        (["--step", "2"], "unknown option --step (did you mean --steps?)"),
        (["--mode", "sync", "--max-staleness", "2"], "--max-staleness 2: only with --mode async"),
        (["--until", "accuracy"], "--until accuracy: must be METRIC>=NUMBER"),
        (["--schedule", "cosine:0"], "--schedule cosine:0: must be constant"),
        (["--unitl", "accuracy=1"], "unknown option --unitl (did you mean --until?)"),
        (["--init", "w.npz"], "unknown option --init (did you mean --init-from?)"),
        (["--log-dir", __file__], f"--log-dir {__file__}: is a file, expected a folder"),
    ],
)
def test_bad_flags_are_refused_before_anything_starts(install, flags, text):
    """B08, B09."""
    install()
    with pytest.raises(click.UsageError) as refused:
        run(["launch", "--model", "linear", *flags])
    assert text in refused.value.format_message()
    assert os.listdir() == []


def test_the_summary_says_what_ended_the_job(install, capsys):
    reason = "accuracy 0.9711 at global step 30 has reached accuracy>=0.97"
    install(worker=WORKER.replace('"outcomes"', f'"reason": "{reason}", "outcomes"'))
    assert run(["launch", "--model", "mnist", "--until", "accuracy=0.97"]) == 0
    metrics = "accuracy 0.9125, gap not finite, mse 1.2e-05"
    assert capsys.readouterr().out.splitlines()[-2].startswith(f"{reason}: global step 30, {metrics}, ")


def test_the_summary_has_the_loss_where_there_are_no_metrics():
    workers = (
        {"global_step": 30, "loss": 0.5, "applied_step": 30},
        {"global_step": 29, "loss": 0.25, "applied_step": 29},
        # The one came when the job was over; the other's figures are of a version that did not tell.
        {"loss": None, "applied_step": None},
        {"loss": 8.0},
    )
    lines = summary_lines(LaunchResult(exit_code=0, wall_seconds=1.5, workers=workers))
    assert lines[0] == "done: global step 30, loss 0.375, 1.5 s"


@pytest.mark.parametrize(
    ("resumed", "steps", "idle"), [(30, 0, True), (30, 4, False), (20, 0, False), (None, 0, False)]
)
def test_a_job_that_was_over_before_is_said_to_be(resumed, steps, idle):
    workers = ({"global_step": 30, "local_steps": 0}, {"global_step": 30, "local_steps": steps})
    lines = summary_lines(LaunchResult(exit_code=0, workers=workers, resumed=resumed), Path("ck"))
    said = [
        "nothing was trained: the job in ck was at its last step already; "
        "a larger --steps (or --epochs) goes on from there"
    ]
    assert lines[3:] == (said if idle else [])


def test_json_says_what_ended_the_job(install, capsys):
    install(worker=WORKER.replace('"outcomes"', '"reason": "stopped on request", "outcomes"'))
    assert run(["launch", "--model", "mnist", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["exit_code"], summary["reason"], summary["ended_by"]) == (0, "", "stopped on request")


def test_a_failure_shows_the_last_lines_and_the_logs(install, capsys):
    install(worker=WORKER + "\nsys.exit(5)")
    with pytest.raises(JobFailed, match=r"^worker 0 failed with exit code 5; logs: grpc-ps-logs/") as failed:
        run(["launch", "--model", "linear"])
    assert failed.value.exit_code == 5
    assert "[worker 0] flags" in capsys.readouterr().err


def test_what_was_shown_last_is_not_shown_again(install, capsys):
    """With --json lines go where errors do."""
    install(psserver="import sys\nprint('psserver: error: locked', file=sys.stderr)\nsys.exit(6)")
    with pytest.raises(JobFailed, match=r"^ps 0 failed with exit code 6; logs: "):
        run(["launch", "--model", "linear", "--json"])
    assert capsys.readouterr().err.count("[ps 0] psserver: error: locked\n") == 1


def test_a_failure_with_json_is_in_the_object(install, capsys):
    install(worker=WORKER + "\nsys.exit(5)")
    with pytest.raises(PsError):
        run(["launch", "--model", "linear", "--json"])
    summary = json.loads(capsys.readouterr().out)
    assert (summary["exit_code"], summary["reason"]) == (5, "worker 0 failed with exit code 5")
    assert any("flags" in line for line in summary["last_lines"])


def test_the_log_folder_of_a_running_cluster_is_refused(install):
    install()
    write_cluster(os.getpid())
    with pytest.raises(UsageError, match=f"a running cluster has it .launcher pid {os.getpid()}."):
        run(["launch", "--model", "linear", "--log-dir", "."])


def test_the_log_folder_of_an_ended_cluster_is_used_again(install):
    install()
    write_cluster(os.getpid(), exit_code=4)
    assert run(["launch", "--model", "linear", "--log-dir", "."]) == 0
    assert cluster_file.find(None)[1].exit_code == 0


STANDING = """
import json, socket, sys
flags = sys.argv[1:]
host, port = flags[flags.index("--ps") + 1].split(":")
peer = socket.create_connection((host, int(port)))
print("flags", *flags, file=sys.stderr)
"""


def test_launch_without_a_model_is_a_cluster_that_stands(install, capsys):
    install(worker=STANDING)
    assert run(["launch", "--data-dir", "/d", "--threads", "2"]) == 0
    output = capsys.readouterr().out.splitlines()
    assert output[1] == "the cluster stands by: psctl submit --model NAME, in this folder, gives it a job"
    (shard,) = (line for line in output if line.startswith("[ps 0] started "))
    assert "'--keep-alive'" in shard
    (worker,) = (line for line in output if line.startswith("[worker 0] flags "))
    assert "--model" not in worker
    assert {"--data-dir /d", "--threads 2", "--index 0"} <= {
        " ".join(pair) for pair in itertools.pairwise(worker.split(" "))
    }
    assert re.fullmatch(r"the cluster has ended, [\d.]+ s", output[-1])


@pytest.mark.parametrize("flags", [["--steps", "5"], ["--model-arg", "a=1"], ["--overlap"], ["--mode", "sync"]])
def test_what_a_job_says_needs_a_model(install, flags):
    install()
    with pytest.raises(click.UsageError) as refused:
        run(["launch", *flags])
    assert refused.value.format_message() == f"{flags[0]}: needs --model; `psctl submit` says it of each job"
    with pytest.raises(click.UsageError, match=r"^--data digits and --data-dir d exclude each other$"):
        run(["launch", "--data", "digits", "--data-dir", "d"])
