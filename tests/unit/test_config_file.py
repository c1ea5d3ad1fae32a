"""--config: what a file says is a flag that is not typed, checked as one, and told with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from grpc_ps.client.commands.launch import launch
from grpc_ps.client.commands.submit import submit
from grpc_ps.client.shared.config_file import COMMANDS, config_option, options_of
from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.flags import Command, Whole
from grpc_ps.client.shared.job_flags import job_options
from grpc_ps.psserver.command import config_from_flags, psserver
from grpc_ps.worker.command import build_config, worker

ROOT = Path(__file__).parents[2]


@click.command(cls=Command)
@config_option("worker")
@click.option("--ps")
@click.option("--model", required=True)
@click.option("--model-arg", multiple=True)
@click.option("--count", type=Whole(1, 9), default=3)
@click.option("--json", is_flag=True)
@job_options("learning_rate", "steps", "nesterov", "until", "optimizer")
def command(**flags: Any) -> dict[str, Any]:
    return flags


class Folder:
    """Runs a command with a file of that text."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, text: str, *args: str) -> dict[str, Any]:
        (self.path / "job.toml").write_text(text, encoding="utf-8")
        flags: dict[str, Any] = command.main(["--config", "job.toml", *args], "worker", standalone_mode=False)
        return {name: value for name, value in flags.items() if value not in (None, (), False)}

    def refusal(self, text: str, *args: str) -> str:
        with pytest.raises(click.UsageError) as caught:
            self.run(text, *args)
        assert caught.value.exit_code == 2
        return caught.value.format_message()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path)


def test_values_of_all_forms_are_what_would_be_typed(folder: Folder) -> None:
    text = """
        model = "mnist"          # also for the other commands
        ps = ["a:1", "b:2"]
        steps = 3_000
        learning-rate = 1e-2
        nesterov = false
        until = "accuracy=0.9"
        json = true
        model-arg = {hidden = 100, kind = "relu", rate = 0.5}
    """
    assert folder.run(text) == {
        "model": "mnist",
        "ps": "a:1,b:2",
        "steps": 3000,
        "learning_rate": 0.01,
        "until": "accuracy>=0.9",
        "json": True,
        "model_arg": ("hidden=100", "kind=relu", "rate=0.5"),
        "count": 3,
    }
    typed = ("--model=mnist", "--ps=a:1,b:2", "--steps=3000", "--lr=0.01", "--no-nesterov", "--until=accuracy=0.9")
    arguments = ("--json", "--model-arg=hidden=100", "--model-arg=kind=relu", "--model-arg=rate=0.5")
    assert folder.run(text) == folder.run("", *typed, *arguments)


def test_the_command_line_wins_over_the_own_table_over_the_top(folder: Folder) -> None:
    text = 'model = "top"\nsteps = 1\ncount = 1\nmodel-arg = ["a=1"]\n[worker]\nmodel = "own"\nsteps = 2\n'
    assert folder.run(text) == {"model": "own", "steps": 2, "count": 1, "model_arg": ("a=1",)}
    typed = ("--steps", "3", "--model-arg", "b=2")
    assert folder.run(text, *typed) == {"model": "own", "steps": 3, "count": 1, "model_arg": ("b=2",)}


def test_a_flag_that_is_given_many_times_has_many_forms(folder: Folder) -> None:
    for value in ('"a=1"', '["a=1"]', "{a = 1}"):
        assert folder.run(f'model = "m"\nmodel-arg = {value}')["model_arg"] == ("a=1",)
    assert folder.run('model = "m"\n[model-arg]\na = 1\nb = "x"')["model_arg"] == ("a=1", "b=x")


