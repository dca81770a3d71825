"""Every strategy must compute what one plain PyTorch process computes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from distrain.models.build import build_task
from distrain.runners.config.schema import RunConfig
from distrain.runners.training.loading import epoch_permutation
from tests.integration.engine.ranks import Outcome, run_alone, run_on_ranks

# 150 samples in batches of 32 leave 22: uneven over 3 ranks, and over micro-batches. Verification
# compares two ranks with plain PyTorch.
RANKS = 3
SAMPLES = 150
BATCH = 32
EPOCHS = 2
WITHOUT_ZEROS = "tests.integration.engine.tasks:WithoutZeros"


def config(**changes: object) -> RunConfig:
    base: dict[str, object] = {
        "train.epochs": EPOCHS,
        "train.batch_size": BATCH,
        "train.lr": 0.05,
        "train.seed": 3,
        "data.train_limit": SAMPLES,
        "data.eval_limit": 100,
        "checkpoint.keep": 0,
        "launcher": "spawn",
    }
    return RunConfig().with_changes(
        {**base, **{k.replace("__", "."): v for k, v in changes.items()}}
    )


CASES = {
    "allreduce": config(strategy="allreduce"),
    "ddp": config(strategy="ddp"),
    "ddp in small buckets": config(strategy="ddp", ddp__bucket_mb=0.01),
    "ddp static graph": config(strategy="ddp", ddp__static_graph=True),
    "ddp gradients outside buckets": config(strategy="ddp", ddp__gradient_as_bucket_view=False),
    "ddp searching for unused": config(strategy="ddp", ddp__find_unused_parameters=True),
    "allreduce accumulating": config(strategy="allreduce", train__accumulate=3),
    "ddp accumulating": config(strategy="ddp", train__accumulate=3),
    "ddp weights of batches": config(strategy="ddp", task__name=WITHOUT_ZEROS, train__accumulate=3),
    "allreduce weights of batches": config(strategy="allreduce", task__name=WITHOUT_ZEROS),
}
UNUSED = {
    strategy: config(
        strategy=strategy,
        model__name="tests.integration.engine.tasks:routed",
        train__batch_size=12,
        train__weight_decay=0.1,
        **changes,
    )
    for strategy, changes in (
        ("ddp", {"ddp__find_unused_parameters": True}),
        ("allreduce", {"train__accumulate": 2}),
    )
}
TAIL = {  # 97 = 3 × 32 + 1: in the last step of an epoch only rank 0 has a sample
    "allreduce": config(strategy="allreduce", data__train_limit=97),
    "ddp": config(strategy="ddp", data__train_limit=97),
    "ddp accumulating": config(strategy="ddp", data__train_limit=97, train__accumulate=2),
}
OPTIMIZERS = {
    "adam": config(strategy="ddp", train__optimizer="adam", train__lr=0.003),
    "adamw clipped": config(
        strategy="allreduce",
        train__optimizer="adamw",
        train__lr=0.003,
        train__clip_norm=0.5,
        train__weight_decay=0.1,
    ),
    "sgd cosine warm-up smoothing": config(
        strategy="ddp",
        train__schedule="cosine",
        train__warmup_epochs=0.5,
        train__label_smoothing=0.1,
        train__weight_decay=1e-3,
    ),
}


def plain_pytorch(config: RunConfig) -> dict[str, torch.Tensor]:
    """Train with plain PyTorch in one process, in fp32; return the weights."""
    torch.manual_seed(config.train.seed)
    task = build_task(config.task, config.model, config.data, seed=config.train.seed)
    model = task.model
    train = config.train
    samples = len(task.train)
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    options = {"momentum": train.momentum} if train.optimizer == "sgd" else {}
    optimizer = kinds[train.optimizer](
        model.parameters(), lr=train.lr, weight_decay=train.weight_decay, **options
    )
    per_epoch = -(-samples // train.batch_size)
    warmup = round(train.warmup_epochs * per_epoch)
    after = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    if train.schedule == "cosine":
        after = torch.optim.lr_scheduler.CosineAnnealingLR(
            optimizer, train.epochs * per_epoch - warmup
        )
    step = 0
    for epoch in range(train.epochs):
        order = epoch_permutation(epoch, train.seed, samples)
        for start in range(0, samples, train.batch_size):
            chosen = order[start : start + train.batch_size]
            images, labels = task.train.__getitems__(chosen)
            loss = F.cross_entropy(
                model(images),
                labels,
                label_smoothing=train.label_smoothing,
                ignore_index=0 if config.task.name == WITHOUT_ZEROS else -1,
            )
            optimizer.zero_grad()
            loss.backward()
            if train.clip_norm:
                torch.nn.utils.clip_grad_norm_(model.parameters(), train.clip_norm)
            if step < warmup:
                for group in optimizer.param_groups:
                    group["lr"] = train.lr * (step + 1) / warmup
            elif step == warmup:
                for group in optimizer.param_groups:
                    group["lr"] = train.lr
            optimizer.step()
            if step >= warmup:
                after.step()
            step += 1
    return dict(model.state_dict())


def assert_close(
    weights: dict[str, torch.Tensor], reference: dict[str, torch.Tensor], case: str = ""
) -> None:
    assert weights.keys() == reference.keys()
    for name, tensor in reference.items():
        what = f"{case}: {name}"
        torch.testing.assert_close(weights[name], tensor, rtol=1e-4, atol=2e-6, msg=what)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Outcome]]:
    """Return the outcomes of all distributed cases by name."""
    folder: Path = tmp_path_factory.mktemp("runs")
    named = {
        **CASES,
        **{f"tail: {name}": case for name, case in TAIL.items()},
        **{f"optimizer: {name}": case for name, case in OPTIMIZERS.items()},
        **{f"unused: {name}": case for name, case in UNUSED.items()},
    }
    results = run_on_ranks(
        RANKS, [(c.with_changes({"devices": f"cpu:{RANKS}"}), folder) for c in named.values()]
    )
    return dict(zip(named, results, strict=True))


def test_distributed_training_gives_the_weights_of_one_plain_process(
    outcomes: dict[str, list[Outcome]],
) -> None:
    for name, case in CASES.items():
        reference = plain_pytorch(case)
        for rank in outcomes[name]:
            assert_close(rank.model, reference, name)


def test_a_last_batch_with_fewer_samples_than_ranks_gives_the_same_weights(
    outcomes: dict[str, list[Outcome]],
) -> None:
    for name, case in TAIL.items():
        reference = plain_pytorch(case)
        for rank in outcomes[f"tail: {name}"]:
            assert_close(rank.model, reference, name)


def test_parameters_that_no_rank_uses_in_a_step_stay_as_they_are(
    outcomes: dict[str, list[Outcome]],
) -> None:
    for name, case in UNUSED.items():
        reference = plain_pytorch(case)
        for rank in outcomes[f"unused: {name}"]:
            assert_close(rank.model, reference, name)


def test_optimizers_schedules_and_clipping_match_pytorch(
    outcomes: dict[str, list[Outcome]],
) -> None:
    for name, case in OPTIMIZERS.items():
        assert_close(outcomes[f"optimizer: {name}"][0].model, plain_pytorch(case), name)


def test_replicas_are_bit_for_bit_equal(outcomes: dict[str, list[Outcome]]) -> None:
    for name in CASES:
        first, *others = outcomes[name]
        for other in others:
            for parameter, tensor in first.model.items():
                assert torch.equal(tensor, other.model[parameter]), (name, parameter)


def test_windows_count_every_sample_and_weight_the_loss_by_samples(
    outcomes: dict[str, list[Outcome]], tmp_path: Path
) -> None:
    single = run_alone(config(strategy="single", launcher="inline", devices="cpu:1"), tmp_path)
    reference = sum(window.loss_sum or 0.0 for window in single.windows)
    for name in ("ddp", "allreduce", "ddp accumulating"):
        windows = [window for rank in outcomes[name] for window in rank.windows]
        assert sum(window.samples for window in windows) == EPOCHS * SAMPLES
        assert sum(w.loss_sum or 0.0 for w in windows) == pytest.approx(reference, rel=1e-5)


def test_the_loss_of_a_rank_is_the_mean_with_the_weights_of_its_batches(
    outcomes: dict[str, list[Outcome]],
) -> None:
    for name in ("ddp weights of batches", "allreduce weights of batches"):
        windows = [window for rank in outcomes[name] for window in rank.windows]
        assert sum(window.weight for window in windows) == pytest.approx(EPOCHS * SAMPLES)
        assert any(abs(window.weight - window.samples) > 0.1 for window in windows)
        for each in windows:
            mean = (each.loss_sum or 0.0) / each.weight
            assert (each.loss_min or 0.0) <= mean * (1 + 1e-6)
            assert mean <= (each.loss_max or 0.0) * (1 + 1e-6)


def test_the_phases_of_a_window_are_at_most_its_seconds(outcomes: dict[str, list[Outcome]]) -> None:
    for window in (w for rank in outcomes["ddp"] for w in rank.windows):
        phases = window.data + window.forward + window.backward + window.comm + window.optimizer
        assert 0 < phases <= window.seconds


@pytest.mark.parametrize("accumulate", [1, 4])
def test_single_equals_plain_pytorch(accumulate: int, tmp_path: Path) -> None:
    case = config(
        strategy="single", launcher="inline", devices="cpu:1", train__accumulate=accumulate
    )
    assert_close(run_alone(case, tmp_path).model, plain_pytorch(case))


def test_dp_without_gpus_equals_plain_pytorch(tmp_path: Path) -> None:
    case = config(strategy="dp", launcher="inline", devices="cpu:1")
    assert_close(run_alone(case, tmp_path).model, plain_pytorch(case))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_lower_precision_is_close_to_fp32(precision: str, tmp_path: Path) -> None:
    exact = run_alone(config(strategy="single", launcher="inline", devices="cpu:1"), tmp_path)
    case = config(strategy="single", launcher="inline", devices="cpu:1", precision=precision)
    lower = run_alone(case, tmp_path)
    losses = [run.evaluations[-1].metrics["loss"].value for run in (lower, exact)]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


def test_fp16_counts_skipped_steps_and_recovers_from_overflow(tmp_path: Path) -> None:
    # given a loss scale of 65,536 on a loss so large that the first gradients overflow
    case = config(
        strategy="single",
        launcher="inline",
        devices="cpu:1",
        precision="fp16",
        task__name="tests.integration.engine.tasks:huge_loss",
    )
    # when it trains
    result = run_alone(case, tmp_path)
    # then steps are skipped, counted, and later ones are not
    skipped = sum(window.skipped for window in result.windows)
    assert 2 < skipped < sum(window.steps for window in result.windows)
    assert all(torch.isfinite(tensor).all() for tensor in result.model.values())
