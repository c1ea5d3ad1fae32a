"""The flags of checkpoints: what becomes of them, and what psctl launch passes on to every shard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from grpc_ps.client.commands.launch import launch, shard_flags
from grpc_ps.client.shared.checkpoint_flags import CheckpointSettings, checkpoint_options, checkpoint_settings
from grpc_ps.client.shared.flags import Command
from grpc_ps.client.shared.limit_flags import limit_options
from grpc_ps.psserver.command import psserver


@click.command(cls=Command)
@checkpoint_options()
@limit_options()
def command(**flags: Any) -> None:
    """Does nothing."""


def settings_of(*typed: str) -> CheckpointSettings | None:
    return checkpoint_settings(command.make_context("command", list(typed)).params)


def refusal(*typed: str) -> str:
    with pytest.raises(click.UsageError) as refused:
        settings_of(*typed)
    return refused.value.format_message()


def test_without_a_folder_there_are_none() -> None:
    assert settings_of() is None


def test_defaults() -> None:
    assert settings_of("--checkpoint-dir", "ckpt") == CheckpointSettings(
        directory=Path("ckpt"),
        steps=None,
        seconds=None,
        keep=3,
        best="",
        best_rises=True,
        restore=False,
        recovery=120.0,
        timeout=600.0,
    )


ALL = (
    *("--checkpoint-dir", "ckpt", "--checkpoint-steps", "10", "--checkpoint-secs", "2.5", "--keep", "7", "--restore"),
    *("--keep-best", "loss", "--recovery-timeout", "30", "--checkpoint-timeout", "40"),
)


def test_everything_that_is_stated() -> None:
    assert settings_of(*ALL) == CheckpointSettings(
        directory=Path("ckpt"),
        steps=10,
        seconds=2.5,
        keep=7,
        best="loss",
        best_rises=False,
        restore=True,
        recovery=30.0,
        timeout=40.0,
    )


@pytest.mark.parametrize(
    "typed",
    [
        "--checkpoint-steps 10",
        "--checkpoint-secs 1",
        "--keep 3",
        "--keep-best accuracy",
        "--restore",
        "--recovery-timeout 1",
        "--checkpoint-timeout 1",
    ],
)
def test_all_others_need_the_folder(typed: str) -> None:
    assert refusal(*typed.split()) == f"{typed.split()[0]}: needs --checkpoint-dir"


@pytest.mark.parametrize(
    ("value", "best", "rises"),
    [
        ("accuracy", "accuracy", True),
        ("loss", "loss", False),
        ("accuracy<", "accuracy", False),
        (" perplexity < ", "perplexity", False),
        ("bleu>", "bleu", True),
    ],
)
def test_the_best_is_by_a_metric_and_a_direction(value: str, best: str, rises: bool) -> None:
    settings = settings_of("--checkpoint-dir", "ckpt", "--keep-best", value)
    assert settings is not None
    assert (settings.best, settings.best_rises) == (best, rises)


@pytest.mark.parametrize("value", ["", ">", "accuracy>=0.9", "accuracy>>", "a b", "accuracy=0.9"])
def test_b08_what_is_no_metric(value: str) -> None:
    rule = "must be METRIC, 'METRIC>' (more is better) or 'METRIC<' (less is better)"
    assert refusal("--checkpoint-dir", "ckpt", "--keep-best", value) == f"--keep-best {value}: {rule}"


def test_b08_a_direction_is_not_guessed() -> None:
    text = "--keep-best bleu: whether more or less of bleu is better is not known; write 'bleu>' or 'bleu<'"
    assert refusal("--checkpoint-dir", "ckpt", "--keep-best", "bleu") == text


@pytest.mark.parametrize(
    ("typed", "rule"),
    [
        ("--checkpoint-steps 0", "must be at least 1"),
        ("--checkpoint-secs 0", "must be a finite number above 0"),
        ("--keep 0", "must be 1 to 1000000"),
        ("--recovery-timeout nan", "must be a finite number above 0"),
        ("--checkpoint-timeout -1", "must be a finite number above 0"),
        ("--lease 0", "must be a finite number above 0"),
        ("--rejoin-timeout x", "must be a finite number above 0"),
    ],
)
def test_b08_numbers_out_of_range(typed: str, rule: str) -> None:
    assert refusal(*typed.split()) == f"{typed}: {rule}"


def passed_on(*typed: str) -> list[str]:
    return shard_flags(launch.make_context("launch", ["--model", "linear", *typed]).params)


def test_launch_passes_on_what_psserver_reads_the_same() -> None:
    flags = passed_on(*ALL, "--lease", "2", "--rejoin-timeout", "3")
    params = psserver.make_context("psserver", ["--shard", "0", "--port", "0", *flags]).params
    assert checkpoint_settings(params) == settings_of(*ALL)
    assert (params["lease"], params["link_timeout"], params["rejoin_timeout"]) == (2.0, 10.0, 3.0)
    assert not any(flag.startswith(("--checkpoint", "--restore", "--keep")) for flag in passed_on())


def test_launch_refuses_before_anything_is_started() -> None:
    with pytest.raises(click.UsageError, match=r"^--restore: needs --checkpoint-dir$"):
        launch.main(["--model", "linear", "--restore"], standalone_mode=False)