def test_other_commands_tables_and_flags_are_not_this_ones(folder: Folder) -> None:
    text = 'model = "m"\nport = 2222\nmax-restarts = 3\n[psserver]\nshard = 0\nnonsense = 1\n[launch]\nps = 2\n'
    assert folder.run(text) == {"model": "m", "count": 3}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stesp = 3", "job.toml:1: stesp: unknown key (did you mean steps?)"),
        ("batch_size = 3", "job.toml:1: batch_size: unknown key (did you mean batch-size?)"),
        ("\n\n[worker]\n'stesp' = 3", "job.toml:4: stesp: unknown key (did you mean steps?)"),
        # A flag of other commands is none of this one's own table's.
        ("[worker]\nport = 3", "job.toml:2: port: unknown key in [worker]: psserver has that flag; put it at the top,"),
        ("worker.port = 3", "job.toml:1: port: unknown key in [worker]: psserver has that flag"),
        ("[worker]\nmax-restarts = 3", "job.toml:2: max-restarts: unknown key in [worker]: launch has that flag"),
        ("[worker.'ports']\na = 3", "job.toml:1: ports: unknown key"),
        ("[workr]\nsteps = 3", "job.toml:1: workr: unknown table (did you mean worker?)"),
        ("worker = 3", "job.toml:1: worker: is a table of flags: [worker]"),
        ("config = 'x'", "job.toml:1: config: a file of flags names no other; give --config on the command line"),
        ("steps = 1\n'steps' = 2", "job.toml:2: steps: is given twice, first in line 1"),
        ("[worker]\na.b = 1\nc = 2\na.b = 3", "job.toml:4: worker.a.b: is given twice, first in line 2"),
        ("[worker]\n[psserver]\n[worker]", "job.toml:3: worker: is given twice, first in line 1"),
        ("steps = 0", "job.toml:1: --steps 0: must be at least 1"),
        ("# steps = 5\nsteps = 1.5", "job.toml:2: --steps 1.5: must be a whole number, at least 1"),
        ("steps = '1.5'", "job.toml:1: --steps 1.5: must be a whole number, at least 1"),
        ("steps = true", "job.toml:1: steps: takes no true or false"),
        ("steps = [1, 2]", "job.toml:1: --steps 1,2: must be a whole number, at least 1"),
        ("steps = {a = 1}", "job.toml:1: steps: takes no table"),
        ("steps = 2020-01-01", "job.toml:1: steps: takes no date or time"),
        ("steps.a = 1", "job.toml:1: steps: takes no table"),
        ("model-arg = [[1]]", "job.toml:1: model-arg: takes no list"),
        ("json = 1", "job.toml:1: json: must be true or false"),
        ("lr = nan", "job.toml:1: --learning-rate/--lr nan: must be a finite number above 0"),
        (
            "lr = 1\nlearning-rate = 2",
            "job.toml:2: learning-rate: the same flag as learning-rate and lr; give one of them",
        ),
        ("optimizer = 'adma'", "job.toml:1: --optimizer adma: must be one of sgd, momentum, adagrad, adam, adamw,"),
        ("until = 'x'", "job.toml:1: --until x:"),
        ("steps 3", "job.toml:1: Expected '=' after a key in a key/value pair (column 7)"),
        ("\nmodel = mnist", "job.toml:2: Invalid value (column 9); text stands in quotes"),
        ("model-arg = [", "job.toml: Invalid value (at end of document)"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(folder: Folder, text: str, says: str) -> None:
    assert folder.refusal(text, "--model", "m").startswith(says)


@pytest.mark.parametrize(
    ("text", "typed", "says"),
    [
        ("\nmodel = 'mnits'", (), "job.toml:2: --model: unknown model 'mnits', did you mean 'mnist'?"),
        (
            "model = 'mnist'\n[worker]\nmodel-arg = {layers = 1, hiden = 2}",
            (),
            "job.toml:3: --model-arg hiden=2: mnist has no such argument (did you mean hidden?)",
        ),
        ("model = 'mnist'\n[worker.model-arg]\nlayers = 0", (), "job.toml:2: --model-arg layers=0: must be a whole"),
        ("model = 'mnist'\nps = 2", (), "job.toml:2: --ps: item 1 of 1 '2' has no port; give HOST:PORT"),
        ("model = 'mnist'\nps = 2\n[worker]\nps = ['b']", (), "job.toml:4: --ps: item 1 of 1 'b' has no port"),
        ("model = 'mnist'\noverlap = true\nmode = 'sync'", (), "job.toml:2: --overlap: only with --mode async"),
        # What is typed is not the file's; of two that exclude each other the file's line is told.
        ("model = 'mnist'\noverlap = true\nmode = 'async'", ("--mode", "sync"), "job.toml:2: --overlap: only with"),
        ("model = 'mnist'\nmode = 'sync'", ("--overlap",), "job.toml:2: --overlap: only with --mode async"),
        ("model = 'mnist'", ("--mode", "sync", "--overlap"), "--overlap: only with --mode async"),
        ("model = 'mnits'", ("--model", "lineer"), "--model: unknown model 'lineer'"),
    ],
)
def test_what_is_found_wrong_later_is_told_with_its_place(
    folder: Folder, text: str, typed: tuple[str, ...], says: str
) -> None:
    (folder.path / "job.toml").write_text(text, encoding="utf-8")
    with pytest.raises((click.UsageError, UsageError)) as caught:
        worker.main(["--config", "job.toml", "--validate", *typed], "worker", standalone_mode=False)
    error = caught.value
    assert (error.format_message() if isinstance(error, click.UsageError) else str(error)).startswith(says)


def test_files_that_cannot_be_read(folder: Folder) -> None:
    with pytest.raises(click.UsageError, match=r"^--config none.toml: No such file or directory$"):
        command.main(["--config", "none.toml"], "worker", standalone_mode=False)
    (folder.path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(click.UsageError, match=r"^--config binary: is no text in UTF-8$"):
        command.main(["--config", "binary"], "worker", standalone_mode=False)


def test_what_is_required_may_stand_in_the_file_or_is_missed(folder: Folder) -> None:
    assert "--model" in folder.refusal("steps = 3")


JOB = """
steps = 50
mode = "sync"
workers = 2
checkpoint-dir = "saved"
data-dir = "data"
tls-ca = "ca.pem"

[psserver]
shard = 1
ps = "127.0.0.1:7001,127.0.0.1:7002"

[worker]
model = "mnist"
ps = "127.0.0.1:7001,127.0.0.1:7002"

[launch]
model = "mnist"
ps = 2
"""


def test_one_file_serves_all_commands_and_paths_are_those_of_a_command_line(folder: Folder) -> None:
    """Relative to the folder that a command is started in, wherever the file is."""
    (folder.path / "jobs").mkdir()
    path = folder.path / "jobs" / "job.toml"
    path.write_text(JOB.replace('tls-ca = "ca.pem"\n', ""), encoding="utf-8")
    shard = config_from_flags(psserver.make_context("psserver", ["--config", "jobs/job.toml"]).params)
    assert (shard.shard, shard.shards, shard.port, shard.lead) == (1, 2, 7002, "127.0.0.1:7001")
    assert shard.checkpoints is not None
    assert shard.checkpoints.directory == Path("saved")
    one = build_config(worker.make_context("worker", ["--config", "jobs/job.toml"]).params)
    assert (one.addresses, one.model) == (("127.0.0.1:7001", "127.0.0.1:7002"), "mnist")
    assert (one.data_dir, dict(one.stated)) == (Path("data"), {"steps": 50, "mode": "sync", "workers": 2})
    flags = launch.make_context("launch", ["--config", "jobs/job.toml", "--steps", "60"]).params
    assert (flags["shards"], flags["workers"], flags["model"], flags["steps"]) == (2, 2, "mnist", 60)


def test_a_file_comes_before_tf_config(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    other = {"cluster": {"ps": ["c:3"], "worker": ["d:4"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(other))
    (folder.path / "job.toml").write_text('[worker]\nps = "a:1"\nmodel = "linear"\n', encoding="utf-8")
    assert build_config(worker.make_context("worker", ["--config", "job.toml"]).params).addresses == ("a:1",)
    assert build_config(worker.make_context("worker", ["--model", "linear"]).params).addresses == ("c:3",)


@pytest.mark.parametrize(
    ("name", "one"), [("psserver", psserver), ("worker", worker), ("launch", launch), ("submit", submit)]
)
def test_every_command_with_a_table_takes_the_flag(name: str, one: click.Command) -> None:
    assert name in COMMANDS
    assert "config" in {param.name for param in one.params}
    assert "config" not in options_of(one)


@pytest.mark.parametrize("one", [psserver, worker, launch, submit], ids=lambda one: str(one.name))
def test_the_file_of_the_reference_is_one(one: click.Command, tmp_path: Path) -> None:
    blocks = (ROOT / "REFERENCE.md").read_text(encoding="utf-8").split("```toml\n")
    assert len(blocks) == 2
    (tmp_path / "job.toml").write_text(blocks[1].split("```")[0], encoding="utf-8")
    typed = ["--config", str(tmp_path / "job.toml"), *(["--shard=0"] if one is psserver else [])]
    flags = one.make_context(str(one.name), typed)
    assert (flags.params["steps"], flags.params["learning_rate"]) == (3000, 0.01)
