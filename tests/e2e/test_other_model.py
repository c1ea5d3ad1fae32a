"""Another model than the job's, as a user gives it: refused, and nobody is disturbed."""

from __future__ import annotations

import json

import pytest
from commands import UNHURRIED, Command, ready, run

pytestmark = pytest.mark.e2e


def test_b14_another_model_or_size_is_refused_and_the_job_goes_on() -> None:
    """Fault B14: the first parameter that differs, with both shapes; a new job is the way to another model."""
    with Command("psserver", "--shard", 0, "--port", 0) as shard:
        ps = ready(shard)
        flags = ("--model", "mnist", "--steps", 10**9, "--fault", UNHURRIED)
        with Command("worker", "--ps", ps, *flags) as worker:
            worker.until("local_step")
            refusals = [
                (
                    ("--model", "linear"),
                    "model: the job trains 'mnist', this worker 'linear'; parameter 'b': the job has none of that "
                    "name, this worker's model has float32[1]",
                ),
                (
                    ("--model", "mnist", "--model-arg", "hidden=50"),
                    "parameter 'hid_b': the job has float32[100], this worker's model has float32[50]",
                ),
            ]
            for other, message in refusals:
                refused = run("worker", "--ps", ps, *other)
                assert (refused.returncode, refused.stderr.splitlines()[-1]) == (2, f"worker: error: {message}")
            status = json.loads(run("psctl", "status", "--ps", ps, "--json").stdout)
            assert (status["phase"], status["model"], status["opened"]) == ("running", "mnist", 1)
            assert [(member["worker"], member["incarnation"]) for member in status["workers"]] == [(0, 1)]
            evaluated = json.loads(run("psctl", "evaluate", "--ps", ps, "--json").stdout)
            assert evaluated.keys() == {"global_step", "metrics", "examples", "averages"}
            assert evaluated["metrics"].keys() == {"accuracy", "loss"}
            assert (evaluated["examples"], evaluated["averages"]) == (299, False)
            assert evaluated["global_step"] >= status["global_step"]
            refused = run("psctl", "evaluate", "--ps", ps, "--model-arg", "hidden=50")
            assert refused.returncode == 2
            both = "parameter 'hid_b': the cluster has float32[100], this model has float32[50]"
            assert both in refused.stderr.splitlines()[-1]
            placed = json.loads(run("psctl", "placement", "--ps", ps, "--json").stdout)
            shapes = {parameter["name"]: parameter["shape"] for parameter in placed["parameters"]}
            assert shapes["hid_b"] == [100]
            assert run("psctl", "stop", "--ps", ps).returncode == 0
            assert (worker.wait(), shard.wait()) == (0, 0), worker.text
