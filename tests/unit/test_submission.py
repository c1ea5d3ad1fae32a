"""What may be submitted: refused by the client, by the lead, and by the worker that is to carry it out."""

from __future__ import annotations

from typing import Any

import pytest

from grpc_ps.client.jobs import JobRequest, request_of
from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.submission import MAX_ARGUMENTS, MAX_NAME, MAX_VALUE, OPTIONS
from grpc_ps.protos import control_pb2 as wire
from grpc_ps.protos import job_pb2
from grpc_ps.psserver.job_messages import caller_of, job_request, submission_of
from grpc_ps.psserver.lead.standing import Ended
from grpc_ps.worker.command import worker

WHOLE = JobRequest(
    model="mnist",
    name="first try",
    arguments=("hidden=64", "layers=2"),
    options={"data_dir": "/data/mnist", "overlap": "true"},
    stated={"steps": 30, "learning_rate": 0.5, "nesterov": False, "max_staleness": -1, "until": "accuracy>=0.97"},
    members=2,
)


def test_a_job_arrives_as_it_was_sent() -> None:
    message = WHOLE.message()
    submission = submission_of(message)
    assert (submission.name, submission.model, submission.members) == ("first try", "mnist", 2)
    assert submission.arguments == WHOLE.arguments
    assert (submission.options, submission.stated) == (WHOLE.options, WHOLE.stated)
    assert request_of(job_request(submission)) == WHOLE


def test_a_jobs_flags_are_those_of_a_worker_that_states_the_same() -> None:
    params = worker.make_context("worker", WHOLE.flags()).params
    assert (params["model"], params["model_arg"], str(params["data_dir"])) == ("mnist", WHOLE.arguments, "/data/mnist")
    assert params["overlap"] is True
    assert {name: params[name] for name in WHOLE.stated} == WHOLE.stated


def test_every_option_is_a_flag_of_the_worker() -> None:
    flags = {param.name: param for param in worker.params}
    assert {name: not getattr(flags[name], "is_flag", False) for name in OPTIONS} == dict(OPTIONS)


LONG = "x" * 2000


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": "model.py:Model"}, "--model 'model.py:Model': no code travels"),
        ({"options": {"data": "data.py:load"}}, "--data 'data.py:load': no code travels"),
        ({"options": {"data": "os:getcwd"}}, "--data 'os:getcwd': no code travels"),
        ({"model": "package.module:Model"}, "no code travels"),
        ({"model": "os:system"}, "no code travels"),
        ({"model": "../linear"}, "no code travels"),
        ({"model": "linear --fault"}, "is no model's name"),
        ({"model": "--ps"}, "is no model's name"),
        ({"model": ""}, "is no model's name"),
        ({"model": "Linear"}, "is no model's name"),
        ({"model": "x" * 65}, "is no model's name"),
        ({"name": LONG}, f"--name: has at most {MAX_NAME} characters, not 2000"),
        ({"name": "a\x1b[2Jb"}, "has characters that cannot be printed"),
        ({"arguments": ("hidden",)}, "--model-arg hidden: must be NAME=VALUE"),
        ({"arguments": ("--fault=kill",)}, "--model-arg --fault=kill: must be NAME=VALUE"),
        ({"arguments": ("a=" + LONG,)}, f"--model-arg: has at most {MAX_VALUE} characters"),
        ({"arguments": ("a=1",) * (MAX_ARGUMENTS + 1)}, "at most 100 of them, not 101"),
        ({"options": {"token_file": "/etc/shadow"}}, "a job cannot bring the option 'token_file'"),
        ({"options": {"fault": "kill@step:1"}}, "a job cannot bring the option 'fault'"),
        ({"options": {"data_dir": "a\nb"}}, "has characters that cannot be printed"),
        ({"options": {"data_dir": ""}}, "--data-dir: its value cannot be ''"),
        ({"options": {"overlap": "yes"}}, "--overlap: its value cannot be 'yes'"),
        ({"members": 1_000_001}, "--workers 1000001: must be 1 to 1000000"),
    ],
)
def test_what_no_honest_client_sends_is_refused_on_all_three_sides(changes: dict[str, Any], says: str) -> None:
    job = JobRequest(**{"model": "linear", **changes})
    message = wire.JobRequest(
        model=job.model, name=job.name, arguments=job.arguments, options=job.options, members=job.members
    )
    for look in (job.message, lambda: submission_of(message), lambda: request_of(message)):
        with pytest.raises(UsageError) as refused:
            look()
        assert says in str(refused.value)


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        ({"examples": 5}, "examples: is not for a job's client to state"),
        ({"data": "abc"}, "data: is not for a job's client to state"),
        ({"initial_values": "abc"}, "initial_values: is not for a job's client to state"),
        ({"schedule": "x" * 1001}, "schedule: a text has at most 1000 characters, not 1001"),
    ],
)
def test_settings_that_are_not_a_clients_are_refused_by_the_lead(stated: dict[str, Any], says: str) -> None:
    message = wire.JobRequest(model="linear", stated=job_pb2.Settings(**stated))
    with pytest.raises(UsageError, match=f"^{says}$"):
        submission_of(message)


def test_settings_that_there_are_not_are_refused_by_the_client() -> None:
    with pytest.raises(UsageError, match=r"settings of the job: .*depth"):
        JobRequest(model="linear", stated={"depth": 3}).message()


def test_a_standing_worker_that_calls() -> None:
    request = wire.AwaitJobRequest(nonce=5, name="host:1", carrying=3, run=77)
    request.ended.CopyFrom(wire.Carried(number=2, run=66, exit_code=3, reason="no\nsuch  file " + LONG))
    caller = caller_of(request)
    assert (caller.nonce, caller.name, caller.carrying, caller.leaving) == (5, "host:1", 77, False)
    assert isinstance(caller.ended, Ended)
    assert (caller.ended.run, caller.ended.exit_code, caller.ended.reason[:14]) == (66, 3, "no such file x")
    assert len(caller.ended.reason) == 1000
    for wrong in (wire.AwaitJobRequest(name="host:1"), wire.AwaitJobRequest(nonce=1, name=LONG)):
        with pytest.raises(UsageError):
            caller_of(wrong)
