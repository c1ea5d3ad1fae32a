"""A command ends with one line for an error, and with its exit code."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import click
import pytest

from grpc_ps.client.shared import errors
from grpc_ps.client.shared.errors import JobFailed
from grpc_ps.client.shared.logs import ROOT, setup_logging
from grpc_ps.client.shared.main import run_main


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        (errors.UsageError("--ps 'a' (item 1): no port"), 2, "worker: error: --ps 'a' (item 1): no port\n"),
        (errors.DataError("train.gz:\n  truncated"), 3, "worker: error: train.gz: truncated\n"),
        (JobFailed("w is not finite", exit_code=5), 5, "worker: error: w is not finite\n"),
        (click.UsageError("--lr nan: no"), 2, "worker: error: --lr nan: no\n"),
        (click.exceptions.Exit(0), 0, ""),
        (KeyboardInterrupt(), 130, ""),
        (RuntimeError("boom"), 1, "worker: error: unexpected RuntimeError: boom\n"),
    ],
)
def test_command_ends_with_one_line(
    raised: BaseException,
    code: int,
    line: str,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As it is before a command has set its logging up, whatever other tests have done.
    monkeypatch.setattr(logging.getLogger(ROOT), "handlers", [])
    monkeypatch.setattr(logging.getLogger(ROOT), "propagate", True)

    def main() -> int:
        raise raised

    with pytest.raises(SystemExit) as ended:
        run_main(main, "worker")
    assert ended.value.code == code
    assert capsys.readouterr().err == line
    assert ("Traceback" in caplog.text) == (type(raised) is RuntimeError)


def test_the_traceback_of_an_unforeseen_error_goes_where_the_events_go(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> int:
        setup_logging("worker 3")
        raise RuntimeError("boom")

    with pytest.raises(SystemExit):
        run_main(main, "worker")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith(" worker 3 unexpected_error")
    assert lines[1].startswith("Traceback ")
    assert lines[-1] == "worker: error: unexpected RuntimeError: boom"


def test_command_ends_with_what_main_returns() -> None:
    for returned, code in ((None, 0), (0, 0), (4, 4)):
        with pytest.raises(SystemExit) as ended:
            run_main(lambda returned=returned: returned, "psctl")
        assert ended.value.code == code


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("shown", ["print('x', flush=True)", "print('x')"])
def test_an_output_that_is_full_is_one_line(shown: str) -> None:
    text = f"from grpc_ps.client.shared import main\nmain.run_main(lambda: {shown}, 'psctl')"
    with open("/dev/full", "w") as full:
        run = subprocess.run([sys.executable, "-c", text], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    says = "psctl: error: the output cannot be written: No space left on device\n"
    assert (run.returncode, run.stderr) == (1, says)


def test_an_output_whose_reader_leaves_in_the_middle_is_one_line() -> None:
    shows = "lambda: [print('x' * 99) for _ in range(9999)]"
    text = f"from grpc_ps.client.shared import main\nmain.run_main({shows}, 'psctl')"
    command = [sys.executable, "-c", text]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.readline()
        run.stdout.close()
        says = run.stderr.read()
    assert (run.returncode, says) == (1, "psctl: error: the output cannot be written: Broken pipe\n")


def test_program_name_is_the_default_prefix() -> None:
    text = "from grpc_ps.client.shared import errors, main\ndef f(): raise errors.Full('no place')\nmain.run_main(f)"
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (4, "-c: error: no place\n")
