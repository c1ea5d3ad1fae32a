"""psctl placement and psctl evaluate: what they compute, and what they let a worker do."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from fake_control import SPECS, FakeControl, job, status
from fake_programs import install_programs
from printed_tables import table_rows

from grpc_ps.client.commands.group import run
from grpc_ps.client.commands.programs import run_worker
from grpc_ps.client.shared.blocks import place
from grpc_ps.client.shared.errors import JobFailed, Mismatch, NotOpen
from grpc_ps.protos import control_pb2 as wire

# Prints what it was called with on stderr, and an answer to either subcommand.
WORKER = """
import json, sys
from pathlib import Path
Path("flags").write_text(json.dumps(sys.argv[1:]))
print("some warning", file=sys.stderr)
print("a line of a library's")
w = {"name": "w", "shape": [1000, 300], "dtype": "float32", "trainable": True}
mean = {"name": "mean", "shape": [], "dtype": "float64", "trainable": False}
print(json.dumps({
    "placement": {"parameters": [w, mean]},
    "evaluate": {"global_step": 1200, "metrics": {"loss": 0.25, "accuracy": 0.9125}, "examples": 10000},
}[sys.argv[1]]))
"""
REFUSING = """
import sys
print("some warning", file=sys.stderr)
print("worker: error: t10k-images: missing", file=sys.stderr)
sys.exit(3)
"""


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_programs(tmp_path, monkeypatch, worker=WORKER)


def flags() -> list[str]:
    """What the worker was called with."""
    found: list[str] = json.loads(Path("flags").read_text())
    return found


def test_what_a_worker_warns_of_is_told_where_somebody_wants_it(worker: None) -> None:
    told: list[str] = []
    run_worker(["placement"], seconds=60, what="worker", told=told.append)
    assert told == ["some warning"]


def test_placement_of_a_running_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeControl() as lead:
        assert run(["placement", "--ps", lead.address]) == 0
    output = capsys.readouterr().out
    # 156,800 elements are in pieces of 16 Ki: ten, of which the last has 9,344.
    assert table_rows(output, "shards")[:5] == [
        "hid_w [784, 200] float32 627,200 5 5",
        "hid_b [200] float32 800 1",
        "seen [] int64, not trainable 8 1",
        "0 5 327,680 52.2%",
        "1 7 300,328 47.8%",
    ]
    assert output.splitlines()[-1] == "3 parameters, 628,008 bytes; largest shard 1.044 times the mean"


def test_placement_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeControl() as lead:
        assert run(["placement", "--ps", lead.address, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["fingerprint"] == place(SPECS, 2).fingerprint
    assert record["parameters"][0] == {
        "name": "hid_w", "shape": [784, 200], "dtype": "float32", "trainable": True, "bytes": 627200, "blocks": [5, 5],
    }  # fmt: skip
    assert [shard["bytes"] for shard in record["shards"]] == [327680, 300328]
    assert sum(shard["share"] for shard in record["shards"]) == pytest.approx(1)
    assert record["largest_over_mean"] == pytest.approx(327680 / 314004)


def test_a_cluster_that_places_otherwise_is_not_described_wrongly() -> None:
    with FakeControl(status(job=job(shards=3))) as lead, pytest.raises(Mismatch, match="of the same version"):
        run(["placement", "--ps", lead.address])


def test_a_cluster_without_a_model_has_no_placement() -> None:
    empty = wire.StatusResponse(phase=wire.StatusResponse.PHASE_EMPTY, waiting_for="its first worker")
    with FakeControl(empty) as lead, pytest.raises(NotOpen, match="no model yet: it waits for its first worker"):
        run(["placement", "--ps", lead.address])


@pytest.mark.usefixtures("worker")
def test_placement_of_a_model_that_does_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    typed = "--model mnist --model-arg hidden=300 --model-arg layers=1"
    assert run(["placement", *typed.split(), "--shards", "3", "--json"]) == 0
    assert flags() == ["placement", *typed.split(), "--json"]
    record = json.loads(capsys.readouterr().out)
    assert [parameter["bytes"] for parameter in record["parameters"]] == [1200000, 8]
    assert sum(shard["bytes"] for shard in record["shards"]) == 1200008
    assert len(record["shards"]) == 3


@pytest.mark.usefixtures("worker")
def test_many_shards_are_listed_by_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["placement", "--model", "mnist", "--shards", "20"]) == 0
    first, second, *shards = table_rows(capsys.readouterr().out, "shards")
    # 300,000 elements: pieces of 19 Ki, sixteen of them.
    assert first == "w [1000, 300] float32 1,200,000 " + " ".join(f"{shard}x1" for shard in range(16))
    assert second == "mean [] float64, not trainable 8 16x1"
    assert shards[16:20] == ["16 1 8 0.0%", "17 0 0 0.0%", "18 0 0 0.0%", "19 0 0 0.0%"]


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("--ps a:1 --shards 2", "--shards: only with --model"),
        ("--ps a:1 --model-arg hidden=3", "--model-arg: only with --model"),
        ("--ps a:1 --model mnist --shards 2", "--model: is for a model that does not run; not with --ps or --log-dir"),
        ("--model mnist", "--shards: must be given with --model"),
        ("--model mnist --shards 0", "--shards 0: must be 1 to 10000"),
        ("--model mnist --shard 2", "unknown option --shard (did you mean --shards?)"),
        ("--model mnist --shards 2 --timeout 0", "--timeout 0: must be a finite number above 0"),
    ],
)
def test_b08_b09_flags_of_placement(typed: str, text: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        run(["placement", *typed.split()])
    assert refused.value.format_message().startswith(text)


@pytest.mark.usefixtures("worker")
def test_evaluate_passes_flags_on_and_shows_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    typed = "--model file.py:Net --model-arg a=1 --model-arg b=2 --data-dir d --data digits --device cpu:0"
    assert run(["evaluate", "--ps", "a:1, b:2", *typed.split()]) == 0
    assert flags() == ["evaluate", "--ps", "a:1,b:2", *typed.split(), "--json"]
    assert capsys.readouterr().out == "global step 1200: accuracy 0.9125, loss 0.25 (10,000 examples)\n"
    assert run(["evaluate", "--ps", "a:1", "--model", "mnist", "--raw"]) == 0
    assert flags() == ["evaluate", "--ps", "a:1", "--model", "mnist", "--raw", "--json"]


@pytest.mark.usefixtures("worker")
def test_evaluate_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", "--ps", "a:1", "--model", "mnist", "--json"]) == 0
    metrics = {"loss": 0.25, "accuracy": 0.9125}
    assert json.loads(capsys.readouterr().out) == {"global_step": 1200, "metrics": metrics, "examples": 10000}


@pytest.mark.usefixtures("worker")
def test_the_model_may_be_left_out_where_it_is_one_of_ours() -> None:
    with FakeControl() as lead:
        assert run(["evaluate", "--ps", lead.address]) == 0
        assert flags() == ["evaluate", "--ps", lead.address, "--model", "mnist", "--json"]
    with FakeControl(status(job=job(model="net"))) as lead, pytest.raises(click.UsageError) as refused:
        run(["evaluate", "--ps", lead.address])
    says = "--model: must be given, the job's model 'net' is none of cifar10, embedding, linear, mnist"
    assert refused.value.format_message() == says
    waits = wire.StatusResponse(waiting_for="a job")
    with FakeControl(waits) as lead, pytest.raises(NotOpen, match=r"no model yet: it waits for a job$"):
        run(["evaluate", "--ps", lead.address])


@pytest.mark.parametrize("command", [["evaluate", "--ps", "a:1"], ["placement", "--shards", "2"]])
class TestAWorkerThatFails:
    """Its message and exit code are psctl's."""

    @pytest.fixture(autouse=True)
    def install(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = tmp_path, monkeypatch

    def failure(self, command: list[str], script: str, *more: str) -> JobFailed:
        install_programs(self.folder, self.monkeypatch, worker=script)
        with pytest.raises(JobFailed) as failed:
            run([*command, "--model", "mnist", *more])
        return failed.value

    def test_a_refusal(self, command: list[str]) -> None:
        failed = self.failure(command, REFUSING)
        assert (str(failed), failed.exit_code) == ("t10k-images: missing", 3)

    def test_a_bug_shows_its_traceback(self, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        failed = self.failure(command, "raise ValueError('oops')")
        assert (str(failed), failed.exit_code) == ("ValueError: oops", 1)
        assert "Traceback" in capsys.readouterr().err

    def test_a_kill(self, command: list[str]) -> None:
        failed = self.failure(command, "import os; os.kill(os.getpid(), 9)")
        assert (str(failed), failed.exit_code) == (f"worker {command[0]} ended with exit code 137", 137)

    def test_a_standstill(self, command: list[str]) -> None:
        failed = self.failure(command, "import signal; signal.pause()", "--timeout", "0.1")
        assert str(failed) == f"worker {command[0]} has not ended within 0.1 s"
        assert failed.exit_code == 4

    @pytest.mark.parametrize("printed", ["", "done", "[1]"])
    def test_no_object(self, command: list[str], printed: str) -> None:
        assert "printed no JSON object" in str(self.failure(command, f"print({printed!r})"))

    def test_an_object_of_another_kind(self, command: list[str]) -> None:
        assert "KeyError" in str(self.failure(command, "print('{}')"))
