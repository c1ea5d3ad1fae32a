"""The pages for people: their links lead somewhere, and the flags that they name are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from grpc_ps.client.commands.group import psctl
from grpc_ps.psserver.command import psserver
from grpc_ps.worker.command import worker
from grpc_ps.worker.subcommands import SUBCOMMANDS

ROOT = Path(__file__).parents[2]
PAGES = [path.name for path in sorted(ROOT.glob("*.md"))]
# What stands in examples of other programs' command lines.
FOREIGN = {"--build", "--exit-code-from", "--cpuset-cpus", "--strict"}


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def anchors_of(page: str) -> set[str]:
    """What GitHub calls the headings of a page."""
    headings = re.findall(r"^##* (.*)$", re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^a-z0-9_ -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links_of(page: str) -> list[tuple[str, str]]:
    """File and anchor of each link within the repository; both as they are written, either may be empty."""
    return re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", text_of(page))


def flags_of(command: click.Command) -> Iterator[str]:
    """All flags of a command, and of those below it."""
    for param in command.params:
        yield from (name for name in [*param.opts, *param.secondary_opts] if name.startswith("--"))
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        yield from flags_of(below)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page: str) -> None:
    for file, anchor in links_of(page):
        assert (ROOT / file).exists(), f"{page} links to {file}"
        assert not anchor or anchor in anchors_of(file or page), f"{page} links to {file}#{anchor}"


@pytest.mark.parametrize("page", PAGES)
def test_flags_are_there(page: str) -> None:
    commands = (psctl, psserver, worker, *SUBCOMMANDS.values())
    there = {"--help", "--version", *FOREIGN}.union(*map(flags_of, commands))
    # What has underscores is of a TensorFlow 1.x program.
    named = {flag for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", text_of(page)) if "_" not in flag}
    assert named <= there


def test_every_page_is_reached_from_the_readme() -> None:
    assert {"README.md", *(file for file, _ in links_of("README.md"))} >= set(PAGES) - {"CHANGELOG.md"}
