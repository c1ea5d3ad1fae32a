"""The `worker` command. Flags are checked before TensorFlow is imported or a socket opened."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

import click

from grpc_ps.client.shared.config_file import config_option
from grpc_ps.client.shared.cores import Cores, pin
from grpc_ps.client.shared.download_flags import check_download, download_options
from grpc_ps.client.shared.fault_flags import fault_options, fault_plan, made_calls
from grpc_ps.client.shared.faults import WORKER_POINTS
from grpc_ps.client.shared.flags import MAX_U32, Command, FilePath, Whole, connect_timeout_option, did_you_mean
from grpc_ps.client.shared.job_flags import check_job_flags, job_options, overlap_option, stated_flags
from grpc_ps.client.shared.limit_flags import grace_option
from grpc_ps.client.shared.security_flags import security_from_flags, security_options
from grpc_ps.client.shared.summary_flags import SUMMARY_EVERY, check_summaries, summary_options
from grpc_ps.client.shared.tf_config import tf_config_option, worker_flags
from grpc_ps.worker.config import Value, WorkerConfig
from grpc_ps.worker.flags import Run, check_data, data_options, model_options, parse_arguments
from grpc_ps.worker.interrupt import Interrupt
from grpc_ps.worker.subcommands import SUBCOMMANDS

# Seconds that a standing worker gets to end in beyond those of the process that it has started for a job.
STANDING_SLACK = 2.0

# Nothing here may import gRPC, and so no module of errors, when this one is loaded: see `worker.cli`.


def _check_index(index: int | None, stated: Mapping[str, Value]) -> None:
    """Refuses an index that the stated number of workers rules out; the lead checks again with the job's own."""
    limit = stated.get("workers")
    if index is not None and isinstance(limit, int):
        places = limit + int(stated.get("backup", 0))
        if index >= places:
            raise click.UsageError(
                f"--index {index}: must be 0 to {places - 1} with {places} worker{'s' * (places > 1)}"
            )


def build_config(flags: Mapping[str, Any]) -> WorkerConfig:
    """Checks the flags together and makes the settings of them.

    Raises:
        click.UsageError, UsageError: one line that names the flag and the value.
        DataError: the file of first values cannot be read.
    """
    from grpc_ps.client import parse_addresses
    from grpc_ps.client.shared.errors import UsageError
    from grpc_ps.models import MODELS
    from grpc_ps.worker.device import parse_device
    from grpc_ps.worker.initial import open_initial
    from grpc_ps.worker.loading import check_model
    from grpc_ps.worker.settings import NO_OVERLAP

    if flags["model"] is None:
        raise click.UsageError("Missing option '--model'.")
    flags = worker_flags(flags)
    check_job_flags(flags)
    stated = stated_flags(flags)
    if flags["overlap"]:
        # Rounds take no gradient of an older step: a job in rounds refuses this worker.
        stated["mode"] = "async"
    _check_index(flags["index"], stated)
    if flags["ps"] is None and not (flags["check"] or flags["validate"]):
        raise click.UsageError("--ps: must be given: HOST:PORT,..., the lead shard first")
    addresses = parse_addresses(flags["ps"]) if flags["ps"] is not None else ()
    arguments = parse_arguments(flags["model_arg"])
    check_model(flags["model"], arguments)
    if flags["overlap"] and flags["model"] in MODELS and MODELS[flags["model"]].tables:
        raise UsageError(NO_OVERLAP)
    check_data(flags["model"], flags["data"], flags["data_dir"])
    check_summaries(flags)
    check_download(flags)
    device = parse_device(flags["device"]) if flags["device"] is not None else None
    return WorkerConfig(
        addresses=addresses,
        model=flags["model"],
        arguments=arguments,
        stated=stated,
        data=flags["data"],
        data_dir=flags["data_dir"],
        download=flags["download"],
        download_url=flags["download_url"],
        index=flags["index"],
        evaluates=flags["task"] == "evaluator",
        run=flags["run"] or 0,
        initial=open_initial(flags["init_from"]) if flags["init_from"] is not None else None,
        device=device,
        connect_timeout=flags["connect_timeout"],
        overlap=flags["overlap"],
        logdir=flags["logdir"],
        summary_every=flags["summary_every"] or SUMMARY_EVERY,
        json=flags["json"],
        security=security_from_flags(flags),
        faults=fault_plan(flags),
    )


_EPILOG = (
    "Three other forms have flags of their own: `worker placement` prints a model's parameters, `worker evaluate` the"
    " metrics of what a cluster has learnt, and `worker export` writes a model with given weights."
)


