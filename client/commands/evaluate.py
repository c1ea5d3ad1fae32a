"""psctl evaluate: the metrics of a running job's model, computed by a worker command that this one starts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from grpc_ps.client.client import PSClient
from grpc_ps.client.commands.idle import no_model
from grpc_ps.client.commands.programs import OUR_MODELS, worker_record
from grpc_ps.client.commands.tables import metrics_text
from grpc_ps.client.commands.target import connect, security_flags, target_options
from grpc_ps.client.shared.errors import JobFailed
from grpc_ps.client.shared.flags import Command, Real, typed


@click.command("evaluate", cls=Command)
@target_options
@click.option("--model", metavar="NAME", help="The job's model. May be left out where that is one of ours.")
@click.option("--model-arg", multiple=True, metavar="KEY=VALUE", help="An argument of the model. Repeatable.")
@click.option("--data-dir", metavar="DIR", help="Folder with the model's data files.")
@click.option("--data", metavar="NAME", help="Data that needs no files: digits or synthetic; or a part of the files.")
@click.option("--device", metavar="cpu:N|gpu:N", help="Where the model is evaluated.")
@click.option("--raw", is_flag=True, help="Of the parameters' values, where the job keeps moving averages of them.")
@click.option("--timeout", type=Real(above=0), default=600.0, show_default=True, help="Seconds it may take.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for programs.")
def evaluate(ps: str | None, log_dir: Path | None, timeout: float, raw: bool, as_json: bool, **flags: Any) -> None:
    """Evaluates a running job's model: its moving averages, if it keeps any (--moving-average).

    A worker command reads a snapshot of the newest step and computes the metrics on the test data, while training goes
    on. --model-arg and the data have to be as the job's workers have them.
    """
    with connect(ps, log_dir) as client:
        cluster = client.addresses
        if flags["model"] is None:
            flags["model"] = _model_of(client)
    typed_flags = typed({"ps": ",".join(cluster), **security_flags(), **flags, "raw": raw or None})
    record = worker_record(["evaluate", *typed_flags], seconds=timeout, what="worker evaluate")
    if as_json:
        click.echo(json.dumps(record))
    else:
        click.echo(_line(record))


def _model_of(client: PSClient) -> str:
    """Returns the name of the job's model.

    Raises:
        NotOpen: there is no job yet.
        click.UsageError: it is none of ours, so its name does not say where it is.
    """
    now = client.status()
    if not (model := now.model):
        raise no_model(now)
    if model not in OUR_MODELS:
        raise click.UsageError(f"--model: must be given, the job's model {model!r} is none of {', '.join(OUR_MODELS)}")
    return model


def _line(record: Mapping[str, Any]) -> str:
    try:
        metrics, examples = metrics_text(record["metrics"]), record["examples"]
        what = ", moving averages" if record.get("averages") else ""
        return f"global step {record['global_step']}: {metrics} ({examples:,} examples{what})"
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise JobFailed(f"worker evaluate printed no evaluation: {error!r}") from None
