"""Which samples make up which step, for every split over ranks and micro-batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distrain.runners.training.batch_plan import BatchPlan, StepShare, steps_per_epoch

SIZES = st.integers(1, 60)
RANKS = st.integers(1, 5)
ACCUMULATE = st.integers(1, 4)


@st.composite
def plans(draw: st.DrawFn) -> BatchPlan:
    samples = draw(SIZES)
    return BatchPlan(
        samples,
        draw(SIZES),
        draw(RANKS),
        accumulate=draw(ACCUMULATE),
        drop_last=draw(st.booleans()),
        offset=draw(st.integers(0, samples)),
    )


def steps_of(plan: BatchPlan, rank: int) -> list[list[tuple[slice, int]]]:
    """For each step the rank's micro-batches, as (slice of the permutation, samples)."""
    slices = iter(list(plan.slices(rank)))
    steps = [[(next(slices), count) for count in share.counts] for share in plan.shares(rank)]
    assert next(slices, None) is None, "as many slices as there are micro-batches"
    return steps


def shares_by_step(plan: BatchPlan) -> list[tuple[StepShare, ...]]:
    """For each step the shares of all ranks."""
    return list(zip(*(plan.shares(rank) for rank in range(plan.ranks)), strict=True))


def used_positions(plan: BatchPlan) -> list[list[int]]:
    """For each step the positions of the permutation that count, rank after rank."""
    ranks = [steps_of(plan, rank) for rank in range(plan.ranks)]
    return [
        [
            position
            for steps in ranks
            for piece, count in steps[step]
            if count
            for position in range(plan.samples)[piece]
        ]
        for step in range(plan.steps)
    ]


@given(plans())
def test_every_remaining_sample_is_used_exactly_once(plan: BatchPlan) -> None:
    end = plan.offset + plan.steps * plan.batch_size if plan.drop_last else plan.samples
    used = [position for positions in used_positions(plan) for position in positions]
    assert used == list(range(plan.offset, end))


@given(plans())
def test_less_than_one_batch_is_dropped(plan: BatchPlan) -> None:
    remaining = plan.samples - plan.offset
    dropped = remaining - sum(share.total for share in plan.shares(0))
    assert 0 <= dropped < plan.batch_size if plan.drop_last else dropped == 0


@given(plans())
def test_counts_match_the_slices_and_add_up_to_the_step(plan: BatchPlan) -> None:
    for shares in shares_by_step(plan):
        assert sum(sum(share.counts) for share in shares) == shares[0].total > 0
        assert {share.total for share in shares} == {shares[0].total}
        assert {len(share.counts) for share in shares} == {plan.accumulate}
    for rank in range(plan.ranks):
        for piece, count in (pair for step in steps_of(plan, rank) for pair in step):
            # Where there are too few samples, one is a placeholder that counts for nothing.
            assert len(range(plan.samples)[piece]) == max(1, count)


@given(plans())
def test_a_placeholder_is_a_sample_of_the_same_step(plan: BatchPlan) -> None:
    positions = [set(step) for step in used_positions(plan)]
    for rank in range(plan.ranks):
        for step, pieces in enumerate(steps_of(plan, rank)):
            assert all(set(range(plan.samples)[piece]) <= positions[step] for piece, _ in pieces)


@given(plans())
def test_the_ranks_shares_differ_by_at_most_one(plan: BatchPlan) -> None:
    for shares in shares_by_step(plan):
        samples = [sum(share.counts) for share in shares]
        assert max(samples) - min(samples) <= 1


@given(plans(), RANKS, ACCUMULATE)
def test_the_samples_of_a_step_do_not_depend_on_ranks_or_micro_batches(
    plan: BatchPlan, ranks: int, accumulate: int
) -> None:
    other = BatchPlan(plan.samples, plan.batch_size, ranks, accumulate, plan.drop_last, plan.offset)
    assert used_positions(other) == used_positions(plan)


@given(plans(), st.data(), RANKS)
def test_a_resumed_epoch_continues_where_it_was_left(
    plan: BatchPlan, data: st.DataObject, ranks: int
) -> None:
    done = data.draw(st.integers(0, plan.steps), label="steps done")
    offset = plan.offset + sum(share.total for share in list(plan.shares(0))[:done])
    resumed = BatchPlan(
        plan.samples, plan.batch_size, ranks, plan.accumulate, plan.drop_last, offset
    )
    assert used_positions(resumed) == used_positions(plan)[done:]


@given(SIZES, SIZES, st.booleans())
def test_steps_per_epoch_are_full_batches_and_perhaps_a_smaller_one(
    samples: int, batch_size: int, drop_last: bool
) -> None:
    full, rest = divmod(samples, batch_size)
    has_smaller = rest > 0 and not drop_last
    assert steps_per_epoch(samples, batch_size, drop_last) == (full + 1 if has_smaller else full)
