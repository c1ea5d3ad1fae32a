"""Clipping by a norm: which factors an update travels with, and when they are known."""

from __future__ import annotations

import math

import pytest
from job_driver import Driver

from grpc_ps.psserver.lead.clipping import Clipping
from grpc_ps.psserver.lead.log import Apply, Reduce
from grpc_ps.psserver.lead.settings import complete


def test_a_round_of_one_is_scaled_by_what_its_push_reported() -> None:
    driver = Driver(shards=2, global_clip_norm=1.0)
    (member,) = driver.open()
    push = driver.header(member)
    driver.job.whole(0, push, "", driver.now, ((0, 9.0),))
    driver.job.whole(1, push, "", driver.now, ((0, 16.0),))
    (apply,) = driver.applies()
    assert apply.scales == (pytest.approx(0.2, abs=1e-8),)


def test_a_round_of_several_is_reduced_first_and_applied_when_all_shards_have() -> None:
    driver = Driver(shards=2, mode="sync", workers=2, global_clip_norm=5.0)
    one, two = driver.open(2)
    driver.news()
    driver.push(one, squares=((0, 1e6),))
    driver.push(two, squares=((0, 1e6),))
    (reduce,) = driver.news()
    assert isinstance(reduce, Reduce)
    position = driver.job.log.position
    driver.job.reduced(0, position, ((0, 36.0),), driver.now)
    driver.job.reduced(0, position, ((0, 36.0),), driver.now)
    driver.job.reduced(1, position - 1, ((0, 64.0),), driver.now)
    assert driver.applies() == []
    driver.job.reduced(1, position, ((0, 64.0),), driver.now)
    apply, *answers = driver.news()
    assert isinstance(apply, Apply)
    assert (apply.pushes, apply.scales) == (reduce.pushes, (0.5,))
    assert len(answers) == 2
    driver.job.reduced(1, position, ((0, 64.0),), driver.now)
    assert driver.job.step == 1


def test_nobody_gets_work_while_a_mean_is_made() -> None:
    driver = Driver(mode="sync", workers=2, backup=1, global_clip_norm=1.0)
    one, two = driver.open(2)
    driver.push(one, squares=((0, 1.0),))
    driver.push(two, squares=((0, 1.0),))
    late = driver.join(7)
    driver.job.ask(late.worker, late.incarnation, 0, driver.now)
    assert late.batch is None
    driver.job.reduced(0, driver.job.log.position - 1, ((0, 1.0),), driver.now)
    assert (driver.job.step, late.base_steps) == (1, [1])


def test_the_target_is_reached_by_a_reduced_round() -> None:
    driver = Driver(mode="sync", workers=2, clip_norm=1.0, steps=1)
    one, two = driver.open(2)
    driver.push(one, squares=((0, 1.0),))
    driver.push(two, squares=((0, 1.0),))
    driver.job.reduced(0, driver.job.log.position, ((0, 0.25),), driver.now)
    assert driver.job.done is not None
    assert (driver.job.step, driver.job.done.exit_code) == (1, 0)
    assert driver.applies()[0].scales == (1.0,)


def test_factors() -> None:
    each = Clipping(complete({"clip_norm": 2.0}), parameters=3)
    assert each.scales([(0, 16.0), (2, 1.0), (0, 9.0), (0, 39.0)]) == (0.25, 1.0, 1.0)
    whole = Clipping(complete({"global_clip_norm": 1.0}), parameters=3)
    assert whole.scales([(0, 0.75), (1, 0.25)]) == (1.0,)
    assert whole.scales([(0, math.inf)]) == (0.0,)
    assert whole.scales([(0, 1.7e308), (1, 1.7e308)]) == (0.0,), "each is finite, their sum is not"
    assert Clipping(complete({"clip_value": 1.0}), parameters=3).scales([(0, 9.0)]) == ()


def test_factors_do_not_depend_on_the_order_of_pieces() -> None:
    whole = Clipping(complete({"global_clip_norm": 1.0}), parameters=1)
    squares = [(0, 10.0**-number) for number in range(-8, 9)]
    assert whole.scales(squares) == whole.scales(reversed(squares))
