"""Common mistakes in scripts that only show when what all ranks report is compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from distrain.runners import formatting
from distrain.runners.protocol.events import RankFacts
from distrain.runners.supervision.evidence import Evidence

NOT_STEPPED = "the program has ended without an optimizer step"


class ScriptChecks:
    """Compares the facts of all ranks. Each mistake is found once."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._facts: dict[int, RankFacts] = {}
        self._hosts: dict[int, str] = {}
        self._found: set[Callable[[], str | None]] = set()

    def add(self, facts: RankFacts, host: str = "") -> Iterator[str]:
        """Yield what is found with the facts of a rank on this host, as sentences."""
        self._facts[facts.rank] = facts
        self._hosts[facts.rank] = host
        yield from self._check(self._lacks_ranks)
        if 1 < self._evidence.world_size == len(self._facts):
            yield from self._check(
                self._lacks_group, self._lacks_reduction, self._same_samples, self._same_file
            )

    @property
    def ended_without_step(self) -> bool:
        """Whether every rank has ended with an optimizer that has never stepped."""
        is_complete = len(self._facts) == self._evidence.world_size
        has_stopped = self._evidence.stop_requested or self._evidence.any_stopped
        are_idle = all(facts.has_idle_optimizer for facts in self._facts.values())
        return is_complete and are_idle and not has_stopped

    def reset(self) -> None:
        """Forget the facts of an earlier attempt; what was found is not repeated."""
        self._facts.clear()
        self._hosts.clear()

    def _check(self, *checks: Callable[[], str | None]) -> Iterator[str]:
        for check in checks:
            if check not in self._found and (text := check()):
                self._found.add(check)
                yield text

    def _lacks_ranks(self) -> str | None:
        size = max(facts.group_size or 0 for facts in self._facts.values())
        recorded = self._evidence.world_size
        if size <= recorded:
            return None
        return (
            f"the process group has {size:,} ranks, of which {recorded:,} "
            f"{'is' if recorded == 1 else 'are'} recorded: samples, rates and evaluations are "
            "without the others, which distrain has not started. Let it start all ranks, with "
            "--devices"
        )

    def _lacks_group(self) -> str | None:
        if any(facts.has_process_group is not False for facts in self._facts.values()):
            return None
        return (
            f"{len(self._facts)} independent processes: each trains a model of its own. No process "
            "group was formed; call torch.distributed.init_process_group() and wrap the model in "
            "DistributedDataParallel"
        )

    def _lacks_reduction(self) -> str | None:
        if any(facts.uses_process_group is not False for facts in self._facts.values()):
            return None
        steps = min(facts.step for facts in self._facts.values())
        return (
            f"the process group was not used in the first {steps:,} steps: gradients are not "
            "averaged, so each rank trains a model of its own. Wrap the model in "
            "DistributedDataParallel"
        )

    def _same_samples(self) -> str | None:
        first, *others = [facts.batches for facts in self._facts.values()]
        if len({*first}) < 2 or any(batches != first for batches in others):
            return None
        return (
            f"all ranks read the same samples: their first {len(first)} batches are equal. Use a "
            "DistributedSampler, unless the ranks share one model or split each batch themselves"
        )

    def _same_file(self) -> str | None:
        """Return a sentence about a file that all ranks of a host write."""
        ranks_of: dict[str, list[int]] = {}
        for rank, host in sorted(self._hosts.items()):
            ranks_of.setdefault(host, []).append(rank)
        for ranks in ranks_of.values():
            saved = [self._facts[rank].saved for rank in ranks]
            same = [path for path in saved[0] if all(path in paths for paths in saved)]
            if same and len(ranks) > 1:
                return (
                    f"{formatting.ranks(ranks)} write the same file, {same[0]}: let one of them "
                    "write it, or give each a file of its own"
                )
        return None
