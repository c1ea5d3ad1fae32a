"""Flags: what is not known or out of range is an error that says what to type instead."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
from typed_flags import refusal, run, server, tool

from grpc_ps.client.shared.flags import Command, FilePath, Whole, did_you_mean, flag_of
from grpc_ps.client.shared.job_flags import JOB_FLAGS
from grpc_ps.protos import job_pb2
from grpc_ps.psserver.lead.until import parse_until


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--shard", "-1"], "--shard -1: must be 0 to 9"),
        (["--shard", "10"], "--shard 10: must be 0 to 9"),
        (["--shard", "1.5"], "--shard 1.5: must be a whole number, 0 to 9"),
        (["--workers", "0"], "--workers 0: must be at least 1"),
        (["--backup", "-1"], "--backup -1: must be 0 or more"),
        (["--steps", "-5"], "--steps -5: must be at least 1"),
        (["--batch-size", "0"], "--batch-size 0: must be at least 1"),
        (["--seed", "x"], "--seed x: must be a whole number, at least 0"),
        (["--lr", "nan"], "--learning-rate/--lr nan: must be a finite number above 0"),
        (["--lr", "inf"], "--learning-rate/--lr inf: must be a finite number above 0"),
        (["--learning-rate", "0"], "--learning-rate/--lr 0: must be a finite number above 0"),
        (["--lr=-1e-3"], "--learning-rate/--lr -1e-3: must be a finite number above 0"),
        (["--momentum", "1"], "--momentum 1: must be a finite number from 0 and below 1"),
        (["--mode", "snyc"], "--mode snyc: must be one of async, sync (did you mean sync?)"),
        (
            ["--optimizer", "adma"],
            "--optimizer adma: must be one of sgd, momentum, adagrad, adam, adamw, rmsprop, ftrl (did you mean adam?)",
        ),
    ],
)
def test_b08_values_out_of_range_are_refused(args: list[str], message: str) -> None:
    assert refusal(server, *args, "--shard", "1") == message if "--shard" not in args else refusal(server, *args)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-shard=1", "--port", "1"], "unknown option -shard=1 (did you mean --shard?)"),
        (["--port", "1", "-shard", "1"], "unknown option -shard (did you mean --shard?)"),
        (["--shrad", "1", "--port", "1"], "unknown option --shrad (did you mean --shard?)"),
        (["--shard", "1", "--batch", "5"], "unknown option --batch (did you mean --batch-size?)"),
        (["--shard", "1", "--opt", "sgd"], "unknown option --opt (did you mean --optimizer?)"),
        (["--shard", "1", "--max-stalenes", "2"], "unknown option --max-stalenes (did you mean --max-staleness?)"),
        (["--shard", "1", "--unitl", "loss=1"], "unknown option --unitl (did you mean --until?)"),
        (["--shard", "1", "--scheduel", "x"], "unknown option --scheduel (did you mean --schedule?)"),
        (["--shard", "1", "--warm-up", "2"], "unknown option --warm-up (did you mean --warmup-steps?)"),
        (["--shard", "1", "--clip", "2"], "unknown option --clip (did you mean --clip-value?)"),
        (["--shard", "1", "-thread=2"], "unknown option -thread=2 (did you mean --threads?)"),
        (["--shard", "1", "--qqq"], "unknown option --qqq"),
    ],
)
def test_b09_unknown_options_are_refused_with_a_suggestion(args: list[str], message: str) -> None:
    assert refusal(server, *args) == message


def test_b09_option_that_is_required_has_no_default() -> None:
    assert "--shard" in refusal(server, "--port", "1")


def test_unknown_command_is_refused_with_a_suggestion() -> None:
    assert refusal(tool, "lunch") == "unknown command lunch (did you mean launch?)"
    assert refusal(tool, "launch", "--step", "3") == "unknown option --step (did you mean --steps?)"
    assert refusal(tool, "foo") == "unknown command foo; there are launch"


@click.command(cls=Command)
@click.option("--ps", metavar="HOST:PORT,...")
@click.option("--model")
def start(**flags: Any) -> None:
    """Starts a model."""


def test_words_that_no_flag_takes_and_lists_in_two_pieces_are_refused() -> None:
    assert refusal(tell, "1", "x") == "unexpected argument x"
    assert refusal(start, "mnist") == "unexpected argument mnist (did you mean --model mnist?)"
    assert refusal(start, "--ps", "a:1", "--ps=b:1") == "--ps: given twice; it takes one list: --ps A,B"
    # What is no list is as people write it behind an alias: the last one counts.
    assert refusal(server, "--port", "1", "--port", "0", "--shard", "x").startswith("--shard x: must be")
    # A shell that completes a line is told no errors.
    assert start.make_context("start", ["x", "--ps", "a", "--ps", "b"], resilient_parsing=True).args == ["x"]


def test_a_flag_before_its_command_is_told_where_it_belongs() -> None:
    assert refusal(tool, "--steps", "3", "launch") == "--steps: comes after the command: prog COMMAND --steps ..."
    assert refusal(tool, "--nosuch", "launch") == "unknown option --nosuch"


@pytest.mark.parametrize(
    ("typed", "known", "hint"),
    [
        ("--ps", ["--json", "--help"], ""),
        ("--jsno", ["--json", "--help"], " (did you mean --json?)"),
        ("", ["cifar10", "mnist"], ""),
        ("MNIST", ["cifar10", "mnist"], " (did you mean mnist?)"),
        ("scale", ["Hollow", "Scale"], " (did you mean Scale?)"),
    ],
)
def test_only_what_is_like_it_is_proposed(typed: str, known: list[str], hint: str) -> None:
    assert did_you_mean(typed, known) == hint


@click.command(cls=Command)
@click.argument("number", metavar="NUMBER", type=Whole(1, 9))
@click.option("--folder", type=FilePath(file_okay=False))
@click.option("--file", type=FilePath(dir_okay=False))
def tell(**flags: Any) -> None:
    """Tells job NUMBER."""


def test_arguments_and_paths_are_refused_as_flags_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.touch()
    assert refusal(tell, "x") == "NUMBER x: must be a whole number, 1 to 9"
    assert refusal(tell, "1", "--folder", str(file)) == f"--folder {file}: is a file, expected a folder"
    assert refusal(tell, "1", "--file", str(tmp_path)) == f"--file {tmp_path}: is a folder, expected a file"
    run(tell, "--help")
    first, *lines = capsys.readouterr().out.splitlines()
    assert (first, [line for line in lines if "NUMBER" in line]) == (
        "Usage: prog [OPTIONS] NUMBER",
        ["  Tells job NUMBER."],
    )


def test_settings_have_only_what_is_stated() -> None:
    assert run(server, "--shard", "1") == job_pb2.Settings()
    stated = run(server, "--shard=1", "--mode=sync", "--workers=3", "--backup=0", "--lr=0.5", "--no-nesterov")
    assert stated == job_pb2.Settings(mode="sync", workers=3, backup=0, learning_rate=0.5, nesterov=False)
    assert stated.HasField("backup")
    assert not stated.HasField("seed")


def test_every_flag_is_a_setting() -> None:
    assert set(JOB_FLAGS) <= set(job_pb2.Settings.DESCRIPTOR.fields_by_name)


def test_some_flags_can_be_chosen() -> None:
    assert run(tool, "launch", "--steps", "7") == {"mode": None, "steps": 7}


@pytest.mark.parametrize(
    ("flags", "rule"),
    [
        (("workers", "min_workers", "max_workers", "steps", "epochs", "eval_every", "batch_size"), "at least 1"),
        (("backup", "warmup_steps", "seed"), "0 or more|at least 0"),
        (("threads",), "1 to 1024"),
    ],
)
@pytest.mark.parametrize("value", ["-1", "1.5", "x", "", "nan", "1e3", str(1 << 64)])
def test_b08_whole_numbers(flags: tuple[str, ...], rule: str, value: str) -> None:
    for name in flags:
        said = refusal(server, "--shard=1", flag_of(name), value)
        assert re.fullmatch(rf"{flag_of(name)} {re.escape(value)}: must be (a whole number, )?({rule})", said)


@pytest.mark.parametrize(
    ("flags", "rule", "edges"),
    [
        (("learning_rate", "epsilon"), "above 0", ("0", "-1")),
        (("momentum", "beta_1", "beta_2", "rho"), "from 0 and below 1", ("-0.1", "1", "2")),
        (
            ("initial_accumulator", "l1", "l2", "weight_decay", "clip_value", "clip_norm", "global_clip_norm"),
            "from 0",
            ("-1e-9",),
        ),
    ],
)
def test_b08_numbers(flags: tuple[str, ...], rule: str, edges: tuple[str, ...]) -> None:
    for name in flags:
        for value in ("nan", "inf", "-inf", "x", "", *edges):
            said = refusal(server, "--shard=1", flag_of(name), value)
            assert said.startswith(flag_of(name))
            assert said.endswith(f" {value}: must be a finite number {rule}")


def test_the_edges_of_ranges_are_taken() -> None:
    typed = "--momentum=0 --beta-1=0 --l1=0 --weight-decay=0 --clip-norm=0 --backup=0 --warmup-steps=0 --threads=1024"
    stated = run(server, "--shard=1", *typed.split(), "--steps", str((1 << 64) - 1), "--workers", str((1 << 32) - 1))
    assert (stated.steps, stated.workers, stated.threads) == ((1 << 64) - 1, (1 << 32) - 1, 1024)
    names = ("momentum", "beta_1", "l1", "weight_decay", "clip_norm", "backup", "warmup_steps")
    assert all(stated.HasField(name) and getattr(stated, name) == 0 for name in names)


@pytest.mark.parametrize(("typed", "setting"), [("0", 0), ("7", 7), ("none", -1)])
def test_a_bound_on_staleness_may_be_none(typed: str, setting: int) -> None:
    assert run(server, "--shard=1", "--max-staleness", typed) == job_pb2.Settings(max_staleness=setting)


@pytest.mark.parametrize("typed", ["-1", "-2", "1.5", "None", "inf", "", str(1 << 31)])
def test_b08_a_bound_on_staleness(typed: str) -> None:
    said = refusal(server, "--shard=1", "--max-staleness", typed)
    assert said == f"--max-staleness {typed}: must be a whole number, 0 to 2147483647, or none"


@pytest.mark.parametrize(
    ("typed", "setting"),
    [
        ("accuracy=0.97", "accuracy>=0.97"),
        ("accuracy >= 0.97", "accuracy>=0.97"),
        ("loss=0.1", "loss<=0.1"),
        ("top_1_error=5e-2", "top_1_error<=0.05"),
        ("valLoss=1", "valLoss<=1.0"),
        *((f"{name}=0.01", f"{name}<=0.01") for name in ("mse", "mae", "RMSE")),
        *((f"{name}=0.9", f"{name}>=0.9") for name in ("precision", "recall", "AUC", "f1")),
        ("loss>=3", "loss>=3.0"),
        ("gap<=-1", "gap<=-1.0"),
    ],
)
def test_until_says_in_which_direction(typed: str, setting: str) -> None:
    assert run(server, "--shard=1", "--until", typed) == job_pb2.Settings(until=setting)
    assert run(server, "--shard=1", "--until", setting) == job_pb2.Settings(until=setting)
    assert parse_until(setting) is not None, "the lead takes it"


@pytest.mark.parametrize("typed", ["", "accuracy", "=0.9", "accuracy=", "accuracy=nan", "accuracy=inf", "a b=1", "a>1"])
def test_b08_until(typed: str) -> None:
    rule = "must be METRIC>=NUMBER, METRIC<=NUMBER or METRIC=NUMBER"
    assert refusal(server, "--shard=1", "--until", typed) == f"--until {typed}: {rule}"


@pytest.mark.parametrize("metric", ["perplexity", "gap", "val_accuracy", "mape"])
def test_until_guesses_no_direction(metric: str) -> None:
    rule = f"whether {metric} is to rise or to fall is not known; write {metric}<=1e-2 or {metric}>=1e-2"
    assert refusal(server, "--shard=1", "--until", f"{metric} = 1e-2") == f"--until {metric} = 1e-2: {rule}"


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("--workers=2 --min-workers=3", "--min-workers 3: must be 1 to 2, the value of --workers"),
        ("--mode=sync --max-staleness=2", "--max-staleness 2: only with --mode async; in sync no gradient is stale"),
        ("--clip-value=1 --clip-norm=1", "--clip-value and --clip-norm: at most one kind of clipping can be set"),
        (
            "--clip-norm=1 --global-clip-norm=2",
            "--clip-norm and --global-clip-norm: at most one kind of clipping can be set",
        ),
        ("--optimizer=sgd --momentum=0.9", "--momentum: sgd has none; only with --optimizer momentum or rmsprop"),
        ("--optimizer=adam --nesterov", "--nesterov: adam has none; only with --optimizer momentum"),
        ("--optimizer=ftrl --rho=0.9", "--rho: ftrl has none; only with --optimizer rmsprop"),
        ("--optimizer=adagrad --l2=1", "--l2: adagrad has none; only with --optimizer ftrl"),
        ("--optimizer=ftrl --beta-1=0.9", "--beta-1: ftrl has none; only with --optimizer adam or adamw"),
    ],
)
def test_flags_that_exclude_each_other_are_refused(typed: str, message: str) -> None:
    assert refusal(server, "--shard=1", *typed.split()) == message


@pytest.mark.parametrize(
    "typed",
    [
        "--mode=sync --max-staleness=none",
        "--mode=async --max-staleness=0",
        "--max-staleness=2 --workers=3 --backup=1",
        "--min-workers=2 --workers=2",
        "--clip-value=0 --clip-norm=1",
        "--momentum=0.5",
        "--optimizer=rmsprop --momentum=0.5 --rho=0.8 --epsilon=1e-3 --initial-accumulator=0",
        "--optimizer=sgd --weight-decay=0.1 --warmup-steps=3",
    ],
)
def test_flags_that_go_together_are_taken(typed: str) -> None:
    assert run(server, "--shard=1", *typed.split()) != job_pb2.Settings()


def test_help_shows_choices_and_topics() -> None:
    with click.Context(server) as context:
        shown = server.get_help(context)
    assert "--mode {async,sync}" in shown
    assert "--max-staleness INTEGER|none" in shown
    assert "--until METRIC>=NUMBER|METRIC<=NUMBER" in shown
    topics = [line for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert topics[0] == "Options:"
    assert topics[1:] == [
        "Settings of the job: workers:",
        "Settings of the job: batches, evaluation and end:",
        "Settings of the job: optimizer:",
        "Settings of the job: learning rate, decay, clipping, averages:",
        "Settings of the job: what travels:",
    ]
    assert "--compress topk:RATIO" in shown
    for name in JOB_FLAGS:
        assert f"  {flag_of(name)}" in shown


@pytest.mark.parametrize("flag", ["--steps", "--batch-size", "--optimizer", "--learning-rate"])
def test_help_says_where_a_default_comes_from(flag: str) -> None:
    (param,) = [each for each in server.params if flag in each.opts]
    assert isinstance(param, click.Option)
    assert "Default: the model's" in str(param.help)
