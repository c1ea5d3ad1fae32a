"""Batch numbers: leased lowest first, returned and handed out again, epochs that end."""

from __future__ import annotations

import pytest

from grpc_ps.psserver.lead.batches import BatchNumbers


def lease(numbers: BatchNumbers) -> int:
    number = numbers.next()
    assert number is not None
    numbers.lease(number, 1)
    return number


def test_numbers_rise_from_zero_without_end() -> None:
    numbers = BatchNumbers(per_epoch=0, epochs=0)
    assert [lease(numbers) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert not numbers.exhausted()
    assert numbers.epoch_of(10**9) == 0


def test_a_returned_number_is_handed_out_before_any_new_one() -> None:
    numbers = BatchNumbers(per_epoch=0, epochs=0)
    for _ in range(4):
        lease(numbers)
    numbers.give_back(2)
    numbers.give_back(1)
    assert [lease(numbers) for _ in range(3)] == [1, 2, 4]


def test_epochs_end_when_nothing_is_queued_or_leased() -> None:
    numbers = BatchNumbers(per_epoch=3, epochs=2)
    leased = [lease(numbers) for _ in range(6)]
    assert leased == [0, 1, 2, 3, 4, 5]
    assert [numbers.epoch_of(number) for number in leased] == [0, 0, 0, 1, 1, 1]
    assert numbers.next() is None
    for number in leased[:5]:
        numbers.use_up(number)
    assert not numbers.exhausted()
    numbers.use_up(5)
    assert numbers.exhausted()


def test_an_epoch_hands_out_its_own_numbers_whatever_was_returned() -> None:
    numbers = BatchNumbers(per_epoch=3, epochs=3)
    for _ in range(4):
        lease(numbers)
    numbers.give_back(1)
    assert (numbers.next_in(0), numbers.next_in(1), numbers.next_in(2)) == (1, 4, None)
    numbers.lease(4, 1)
    numbers.lease(1, 1)
    assert (numbers.next_in(0), numbers.next_in(1)) == (None, 5)
    lease(numbers)
    assert (numbers.next_in(1), numbers.next_in(2)) == (None, 6)


def test_what_an_epoch_still_has() -> None:
    numbers = BatchNumbers(per_epoch=4, epochs=2)
    for _ in range(3):
        lease(numbers)
    assert numbers.leased_in(0) == 3
    assert numbers.queued_in(0, enough=10) == 1
    numbers.give_back(1)
    assert (numbers.leased_in(0), numbers.queued_in(0, enough=10), numbers.queued_in(1, enough=10)) == (2, 2, 4)
    assert numbers.queued_count(enough=10) == 6
    assert numbers.queued_count(enough=2) == 2


def test_endless_data_has_no_epochs() -> None:
    with pytest.raises(ValueError, match="endless"):
        BatchNumbers(per_epoch=0, epochs=2)


def test_promised_numbers_are_left_to_others_while_there_are_more() -> None:
    numbers = BatchNumbers(4, 1)
    assert numbers.next({0, 1}) == 2
    numbers.lease(2, 7)
    assert [numbers.next(), numbers.next({0}), numbers.next({0, 1})] == [0, 1, 3]
    numbers.lease(3, 7)
    # No more are left: what is promised goes to whoever asks.
    assert numbers.next({0, 1}) == 0
    numbers.lease(0, 8)
    numbers.lease(1, 8)
    assert numbers.next({0, 1}) is None
    assert numbers.state() == (4, (0, 1, 2, 3))
