"""psctl launch: a whole cluster on this machine in one command."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import click

from grpc_ps.client import cluster_file
from grpc_ps.client import launch as launcher
from grpc_ps.client.commands import launch_hosts
from grpc_ps.client.commands.launch_report import is_where_errors_go, report
from grpc_ps.client.commands.programs import program, run_worker, watch_worker
from grpc_ps.client.commands.view import make_view
from grpc_ps.client.hosts import addresses
from grpc_ps.client.shared import flags, job_flags
from grpc_ps.client.shared.checkpoint_flags import CHECKPOINT_FLAGS, checkpoint_options, checkpoint_settings
from grpc_ps.client.shared.config_file import config_option
from grpc_ps.client.shared.cores import allowed_cores
from grpc_ps.client.shared.download_flags import DOWNLOAD_FLAGS, check_download, download_options
from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.fault_flags import faults_for, sent_fault_options
from grpc_ps.client.shared.flag_forms import NO_BOUND
from grpc_ps.client.shared.flags import typed
from grpc_ps.client.shared.limit_flags import LIMIT_FLAGS, limit_options
from grpc_ps.client.shared.summary_flags import SUMMARY_FLAGS, summary_options

# Flags of the worker that are passed on as they were typed. Those of the whole job come from client.shared.job_flags.
_WORKER_FLAGS = (
    *("model", "model_arg", "data_dir", "data", *DOWNLOAD_FLAGS),
    *("init_from", "device", "overlap", "grace", *SUMMARY_FLAGS),
)
_JOB_FLAGS = tuple(name for name in job_flags.JOB_FLAGS if name != "workers")
# Those of both that a worker without a model takes.
_STANDING_FLAGS = ("data_dir", "data", *DOWNLOAD_FLAGS, "device", "grace", "threads")

# Seconds for the last processes to end once the others have, beside what the last checkpoint may take.
_DRAIN_SECONDS = 60.0
# Seconds beyond --grace that a process gets to end in, once the job has failed or it was told to.
_SLACK_SECONDS = 2.0
# Seconds for a worker to check its flags and to read its data, which may lie on a slow disk.
_CHECK_SECONDS = 120.0


@click.command("launch", cls=flags.Command)
@config_option("launch")
@click.option("--ps", "shards", type=flags.Whole(1, 1024), default=1, show_default=True, help="Shards to start.")
@click.option(
    "--workers", type=flags.Whole(1, 1024), default=1, show_default=True, help="Workers to start, beside --backup."
)
@click.option(
    "--model",
    metavar="NAME",
    help="A model's name, file.py:attribute or module:attribute. Without it the cluster stands, for `psctl submit`.",
)
@click.option("--model-arg", multiple=True, metavar="KEY=VALUE", help="An argument of the model. Repeatable.")
@click.option("--data-dir", metavar="DIR", help="Folder with the model's data files.")
@click.option(
    "--data",
    metavar="NAME",
    help="Data that needs no files: digits or synthetic; a part of the files; or your own, file.py:attribute.",
)
@download_options
@click.option(
    "--init-from", metavar="FILE", help="Initial values, .npz, .safetensors or .keras. Default: from the seed."
)
@click.option("--device", metavar="DEVICE", help="TensorFlow device of the workers: cpu, gpu:0.")
@job_flags.overlap_option()
@summary_options()
@click.option(
    "--log-dir",
    type=flags.FilePath(file_okay=False),
    help=f"Folder for logs and cluster file. Default: a new one under {cluster_file.RUNS}/.",
)
@click.option(
    "--ready-timeout",
    type=flags.Real(above=0),
    default=120.0,
    show_default=True,
    help="Seconds for all shards to be ready.",
)
@click.option(
    "--max-restarts",
    type=flags.Whole(0, 1_000_000),
    default=0,
    show_default=True,
    help="How many processes that die are started again, all in all. Shards: with --checkpoint-dir.",
)
@limit_options()
@click.option(
    "--metrics", is_flag=True, help="Give every shard a port for Prometheus, on 127.0.0.1; cluster.json has the URLs."
)
@click.option(
    "--pin-cores", is_flag=True, help="Worker i on core i alone, in turn where there are more; shards on any."
)
@launch_hosts.hosts_options
@click.option("--no-progress", is_flag=True, help="On a terminal too: the processes' own lines, no progress bars.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object at the end on stdout, lines on stderr.")
@checkpoint_options()
@job_flags.job_options(*_JOB_FLAGS)
@sent_fault_options()
def launch(shards: int, workers: int, log_dir: Path | None, **values: Any) -> None:
    """Starts a cluster on this machine, or shows the commands for several (--hosts).

    psctl watches over its shards and workers and ends with them. If one process fails, all are ended and psctl exits
    with that process's exit code. Ctrl-C ends all. Without --threads the processes share out this machine's cores.

    Without --model the cluster stands: it waits for jobs of `psctl submit`, until Ctrl-C or `psctl stop`.

    With --checkpoint-dir the same command goes on from the newest checkpoint. --max-restarts starts again what was
    killed, lost its peers or met an unexpected error, for as long as the job is not over.
    """
    checkpoints = checkpoint_settings(values)
    check_download(values)
    hosts = launch_hosts.hosts_from_flags(values)
    said = values
    if hosts:
        shards, workers = launch_hosts.sizes(hosts, values["backup"] or 0)
        said = launch_hosts.without_defaults(values)
    passed_on = _worker_flags(shards, workers, said)
    own_flags = _faults(shards, workers + (values["backup"] or 0), values)
    stands = values["model"] is None
    out = sys.stderr if values["as_json"] else sys.stdout
    every_shard = [*_metrics_flags(values), *["--keep-alive"] * stands]
    if hosts:
        launch_hosts.validate(values["model"], _worker_flags(shards, workers, launch_hosts.without_files(said)))
        shard = [*shard_flags(said), *every_shard]
        assigned = launch_hosts.processes(hosts, values, shard=shard, worker=passed_on, own=own_flags)
        elsewhere = launch_hosts.show_or_run(assigned, values)
        if elsewhere is None:
            return
    else:
        elsewhere = {}
        own_flags = _pinned(own_flags) if values["pin_cores"] else own_flags
        if not stands:
            _check(passed_on, values, out)
    folder = _prepare(log_dir)
    ending = values["grace"] + _SLACK_SECONDS + (launch_hosts.TRANSIT_SECONDS if hosts else 0)
    plan = launcher.LaunchPlan(
        shards=shards,
        workers=workers + (values["backup"] or 0),
        shard_command=[program("psserver"), "--host", "127.0.0.1", *shard_flags(values), *every_shard],
        worker_command=[program("worker"), *passed_on],
        log_dir=folder,
        own_flags=own_flags,
        elsewhere=elsewhere,
        addresses=addresses(hosts),
        max_restarts=values["max_restarts"],
        checkpoints=checkpoints.directory if checkpoints else None,
        ready_timeout=values["ready_timeout"],
        settle=ending,
        grace=ending,
        drain_timeout=_DRAIN_SECONDS + (checkpoints.timeout if checkpoints else 0),
    )
    print(f"logs: {folder}", file=out, flush=True)
    if stands:
        print("the cluster stands by: psctl submit --model NAME, in this folder, gives it a job", file=out, flush=True)
    bars = out.isatty() and not (values["no_progress"] or hosts or stands)
    _launch_in_view(plan, out, bars=bars, as_json=values["as_json"], stands=stands)


def _launch_in_view(plan: launcher.LaunchPlan, out: TextIO, *, bars: bool, as_json: bool, stands: bool) -> None:
    """Launches, shows it, and says how it ended. Raises as `report`."""
    with make_view(out, bars=bars) as view:
        result = launcher.launch(plan, observe=view.observe, started=view.started)
    again = not (is_where_errors_go(out) and view.shows(result.last_lines))
    report(result, plan, as_json=as_json, stands=stands, again=again)


def _check(passed_on: Sequence[str], values: Mapping[str, Any], out: TextIO) -> None:
    """Has a worker look at its flags, its model and its data: nothing starts when it finds them wrong."""
    command = ["--check", *passed_on]
    if values["download"]:
        watch_worker(command, lambda line: print(f"[data] {line}", file=out, flush=True))
    else:
        told = partial(print, "[check]", file=out, flush=True)
        run_worker(command, seconds=_CHECK_SECONDS, what="worker --check", told=told)


def shard_flags(values: Mapping[str, Any]) -> list[str]:
    """Returns what every shard is told, the lead's own flags too: any of them may say which folder it has."""
    return typed({name: values[name] for name in (*LIMIT_FLAGS, *CHECKPOINT_FLAGS)})


