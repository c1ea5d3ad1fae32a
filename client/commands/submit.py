"""psctl submit: a job for a cluster that stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from grpc_ps.client.cluster_file import runs
from grpc_ps.client.commands.follow import CtrlC, Follower
from grpc_ps.client.commands.programs import OUR_MODELS, run_worker
from grpc_ps.client.commands.target import connect, launch_folder, target_options
from grpc_ps.client.jobs import JobRequest
from grpc_ps.client.shared import flags, job_flags
from grpc_ps.client.shared.config_file import config_option
from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.flags import did_you_mean
from grpc_ps.client.shared.submission import OPTIONS, check_registered

_JOB_FLAGS = tuple(name for name in job_flags.JOB_FLAGS if name != "workers")
# Seconds for a worker to check flags: it imports no TensorFlow for that.
_CHECK_SECONDS = 60.0


@click.command("submit", cls=flags.Command)
@config_option("submit")
@target_options
@click.option("--model", required=True, metavar="NAME", help="A registered model's name. No code travels.")
@click.option("--model-arg", multiple=True, metavar="KEY=VALUE", help="An argument of the model. Repeatable.")
@click.option("--name", default="", metavar="TEXT", help="What to call the job.")
@click.option("--data-dir", metavar="DIR", help="Folder with the model's data files, on the workers' machines.")
@click.option("--data", metavar="NAME", help="Data that needs no files: digits or synthetic; or a part of the files.")
@click.option("--download", is_flag=True, help="Have the workers fetch what is missing in --data-dir.")
@click.option("--init-from", metavar="FILE", help="Initial values, a file on the workers' machines.")
@click.option(
    "--workers",
    type=flags.Whole(1, flags.MAX_U32),
    help="Standing workers that it gets; in sync gradients that a round averages (N). Default: all.",
)
@click.option("--logdir", metavar="DIR", help="Folder for TensorBoard's summaries, on the workers' machines.")
@job_flags.overlap_option()
@job_flags.job_options(*_JOB_FLAGS)
@click.option("--detach", is_flag=True, help="Print the job's number and return: psctl watch --job shows it.")
@click.option("--interval", type=flags.Real(above=0), default=1.0, show_default=True, help="Seconds between readings.")
@click.option("--no-progress", is_flag=True, help="On a terminal too: lines, no progress bar.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object at the end on stdout, lines on stderr.")
def submit(ps: str | None, log_dir: Path | None, **values: Any) -> None:
    """Has a cluster that stands train a model, and follows the job.

    The cluster is one of `psserver --keep-alive` and of workers without --model, or a `psctl launch` without --model.
    Jobs are carried out one after the other. Ends with the job's metrics and exit code; that of a cancelled job is 7.
    Ctrl-C ends the following, not the job.
    """
    job = _job(values)
    interrupt = CtrlC()
    with connect(ps, log_dir) as client:
        number = client.jobs.submit(job)
        if values["detach"]:
            click.echo(json.dumps({"number": number}) if values["as_json"] else f"job {number}")
            return
        click.echo(f"job {number}: submitted", err=values["as_json"])
        folder = launch_folder(ps, log_dir)
        follower = Follower(client, interrupt, values["interval"], may_return=lambda: runs(folder))
        follower.follow(number, as_json=values["as_json"], bars=not values["no_progress"])


def _job(values: dict[str, Any]) -> JobRequest:
    """Makes the job of the flags, after a look at them with a worker's eyes.

    Raises:
        click.UsageError, UsageError, JobFailed: a flag that does not fit; exit code 2.
    """
    check_registered(values["model"])
    if values["model"] not in OUR_MODELS:
        hint = did_you_mean(values["model"], OUR_MODELS)
        raise UsageError(f"--model {values['model']}: is no registered model{hint}; there are {', '.join(OUR_MODELS)}")
    stated = {name: values[name] for name in _JOB_FLAGS if values[name] is not None}
    if stated.get("mode") == "sync" and values["workers"] is not None:
        stated["workers"] = values["workers"]
    elif stated.get("backup"):
        raise click.UsageError(f"--backup {stated['backup']}: only with --mode sync and --workers")
    job_flags.check_job_flags({**stated, "overlap": values["overlap"]})
    options = {name: values[name] for name, valued in OPTIONS.items() if valued and values[name] is not None}
    options |= {name: "true" for name, valued in OPTIONS.items() if not valued and values[name]}
    job = JobRequest(
        model=values["model"],
        name=values["name"],
        arguments=values["model_arg"],
        options=options,
        stated=stated,
        members=values["workers"] or 0,
    )
    job.message()
    # First values and summaries lie where the workers are.
    looked_at = JobRequest(
        model=job.model,
        arguments=job.arguments,
        options={name: value for name, value in options.items() if name not in ("init_from", "logdir")},
        stated=stated,
    )
    run_worker(["--validate", *looked_at.flags()], seconds=_CHECK_SECONDS, what="worker --validate")
    return job
