"""Flags: what is not known or out of range is an error that says what to type instead."""

from __future__ import annotations

import re
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_ps.client.shared.flags import Command, Group, Whole
from grpc_ps.client.shared.job_flags import JOB_FLAGS, check_job_flags, flag_of, job_options, stated_flags
from grpc_ps.protos import job_pb2
from grpc_ps.psserver.lead.schedule import schedule
from grpc_ps.psserver.lead.until import parse_until


@click.command(cls=Command)
@click.option("--shard", type=Whole(0, 9), required=True)
@click.option("--port", type=Whole(0, 65535))
@job_options()
def server(**flags: Any) -> job_pb2.Settings:
    check_job_flags(flags)
    return job_pb2.Settings(**stated_flags(flags))


@click.group(cls=Group)
def tool() -> None:
    """A group."""


@tool.command()
@job_options("mode", "steps")
def launch(**flags: Any) -> dict[str, Any]:
    return flags


def run(command: click.Command, *args: str) -> Any:
    return command.main(list(args), "prog", standalone_mode=False)


def refusal(command: click.Command, *args: str) -> str:
    with pytest.raises(click.UsageError) as caught:
        run(command, *args)
    return caught.value.format_message()


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


SCHEDULES = [
    "constant", "exponential:100:0.5", "staircase:1:2", "cosine:10", "cosine:10:0", "cosine:10:1", "cosine:10:1e-2",
    "piecewise:10=0.1", "piecewise:1=0.1,2=1e-3,30=5", f"cosine:{(1 << 63) - 1}", "exponential:5:+.5",
]  # fmt: skip
NO_SCHEDULES = [
    "", "const", "constant:1", "constant:", "exponential", "exponential:100", "exponential:0:0.5", "exponential:-1:0.5",
    "exponential:1.5:0.5", "exponential:10:0", "exponential:10:-1", "exponential:10:nan", "exponential:10:inf",
    "exponential:10:x", "exponential:10:0.5:1", "staircase:10:", "cosine", "cosine:", "cosine:0", "cosine:10:2",
    "cosine:10:-0.1", "cosine:10:1:1", f"cosine:{1 << 63}", "piecewise", "piecewise:", "piecewise:10", "piecewise:10=",
    "piecewise:=1", "piecewise:10=0", "piecewise:20=0.1,10=0.1", "piecewise:10=0.1,10=0.2", "piecewise:10=0.1,",
    "piecewise:1=2=3", "linear:3", " constant", "Constant", "cosine:\u0661", "cosine:+1", "cosine:1_0",
    "cosine:" + "9" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("typed", SCHEDULES)
def test_schedules_that_the_lead_takes_are_taken(typed: str) -> None:
    assert schedule(typed, 0.1)(0) > 0
    assert run(server, "--shard=1", "--schedule", typed) == job_pb2.Settings(schedule=typed)


@pytest.mark.parametrize("typed", NO_SCHEDULES)
def test_b08_schedules_that_the_lead_refuses_are_refused(typed: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        schedule(typed, 0.1)
    assert refusal(server, "--shard=1", "--schedule", typed).startswith(f"--schedule {typed}: must be constant, ")


PIECES = (
    "constant",
    "exponential",
    "staircase",
    "cosine",
    "piecewise",
    ":",
    "=",
    ",",
    "0",
    "1",
    "20",
    "0.5",
    "-",
    "e",
    "nan",
)


@given(st.lists(st.sampled_from(PIECES), max_size=9).map("".join))
def test_a_flag_and_the_lead_take_the_same_schedules(typed: str) -> None:
    try:
        schedule(typed, 0.1)
        taken = True
    except ValueError:
        taken = False
    try:
        run(server, "--shard=1", f"--schedule={typed}")
    except click.UsageError:
        assert not taken
    else:
        assert taken


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


@pytest.mark.parametrize(
    ("typed", "push", "pull"),
    [
        ("--wire-dtype bfloat16", "bfloat16", "bfloat16"),
        ("--push-dtype float16", "float16", ""),
        ("--pull-dtype bfloat16", "", "bfloat16"),
        ("--wire-dtype bfloat16 --pull-dtype float32", "bfloat16", "float32"),
        ("--pull-dtype float32 --wire-dtype bfloat16", "bfloat16", "float32"),
    ],
)
def test_one_flag_says_both_types_and_either_may_be_another(typed: str, push: str, pull: str) -> None:
    stated = run(server, "--shard=1", *typed.split())
    assert (stated.push_dtype, stated.pull_dtype) == (push, pull)
    assert (stated.HasField("push_dtype"), stated.HasField("pull_dtype")) == (bool(push), bool(pull))


@pytest.mark.parametrize("flag", ["--wire-dtype", "--push-dtype", "--pull-dtype"])
def test_a_type_that_does_not_travel_is_refused(flag: str) -> None:
    said = refusal(server, "--shard=1", flag, "bfloat")
    assert said == f"{flag} bfloat: must be one of float32, bfloat16, float16 (did you mean bfloat16?)"


@pytest.mark.parametrize(
    ("typed", "setting"),
    [
        ("topk:.01", "topk:0.01"),
        ("topk:0.010", "topk:0.01"),
        ("topk:0.4", "topk:0.4"),
        ("", ""),
    ],
)
def test_a_ratio_is_written_in_one_way(typed: str, setting: str) -> None:
    stated = run(server, "--shard=1", "--compress", typed)
    assert (stated.compress, stated.HasField("compress")) == (setting, True)


@pytest.mark.parametrize("typed", ["topk:0", "topk:0.5", "topk", "0.01", "topk:-1", "topk:1e-3"])
def test_another_compression_is_refused(typed: str) -> None:
    said = refusal(server, "--shard=1", "--compress", typed)
    rule = "a decimal above 0 and below 1/2 with push_dtype float32: else pushes are not shorter"
    assert said == f"--compress {typed}: must be topk:RATIO, {rule}"


@pytest.mark.parametrize("flag", ["--push-dtype", "--wire-dtype"])
@pytest.mark.parametrize("first", [True, False])
def test_the_limit_of_a_ratio_is_that_of_the_type_in_whatever_order(flag: str, first: bool) -> None:
    typed = [[flag, "bfloat16"], ["--compress", "topk:0.4"]]
    said = refusal(server, "--shard=1", *(word for pair in (typed if first else typed[::-1]) for word in pair))
    rule = "a decimal above 0 and below 1/3 with push_dtype bfloat16: else pushes are not shorter"
    assert said == f"--compress topk:0.4: must be topk:RATIO, {rule}"


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
