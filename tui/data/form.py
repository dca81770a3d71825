"""Which fields of a draft the form shows."""

from __future__ import annotations

from collections.abc import Container

from distrain.tui.data.config_fields import Field, used_fields
from distrain.tui.data.draft import Draft

COMMON = frozenset(
    (
        "strategy",
        "launcher",
        "precision",
        "devices",
        "model.name",
        "data.name",
        "data.root",
        "script.args",
        "script.cwd",
        "script.env",
        "data.workers",
        "train.epochs",
        "train.batch_size",
        "train.accumulate",
        "train.optimizer",
        "train.lr",
        "train.scale_lr",
        "train.schedule",
        "train.warmup_epochs",
        "train.weight_decay",
        "train.seed",
        "train.threads",
        "eval.every_epochs",
        "checkpoint.every_epochs",
    )
)
# Common fields where Slurm starts the ranks. They replace the devices, which Slurm allocates.
COMMON_WITH_SLURM = frozenset(
    f"slurm.{name}"
    for name in (
        "partition",
        "account",
        "nodes",
        "gpus_per_node",
        "tasks_per_node",
        "cpus_per_task",
        "memory",
        "time",
        "requeue",
    )
)


def visible_fields(
    draft: Draft, *, everything: bool, words: str = "", with_problems: Container[str] = ()
) -> list[Field]:
    """Return the common fields, or all; with `words`, the fields that contain each of them.

    Changed fields and those with problems are always included.
    """
    used = used_fields(draft.config)
    if wanted := words.lower().split():
        return [field for field in used if _contains(field, wanted)]
    slurm = draft.config.launcher == "slurm"
    common = COMMON - {"devices"} | COMMON_WITH_SLURM if slurm else COMMON
    found = [
        field
        for field in used
        if everything
        or field.key in common
        or field.key in with_problems
        or draft.changed(field.key)
    ]
    # The fields of Slurm come first, where the devices of this machine would be.
    return sorted(found, key=lambda field: not slurm or field.group not in ("run", "slurm"))


def _contains(field: Field, wanted: list[str]) -> bool:
    text = f"{field.key} {field.about}".lower()
    return all(word in text for word in wanted)
