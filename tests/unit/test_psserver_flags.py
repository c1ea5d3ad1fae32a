"""The flags of `psserver`: what is refused before a socket is opened, and what becomes of the others."""

from __future__ import annotations

import click
import pytest

from grpc_ps.client.shared.errors import PsError
from grpc_ps.psserver.command import config_from_flags, psserver
from grpc_ps.psserver.config import ShardConfig
from grpc_ps.psserver.lead.limits import Limits


def config_of(typed: str) -> ShardConfig:
    return config_from_flags(psserver.make_context("psserver", typed.split()).params)


def refusal(typed: str) -> str:
    with pytest.raises((click.UsageError, PsError)) as caught:
        config_of(typed)
    error = caught.value
    assert error.exit_code == 2
    return error.format_message() if isinstance(error, click.ClickException) else str(error)


def test_one_shard_needs_a_port_alone() -> None:
    assert config_of("--shard 0 --port 0") == ShardConfig(shard=0, port=0)


def test_everything_that_is_stated() -> None:
    typed = (
        "--shard 0 --shards 3 --port 2222 --host 0.0.0.0 --insecure --lease 3 --link-timeout 4 --start-timeout 5"
        " --rejoin-timeout 6 --snapshot-timeout 8 --call-timeout 9 --grace 10 --connect-timeout 7"
        " --kernel-threads 2 --chunk-bytes 65536"
        " --mode sync --workers 3 --backup 1 --min-workers 2 --threads 1 --until accuracy=0.97 --eval-every 50"
        " --schedule cosine:100 --warmup-steps 5 --weight-decay 0.1 --global-clip-norm 1 --optimizer rmsprop --rho 0.8"
        " --wire-dtype bfloat16 --compress topk:0.1"
    )
    assert config_of(typed) == ShardConfig(
        shard=0,
        shards=3,
        host="0.0.0.0",
        port=2222,
        limits=Limits(lease=3, link=4, start=5, rejoin=6, pin=8, call=9, last_residuals=5),
        grace_seconds=10,
        connect_seconds=7,
        threads=2,
        chunk_bytes=65536,
        presets={
            "mode": "sync",
            "workers": 3,
            "backup": 1,
            "min_workers": 2,
            "threads": 1,
            "until": "accuracy>=0.97",
            "eval_every": 50,
            "schedule": "cosine:100",
            "warmup_steps": 5,
            "weight_decay": 0.1,
            "global_clip_norm": 1.0,
            "optimizer": "rmsprop",
            "rho": 0.8,
            "push_dtype": "bfloat16",
            "pull_dtype": "bfloat16",
            "compress": "topk:0.1",
        },
    )


@pytest.mark.parametrize(("typed", "host"), [("", "127.0.0.1"), (" --metrics-host 0.0.0.0", "0.0.0.0")])
def test_figures_are_on_loopback_unless_stated(typed: str, host: str) -> None:
    """Whatever --host says: its TLS and tokens do not protect them."""
    config = config_of(f"--shard 0 --port 0 --host 10.0.0.7 --insecure --metrics-port 0{typed}")
    assert (config.metrics_host, config.metrics_port) == (host, 0)


def test_figures_may_have_the_shards_port_on_another_address() -> None:
    config = config_of("--shard 0 --port 2 --host 10.0.0.7 --insecure --metrics-port 2")
    assert (config.host, config.port, config.metrics_host, config.metrics_port) == ("10.0.0.7", 2, "127.0.0.1", 2)
    with pytest.raises(click.UsageError, match=r"^--metrics-port 2 and --port 2: "):
        config_of("--shard 0 --port 2 --host :: --insecure --metrics-port 2")


def test_a_shard_finds_itself_in_the_list() -> None:
    config = config_of("--shard 1 --ps a:1,b:2 --steps 5")
    assert (config.shards, config.port, config.lead, config.presets) == (2, 2, "a:1", {})
    # Which a shard that listens on loopback warns of.
    assert (config.known_as, config.is_out_of_reach) == ("b:2", True)
    assert not config_of("--shard 0 --ps 127.0.0.1:1").is_out_of_reach
    assert not config_of("--shard 1 --ps a:1,b:2 --host 0.0.0.0 --insecure").is_out_of_reach


