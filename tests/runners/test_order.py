"""Which samples make up which step, for every split over ranks and micro-batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runners.order import Order, Share, steps_per_epoch

SIZES = st.integers(1, 60)
RANKS = st.integers(1, 5)
ACCUMULATE = st.integers(1, 4)


@st.composite
def orders(draw: st.DrawFn) -> Order:
    samples = draw(SIZES)
    return Order(
        samples,
        draw(SIZES),
        draw(RANKS),
        accumulate=draw(ACCUMULATE),
        drop_last=draw(st.booleans()),
        offset=draw(st.integers(0, samples)),
    )


def steps_of(order: Order, rank: int) -> list[list[tuple[slice, int]]]:
    """For each step the rank's micro-batches, as (place in the permutation, samples of it)."""
    pieces = iter(list(order.pieces(rank)))
    steps = [[(next(pieces), count) for count in share.counts] for share in order.shares(rank)]
    assert next(pieces, None) is None, "as many pieces as there are micro-batches"
    return steps


def by_step(order: Order) -> list[tuple[Share, ...]]:
    """For each step the shares of all ranks."""
    return list(zip(*(order.shares(rank) for rank in range(order.ranks)), strict=True))


def used(order: Order) -> list[list[int]]:
    """For each step the places of the permutation that count, over all ranks in their order."""
    ranks = [steps_of(order, rank) for rank in range(order.ranks)]
    return [
        [
            place
            for steps in ranks
            for piece, count in steps[step]
            if count
            for place in range(order.samples)[piece]
        ]
        for step in range(order.steps)
    ]


@given(orders())
def test_every_sample_that_is_left_is_used_exactly_once(order: Order) -> None:
    end = order.offset + order.steps * order.batch_size if order.drop_last else order.samples
    assert [place for places in used(order) for place in places] == list(range(order.offset, end))


@given(orders())
def test_only_a_part_of_a_batch_is_ever_dropped(order: Order) -> None:
    left = order.samples - order.offset
    dropped = left - sum(share.total for share in order.shares(0))
    assert 0 <= dropped < order.batch_size if order.drop_last else dropped == 0


@given(orders())
def test_counts_are_those_of_the_pieces_and_add_up_to_the_step(order: Order) -> None:
    for shares in by_step(order):
        assert sum(sum(share.counts) for share in shares) == shares[0].total > 0
        assert {share.total for share in shares} == {shares[0].total}
        assert {len(share.counts) for share in shares} == {order.accumulate}
    for rank in range(order.ranks):
        for piece, count in (pair for step in steps_of(order, rank) for pair in step):
            # Where there are too few samples, one stands in and counts for nothing.
            assert len(range(order.samples)[piece]) == max(1, count)


@given(orders())
def test_a_stand_in_is_a_sample_of_the_same_step(order: Order) -> None:
    own = [set(places) for places in used(order)]
    for rank in range(order.ranks):
        for step, pieces in enumerate(steps_of(order, rank)):
            assert all(set(range(order.samples)[piece]) <= own[step] for piece, _ in pieces)


@given(orders())
def test_shares_differ_by_one_at_most(order: Order) -> None:
    for shares in by_step(order):
        own = [sum(share.counts) for share in shares]
        assert max(own) - min(own) <= 1


@given(orders(), RANKS, ACCUMULATE)
def test_a_steps_samples_do_not_depend_on_ranks_or_micro_batches(
    order: Order, ranks: int, accumulate: int
) -> None:
    other = Order(order.samples, order.batch_size, ranks, accumulate, order.drop_last, order.offset)
    assert used(other) == used(order)


@given(orders(), st.data(), RANKS)
def test_a_resumed_epoch_goes_on_where_it_was_left(
    order: Order, data: st.DataObject, ranks: int
) -> None:
    done = data.draw(st.integers(0, order.steps), label="steps done")
    offset = order.offset + sum(share.total for share in list(order.shares(0))[:done])
    resumed = Order(
        order.samples, order.batch_size, ranks, order.accumulate, order.drop_last, offset
    )
    assert used(resumed) == used(order)[done:]


@given(SIZES, SIZES, st.booleans())
def test_steps_per_epoch_are_full_batches_and_perhaps_a_rest(
    samples: int, batch_size: int, drop_last: bool
) -> None:
    full, rest = divmod(samples, batch_size)
    assert steps_per_epoch(samples, batch_size, drop_last) == full + (rest > 0 and not drop_last)
