"""Flags: what is not known or out of range is an error that says what to type instead."""

from __future__ import annotations

from typing import Any

import click
import pytest

from grpc_ps.client.shared.flags import JOB_FLAGS, Command, Group, Whole, check_job_flags, job_options, stated_flags
from grpc_ps.protos import job_pb2


@click.command(cls=Command)
@click.option("--shard", type=Whole(0, 9), required=True)
@click.option("--port", type=Whole(0, 65535))
@job_options()
def server(**flags: Any) -> job_pb2.Settings:
    check_job_flags(flags)
    return job_pb2.Settings(**stated_flags(flags))


@click.group(cls=Group)
def tool() -> None:
    """A group."""


@tool.command()
@job_options("mode", "steps")
def launch(**flags: Any) -> dict[str, Any]:
    return flags


def run(command: click.Command, *args: str) -> Any:
    return command.main(list(args), "prog", standalone_mode=False)


def refusal(command: click.Command, *args: str) -> str:
    with pytest.raises(click.UsageError) as caught:
        run(command, *args)
    return caught.value.format_message()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--shard", "-1"], "--shard -1: must be 0 to 9"),
        (["--shard", "10"], "--shard 10: must be 0 to 9"),
        (["--shard", "1.5"], "--shard 1.5: must be a whole number, 0 to 9"),
        (["--workers", "0"], "--workers 0: must be at least 1"),
        (["--backup", "-1"], "--backup -1: must be 0 or more"),
        (["--steps", "-5"], "--steps -5: must be at least 1"),
        (["--batch-size", "0"], "--batch-size 0: must be at least 1"),
        (["--seed", "x"], "--seed x: must be a whole number, at least 0"),
        (["--lr", "nan"], "--learning-rate/--lr nan: must be a finite number above 0"),
        (["--lr", "inf"], "--learning-rate/--lr inf: must be a finite number above 0"),
        (["--learning-rate", "0"], "--learning-rate/--lr 0: must be a finite number above 0"),
        (["--lr=-1e-3"], "--learning-rate/--lr -1e-3: must be a finite number above 0"),
        (["--momentum", "1"], "--momentum 1: must be a finite number from 0 and below 1"),
        (["--mode", "snyc"], "--mode snyc: must be one of async, sync (did you mean sync?)"),
        (["--optimizer", "adma"], "--optimizer adma: must be one of sgd, momentum, adagrad, adam (did you mean adam?)"),
    ],
)
def test_b08_values_out_of_range_are_refused(args: list[str], message: str) -> None:
    assert refusal(server, *args, "--shard", "1") == message if "--shard" not in args else refusal(server, *args)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-shard=1", "--port", "1"], "unknown option -shard=1 (did you mean --shard?)"),
        (["--port", "1", "-shard", "1"], "unknown option -shard (did you mean --shard?)"),
        (["--shrad", "1", "--port", "1"], "unknown option --shrad (did you mean --shard?)"),
        (["--shard", "1", "--batch", "5"], "unknown option --batch (did you mean --batch-size?)"),
        (["--shard", "1", "--opt", "sgd"], "unknown option --opt (did you mean --optimizer?)"),
        (["--shard", "1", "--qqq"], "unknown option --qqq"),
    ],
)
def test_b09_unknown_options_are_refused_with_a_suggestion(args: list[str], message: str) -> None:
    assert refusal(server, *args) == message


def test_b09_option_that_is_required_has_no_default() -> None:
    assert "--shard" in refusal(server, "--port", "1")


def test_unknown_command_is_refused_with_a_suggestion() -> None:
    assert refusal(tool, "lunch") == "unknown command lunch (did you mean launch?)"
    assert refusal(tool, "launch", "--step", "3") == "unknown option --step (did you mean --steps?)"


def test_settings_have_only_what_is_stated() -> None:
    assert run(server, "--shard", "1") == job_pb2.Settings()
    stated = run(server, "--shard=1", "--mode=sync", "--workers=3", "--backup=0", "--lr=0.5", "--no-nesterov")
    assert stated == job_pb2.Settings(mode="sync", workers=3, backup=0, learning_rate=0.5, nesterov=False)
    assert stated.HasField("backup")
    assert not stated.HasField("seed")


def test_every_flag_is_a_setting() -> None:
    assert set(JOB_FLAGS) <= set(job_pb2.Settings.DESCRIPTOR.fields_by_name)


def test_some_flags_can_be_chosen() -> None:
    assert run(tool, "launch", "--steps", "7") == {"mode": None, "steps": 7}


def test_flags_that_exclude_each_other_are_refused() -> None:
    assert (
        refusal(server, "--shard=1", "--workers=2", "--min-workers=3")
        == "--min-workers 3: must be 1 to 2, the value of --workers"
    )


def test_help_shows_choices() -> None:
    with click.Context(server) as context:
        assert "--mode {async,sync}" in server.get_help(context)