@click.command(cls=Command, context_settings={"max_content_width": 120}, epilog=_EPILOG)
@config_option("worker")
@click.option("--ps", metavar="HOST:PORT,...", help="All shards in order, the lead shard first.")
@tf_config_option()
@partial(model_options, required=False)
@data_options
@download_options
@job_options()
@click.option("--index", type=Whole(0, MAX_U32), help="This worker's index; any that is free if not given.")
@click.option("--cores", type=Cores(), help="Cores of this machine to keep to: 0, 0,2 or 0-3.")
@click.option("--run", type=Run(), help="The job to join, by its run id: another one that runs there is refused.")
@click.option(
    "--init-from",
    metavar="FILE",
    type=FilePath(),
    help="First values, in place of the seed's: a .npz or .safetensors file with every parameter, or a Keras model's"
    " .keras.",
)
@overlap_option()
@summary_options()
@connect_timeout_option("servers that are not there yet")
@grace_option("Seconds to leave the job in after a signal.")
@security_options()
@fault_options(made_calls, WORKER_POINTS)
@click.option("--check", is_flag=True, help="Check flags, model and data files, and exit; needs no --ps.")
@click.option("--validate", is_flag=True, help="Check flags and the model's name alone, and exit.")
@click.option("--json", is_flag=True, help="Print a summary as one line of JSON on stdout, the rest on stderr.")
@click.pass_obj
def worker(interrupt: Interrupt | None, /, **flags: Any) -> int:
    """Trains a model: takes parameters from the shards, computes gradients, and sends them back.

    Without --model it stands by, and carries out one job after the other that `psctl submit` sends to the cluster
    (`psserver --keep-alive`); --data-dir, --data, --device, --threads and --index then hold where a job says nothing.
    """
    if flags["cores"] is not None:
        pin(flags["cores"])
    if flags["model"] is None and not (flags["check"] or flags["validate"]):
        return stand_by(flags, interrupt)
    config = build_config(flags)
    if flags["validate"]:
        return 0
    if flags["check"]:
        from grpc_ps.worker.check import check

        check(config)
        return 0

    from grpc_ps.client.shared.logs import setup_logging
    from grpc_ps.worker.device import start_tensorflow
    from grpc_ps.worker.loading import model_factory

    setup_logging("worker")
    start_tensorflow(threads=config.threads, device=config.device)
    factory = model_factory(config.model, config.arguments)
    if config.evaluates:
        from grpc_ps.worker.beside import evaluate_beside

        evaluate_beside(config, factory, _printer(config))
        return 0

    from grpc_ps.worker.run import Worker
    from grpc_ps.worker.settings import OtherThreads

    if interrupt is not None:
        interrupt.grace = flags["grace"]
    on_session = interrupt.watch if interrupt is not None else lambda session: None
    try:
        summary = Worker(config, factory, _printer(config), on_session=on_session).run()
    except OtherThreads as other:
        start_again(config, other.threads)
    if config.json:
        click.echo(summary)
    return 0


def stand_by(flags: Mapping[str, Any], interrupt: Interrupt | None) -> int:
    """Carries out what is submitted to the cluster, until that ends."""
    from grpc_ps.client import PSClient
    from grpc_ps.client.shared.logs import setup_logging
    from grpc_ps.worker.standing import StandingWorker, standing_config

    config = standing_config(flags)
    setup_logging("worker")
    with PSClient(config.addresses, security=config.security) as client:
        standing = StandingWorker(config, client.jobs)
        if interrupt is not None:
            interrupt.grace = flags["grace"] + STANDING_SLACK
            interrupt.watch(standing)
        return standing.run()


def start_again(
    config: WorkerConfig, threads: int, *, execute: Callable[[str, list[str]], NoReturn] = os.execv
) -> NoReturn:
    """Becomes the same program with the job's number of threads; the process and its output stay.

    It then states that number, so a job that has another one by then refuses it: this cannot go round in circles.

    Raises:
        UsageError: the user wants another number, or it was started with one before.
    """
    from grpc_ps.client.shared.errors import UsageError
    from grpc_ps.client.shared.logs import event

    if config.threads is not None:
        raise UsageError(f"--threads {config.threads}: the job has {threads}")
    event(logging.getLogger("grpc_ps.worker"), "starting_again", threads=threads, because="the job has that many")
    sys.stdout.flush()
    sys.stderr.flush()
    execute(sys.executable, [sys.executable, *sys.orig_argv[1:], "--threads", str(threads)])


def _printer(config: WorkerConfig) -> Callable[[str], None]:
    stream = sys.stderr if config.json else sys.stdout
    return lambda line: print(line, file=stream, flush=True)


def choose(arguments: list[str]) -> tuple[click.Command, str, list[str]]:
    """The command that is meant, its name for people, and what is left of its arguments.

    Raises:
        click.UsageError: the first word is no subcommand.
    """
    word = arguments[0] if arguments else "-"
    if word in SUBCOMMANDS:
        return SUBCOMMANDS[word], f"worker {word}", arguments[1:]
    if not word.startswith("-"):
        known = f"; there are {', '.join(SUBCOMMANDS)}, and flags alone"
        raise click.UsageError(f"unknown command {word}{did_you_mean(word, list(SUBCOMMANDS)) or known}")
    return worker, "worker", arguments


def run(interrupt: Interrupt) -> int:
    """Runs the command; returns its exit code."""
    from grpc_ps.client.shared.errors import Ending

    command, name, arguments = choose(sys.argv[1:])
    try:
        code: int = command.main(arguments, prog_name=name, standalone_mode=False, obj=interrupt)
    except Ending:
        if not interrupt.number:
            raise
        code = 128 + interrupt.number
    return code
