"""The pure parts of the benchmarks: windows, pairs, the judging of targets, the table, the plot, the plan."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import resnet50
from bench import earlier, judged
from cifar_loss import compared, rounds
from figures import Comparison, Spread, in_turn
from plan import PLOTTED, RUNS
from plot import Curve, Point, curves, svg
from table import table
from targets import TARGETS, Target
from training import Case
from window import Window

BY_KEY = {target.key: target for target in TARGETS}
ABOUT = {
    "begun": "2026-01-02 03:04:05 UTC",
    "quick": False,
    "machine": {"cores": 2, "cpu": "a model", "memory_gib": 8.0, "system": "Linux"},
    "versions": {"python": "3.11.0", "numpy": "2.0.0", "commit": "abc"},
}


def record(ours: Sequence[float], other: Sequence[float], name: str = "case") -> dict[str, Any]:
    return Comparison(name=name, unit="ms", ours=ours, other=other).record()


def test_a_spread_has_median_extremes_and_the_90th_percentile() -> None:
    assert Spread.of([5, 1, 4, 2, 3]) == Spread(median=3, min=1, p90=5, max=5)
    assert Spread.of([float(value) for value in range(1, 101)]) == Spread(median=50.5, min=1, p90=90, max=100)


def test_ratios_are_of_each_pair_and_not_of_the_medians() -> None:
    compared = Comparison(name="case", unit="ms", ours=[1, 4, 9], other=[2, 2, 3])
    assert compared.ratios == [0.5, 2, 3]
    assert compared.record()["ratio"] == {"median": 2, "min": 0.5, "p90": 3, "max": 3}


def test_who_goes_first_alternates() -> None:
    called: list[str] = []
    values: Iterator[float] = iter(range(10))

    def side(name: str) -> float:
        called.append(name)
        return next(values)

    assert in_turn([lambda: side("a"), lambda: side("b")], 3) == [[0, 3, 4], [1, 2, 5]]
    assert called == ["a", "b", "b", "a", "a", "b"]


def test_a_window_opens_when_all_have_warmed_up_and_closes_after_its_seconds() -> None:
    window = Window(2, warm_up=2.0, seconds=4.0)
    assert window.add(0.0, 0, 0) is None
    assert window.add(5.0, 1, 900) is None
    assert window.add(6.0, 0, 950) is None  # The second one has trained for a second only.
    assert window.add(7.0, 1, 1000) is None  # Opens.
    assert window.add(10.0, 0, 1290) is None
    assert window.add(12.0, 1, 1500) == 100.0


@pytest.mark.parametrize(
    ("relation", "bound", "good", "bad"),
    [("at least", 2.0, 2.0, 1.99), ("at most", 1.3, 1.3, 1.31), ("within", 0.25, 0.75, 1.26)],
)
def test_relations(relation: str, bound: float, good: float, bad: float) -> None:
    target = Target(key="k", work="w", beside="b", relation=relation, target=bound, stretch=None)
    assert target.judge([record([good], [1.0])])["met"] is True
    assert target.judge([record([bad], [1.0])])["met"] is False
    assert target.judge([record([good], [1.0])])["stretch_met"] is None


def test_a_line_is_judged_by_the_median_of_its_worst_comparison() -> None:
    faster, slower, far = (
        record([1.2, 9], [1, 1], "a"),
        record([0.9, 0.8], [1, 1], "b"),
        record([0.6, 0.6], [1, 1], "c"),
    )
    judged = BY_KEY["sizes"].judge([faster, slower])
    assert judged["judged"] == "a"
    assert BY_KEY["memory"].judge([faster, slower, far])["judged"] == "a"
    assert BY_KEY["async-2"].judge([faster, slower, far])["judged"] == "c"
    assert BY_KEY["sizes"].judge([slower, far])["judged"] == "c"
    assert BY_KEY["sizes"].judge([slower, far])["met"] is False
    assert BY_KEY["sizes"].judge([slower])["met"] is True
    assert BY_KEY["sizes"].judge([slower])["stretch_met"] is False


def test_the_targets_are_those_that_were_set() -> None:
    bounds = {target.key: (target.relation, target.target, target.stretch) for target in TARGETS}
    assert bounds == {
        "async-2": ("at least", 2.0, 3.0),
        "async-1": ("at least", 1.7, 2.5),
        "sync-2": ("at least", 1.5, 2.2),
        "large": ("at least", 0.85, 1.2),
        "large-bfloat16": ("at least", 1.2, 1.8),
        "sparse": ("at least", 1.2, None),
        "bound": ("at most", 1.8, 1.3),
        "sizes": ("within", 0.25, 0.10),
        "tensors": ("at most", 1.3, 1.1),
        "startup": ("at most", 1.3, 1.1),
        "memory": ("at most", 1.25, None),
        "clients": ("at least", 0.8, 1.0),
        "shards": ("at least", 0.7, 0.9),
        "scaling": ("at least", 1.75, None),
    }


def test_the_table_has_a_line_for_each_target_and_says_what_is_not_met() -> None:
    good, bad = record([300, 320, 310], [100, 100, 100]), record([150], [100])
    lines = [BY_KEY["async-2"].judge([good]), BY_KEY["async-1"].judge([bad])]
    shown = table(lines, ABOUT).splitlines()
    assert shown[0] == "2 cores, a model, 8 GiB; Linux"
    assert shown[1] == "python 3.11.0, numpy 2.0.0, commit abc"
    first, second = shown[5:7]
    assert first.endswith("  met, stretch too")
    assert "3.10 (3.00 to 3.20)" in first
    assert ">= 2" in first
    assert second.endswith("  NOT MET")
    assert shown[-1] == "1 of 2 met; not met: async-1"


def test_lines_of_another_sitting_stay_if_all_but_the_time_is_the_same(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    assert earlier(file, ABOUT) == {}
    found = {"async-2": [record([3], [1])], PLOTTED: [record([5], [4])]}
    file.write_text(json.dumps({**ABOUT, **judged(found)}), encoding="utf-8")
    assert earlier(file, {**ABOUT, "begun": "later"}) == found
    assert earlier(file, {**ABOUT, "quick": True}) == {}
    assert earlier(file, {**ABOUT, "versions": {**ABOUT["versions"], "commit": "def"}}) == {}  # type: ignore[dict-item]


def test_lines_are_in_the_tables_order() -> None:
    found = {key: [record([1], [1])] for key in ("shards", "bound", "async-2")}
    assert [line["key"] for line in judged(found)["lines"]] == ["async-2", "bound", "shards"]


def test_every_target_is_measured_in_both_forms_and_every_script_exists() -> None:
    keys = [key for run in RUNS for key in run.keys]
    assert sorted(keys) == sorted([*BY_KEY, PLOTTED])
    assert all(run.quick is not None for run in RUNS if run.keys != (PLOTTED,))
    folder = Path(__file__).parents[2] / "benchmarks"
    assert all((folder / run.script).is_file() for run in RUNS)
    # Five pairs at least, as the targets are judged by.
    full = [run.arguments(quick=False) for run in RUNS if run.keys != (PLOTTED,)]
    assert all(int(words[words.index("--repeats") + 1]) >= 5 for words in full)


def test_several_keys_take_a_comparison_each() -> None:
    run = next(run for run in RUNS if len(run.keys) == 2)
    assert run.split(["a", "b"]) == {"large": ["a"], "large-bfloat16": ["b"]}  # type: ignore[list-item]
    with pytest.raises(ValueError, match="zip"):
        run.split(["a"])  # type: ignore[list-item]


def test_resnet50_has_161_trainable_tensors() -> None:
    shapes = list(resnet50.shapes())
    assert len(shapes) == 161
    assert sum(math.prod(shape) for shape in shapes) == 25_557_032
    assert shapes[0] == (7, 7, 3, 64)
    assert shapes[-2:] == [(2048, 1000), (1000,)]
    assert sum(len(shape) == 4 for shape in shapes) == 53
    assert (1, 1, 1024, 2048) in shapes


def test_the_bytes_of_a_network_are_those_of_the_model() -> None:
    from grpc_ps.models.mnist import Mnist

    for layers, hidden in ((1, 100), (3, 7)):
        variables = Mnist(hidden=hidden, layers=layers).variables
        assert Case(layers=layers, hidden=hidden).nbytes == 4 * sum(math.prod(each.shape) for each in variables)
    assert Case(layers=3, hidden=2048).nbytes == 40_083_496


def test_the_plot_of_curves_is_svg_from_zero_to_the_largest() -> None:
    root = ElementTree.fromstring(curves([Curve("a < b", [(0, 4), (10, 2)]), Curve("c", [(5, 1)])], "t", "x", "y"))
    name = "{http://www.w3.org/2000/svg}"
    assert [line.get("points") for line in root.iter(f"{name}polyline")] == ["70,50 590,195", "330,267.5"]
    assert {"a < b", "c", "t", "x", "y", "0", "10", "4"} <= {text.text for text in root.iter(f"{name}text")}


def test_a_round_has_batches_of_one_epoch() -> None:
    """As the lead makes them: the last of an epoch may be of fewer."""
    first = [list(numbers) for numbers, _ in zip(rounds(25, 10, 2), range(4), strict=False)]
    assert first == [[0, 1], [2], [3, 4], [5]]


def test_losses_are_compared_at_the_steps_that_are_known() -> None:
    found = compared({1: 5.0, 3: 2.0}, [4.0, 9.0, 3.0])
    assert (found["points"], found["mean_difference"], found["largest_difference"]) == (2, 0.0, 1.0)
    assert found["deviation_of_differences"] == 1.0


def test_the_plot_is_svg_with_a_line_and_points_for_each_side() -> None:
    points = [Point(nbytes=40_000_000, ours=20, other=31), Point(nbytes=318_000, ours=900, other=450)]
    root = ElementTree.fromstring(svg(points, "a < b & c"))
    name = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in root.iter(f"{name}text")]
    assert "a < b & c" in texts
    assert {"100 KB", "1 MB", "10 MB", "100 MB", "10", "100", "1000", "900", "31"} <= set(texts)
    lines = [line.get("points", "").split() for line in root.iter(f"{name}polyline")]
    assert [len(line) for line in lines] == [2, 2]
    for line in lines:
        (left, _), (right, _) = [tuple(map(float, point.split(","))) for point in line]
        assert left < right
    # More steps per second are further up.
    assert float(lines[0][0].split(",")[1]) < float(lines[1][0].split(",")[1])