def _metrics_flags(values: Mapping[str, Any]) -> list[str]:
    return ["--metrics-port", "0"] if values["metrics"] else []


def _faults(shards: int, workers: int, values: Mapping[str, Any]) -> dict[str, list[str]]:
    """Returns the flags of --fault for each process that one is for."""
    names = [*(f"ps {shard}" for shard in range(shards)), *(f"worker {index}" for index in range(workers))]
    if strangers := {who for who, _ in values["fault"] if " " in who} - {*names}:
        raise click.UsageError(f"--fault: there is no {min(strangers)}: there are {', '.join(names)}")
    return {name: faults_for(name, values["fault"], values["fault_seed"]) for name in names}


def _worker_flags(shards: int, workers: int, values: Mapping[str, Any]) -> list[str]:
    """Returns the workers' command line, without what differs between them; refuses flags that do not fit.

    Raises:
        click.UsageError: flags that exclude each other.
    """
    stated = {name: values[name] for name in (*_JOB_FLAGS, *_WORKER_FLAGS)}
    for name in ("overlap", "download"):
        stated[name] = values[name] or None  # There is no --no-overlap.
    if stated["model"] is None:
        _check_standing(stated)
    # In async whoever comes may join; their number is told where data may have to be shared out among them.
    own = any(":" in (values[name] or "") for name in ("model", "data"))
    if stated["mode"] == "sync" or (own and stated["model"] is not None):
        stated["workers"] = workers
    if stated["mode"] != "sync" and stated["backup"]:
        raise click.UsageError(f"--backup {stated['backup']}: only with --mode sync")
    job_flags.check_job_flags({**stated, "workers": workers})
    if stated["max_staleness"] == NO_BOUND:
        stated["max_staleness"] = "none"
    if stated["threads"] is None and values["hosts"] is None:
        processes = shards + workers + (stated["backup"] or 0)
        stated["threads"] = 1 if values["pin_cores"] else max(1, len(allowed_cores()) // processes)
    return typed(stated)


def _check_standing(stated: Mapping[str, Any]) -> None:
    """Refuses what says something of a job where there is none. Raises click.UsageError."""
    for name, value in stated.items():
        if value not in (None, ()) and name not in _STANDING_FLAGS:
            raise click.UsageError(f"{flags.flag_of(name)}: needs --model; `psctl submit` says it of each job")
    if stated["data"] is not None and stated["data_dir"] is not None:
        raise click.UsageError(f"--data {stated['data']} and --data-dir {stated['data_dir']} exclude each other")


def _pinned(own_flags: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Adds to each worker's own flags the one of this machine's cores that it is to keep to."""
    cores = allowed_cores()
    if not hasattr(os, "sched_setaffinity"):
        raise click.UsageError("--pin-cores: this system does not let a process choose its cores")
    workers = [name for name in own_flags if name.startswith("worker")]
    if len(workers) > len(cores):
        click.echo(f"psctl: warning: --pin-cores: {len(workers)} workers share {len(cores)} cores", err=True)
    pins = {name: ["--cores", str(cores[number % len(cores)])] for number, name in enumerate(workers)}
    return {name: [*flags, *pins.get(name, [])] for name, flags in own_flags.items()}


def _prepare(log_dir: Path | None) -> Path:
    """Makes the folder for logs and cluster file.

    Raises:
        UsageError: it cannot be written, or a cluster that runs has it.
    """
    folder = log_dir or cluster_file.RUNS / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / cluster_file.NAME).exists():
            before = cluster_file.ClusterFile.read(folder)
            if before.exit_code is None and cluster_file.is_running(before.launcher):
                raise UsageError(f"--log-dir {folder}: a running cluster has it (launcher pid {before.launcher})")
            (folder / cluster_file.NAME).unlink()
    except OSError as error:
        raise UsageError(f"--log-dir {folder}: {error.strerror}") from None
    return folder
