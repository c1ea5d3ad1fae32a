"""The flags that have data files downloaded: one definition for `worker` and `psctl launch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import click

from grpc_ps.client.shared.flags import Decorated

DOWNLOAD_FLAGS = ("download", "download_url")


def download_options(command: Decorated) -> Decorated:
    """Adds --download and --download-url."""
    for option in (
        click.option(
            "--download-url",
            metavar="ADDRESS",
            help="Where --download finds the published files, by their names: http://... or https://...",
        ),
        click.option(
            "--download",
            is_flag=True,
            help="Fetch what is missing of MNIST or CIFAR-10 into --data-dir. Nothing is fetched unasked.",
        ),
    ):
        command = option(command)
    return command


def check_download(flags: Mapping[str, Any]) -> None:
    """Raises click.UsageError for flags that another one leaves without effect, and for what is no address."""
    url = flags["download_url"]
    if flags["download"] and flags["data_dir"] is None:
        raise click.UsageError("--download: needs --data-dir, the folder to download into")
    if url is not None and not flags["download"]:
        raise click.UsageError(f"--download-url {url}: only with --download")
    if url is not None and not _is_address(url):
        raise click.UsageError(f"--download-url {url}: must be an address as http://HOST/FOLDER")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
