"""The frame of every command: the one place where an error becomes a line on stderr and an exit code."""

from __future__ import annotations

import errno
import logging
import os
import select
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import click

from grpc_ps.client.shared.errors import PsError
from grpc_ps.client.shared.logs import ROOT
from grpc_ps.client.shared.process import end_of_beginning

# How a disk or a pipe refuses what is written to it.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EPIPE)


def run_main(main: Callable[[], int | None], name: str | None = None, *, at_once: bool = False) -> NoReturn:
    """Runs a command and ends the process.

    `main` returns the exit code; `name` is the command's, the program's by default. The traceback of an error that is
    not foreseen goes to the log. `at_once` ends without Python's own tidying up, which waits for threads: one that
    imports TensorFlow cannot be stopped for seconds.
    """
    prefix = name or Path(sys.argv[0]).stem
    try:
        end_of_beginning()
        code = main() or 0
        if sys.stdout is not None:
            sys.stdout.flush()
    except PsError as error:
        code = _say(prefix, str(error), error.exit_code)
    except click.exceptions.Exit as error:
        code = error.exit_code
    except click.ClickException as error:
        code = _say(prefix, error.format_message(), 2)
    except (KeyboardInterrupt, click.Abort):
        code = 130
    except Exception as error:
        code = _unforeseen(prefix, error)
    if at_once:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _unforeseen(prefix: str, error: Exception) -> int:
    if isinstance(error, OSError) and error.errno in _FULL and error.filename is None and not _writes():
        return _say(prefix, f"the output cannot be written: {error.strerror}", 1)
    logging.getLogger(ROOT).exception("unexpected_error")
    return _say(prefix, f"unexpected {type(error).__name__}: {error}", 1)


def _writes() -> bool:
    """Whether stdout takes anything. If not, what is left goes nowhere: Python would complain of it at the end."""
    try:
        print(end="", flush=True)
        if not _reader_has_gone():
            return True
    except OSError:
        pass
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return False


def _reader_has_gone() -> bool:
    """Whether stdout is a pipe that nobody reads: of a long text that broke off there may be nothing left to write."""
    pipes = select.poll()
    pipes.register(sys.stdout, 0)  # errors are told in any case
    return any(found & select.POLLERR for _, found in pipes.poll(0))


def _say(prefix: str, text: str, code: int) -> int:
    sys.stderr.write(f"{prefix}: error: {' '.join(text.split())}\n")
    return code