@pytest.mark.parametrize(
    "ps", ["", ",", "a:1,", ",a:1", "a:1,,b:2", "a", "a:", ":1", "a:0", "a:70000", "a:x", "http://a:1", "a:1,a:1"]
)
def test_b07_bad_lists_of_shards(ps: str) -> None:
    with pytest.raises(PsError, match=r"^--ps:? ") as caught:
        config_from_flags(psserver.make_context("psserver", ["--shard", "0", "--ps", ps]).params)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("--shard -1 --port 0", "--shard -1: must be 0 to 9999"),
        ("--shard 1.5 --port 0", "--shard 1.5: must be a whole number, 0 to 9999"),
        ("--shard 2 --shards 2 --port 0 --lead a:1", "--shard 2: must be 0 to 1, with 2 shard(s)"),
        ("--shard 2 --ps a:1,b:2", "--shard 2: must be 0 to 1, with 2 shard(s)"),
        (
            "--shard 1 --port 0",
            "--shard 1: must be 0 to 0, with 1 shard(s); for more shards give --shards and --lead, or --ps",
        ),
        ("--shard 0 --shards 0 --port 0", "--shards 0: must be 1 to 10000"),
        ("--shard 0 --port 65536", "--port 65536: must be 0 to 65535"),
        ("--shard 0 --port -1", "--port -1: must be 0 to 65535"),
        ("--shard 0 --port 0 --metrics-port 65536", "--metrics-port 65536: must be 0 to 65535"),
        ("--shard 0 --port 0 --workers 0", "--workers 0: must be at least 1"),
        ("--shard 0 --port 0 --backup -1", "--backup -1: must be 0 or more"),
        ("--shard 0 --port 0 --steps -5", "--steps -5: must be at least 1"),
        ("--shard 0 --port 0 --batch-size 0", "--batch-size 0: must be at least 1"),
        ("--shard 0 --port 0 --lr nan", "--learning-rate/--lr nan: must be a finite number above 0"),
        ("--shard 0 --port 0 --lease 0", "--lease 0: must be a finite number above 0"),
        ("--shard 0 --port 0 --connect-timeout -1", "--connect-timeout -1: must be a finite number above 0"),
        ("--shard 0 --port 0 --kernel-threads 0", "--kernel-threads 0: must be 1 to 1024"),
        ("--shard 0 --port 0 --threads 0", "--threads 0: must be 1 to 1024"),
        ("--shard 0 --port 0 --chunk-bytes 100", "--chunk-bytes 100: must be a multiple of 64"),
        ("--shard 0 --port 0 --mode sync --max-staleness 1", "--max-staleness 1: only with --mode async"),
        ("--shard 0 --port 0 --workers 2 --min-workers 3", "--min-workers 3: must be 1 to 2, the value of --workers"),
    ],
)
def test_b08_numbers_out_of_range(typed: str, says: str) -> None:
    assert refusal(typed).startswith(says)


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("-shard=1 --port 1", "unknown option -shard=1 (did you mean --shard?)"),
        ("--shrad 1 --port 1", "unknown option --shrad (did you mean --shard?)"),
        ("--port 1", "--shard: must be given, the number of this shard from 0"),
        ("--shard 1 --shards 2 --port 1", "--shard 1: needs --ps, or --lead with the address of shard 0"),
        ("--shard 0", "--port: must be given where --ps is not (0 picks a free one)"),
        ("--shard 0 --port 0 --metrics-host 0.0.0.0", "--metrics-host 0.0.0.0: needs --metrics-port"),
        ("--shard 0 --port 2 --metrics-port 2", "--metrics-port 2 and --port 2: the figures need a port of their own"),
        ("--shard 1 --ps a:1,b:2 --metrics-port 2", "--metrics-port 2 and --port 2: the figures need a port of their"),
        ("--shard 0 --shards 3 --ps a:1,b:2", "--shards 3: --ps lists 2"),
        ("--shard 1 --shards 2 --port 1 --lead a:1,b:2", "--lead a:1,b:2: must be one address, that of shard 0"),
        ("--shard 0 --port 1 --thread 2", "unknown option --thread (did you mean --threads?)"),
    ],
)
def test_b09_mistyped_or_missing_flags(typed: str, says: str) -> None:
    assert refusal(typed).startswith(says)
