"""Commands with a job's flags, and what they make of what is typed."""

from __future__ import annotations

from typing import Any

import click
import pytest

from grpc_ps.client.shared.flags import Command, Group, Whole
from grpc_ps.client.shared.job_flags import check_job_flags, job_options, stated_flags
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
