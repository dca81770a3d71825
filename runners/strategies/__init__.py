"""Strategies: how the replicas of a model are kept equal on all ranks.

`base` is the class that a user's own strategy derives from, the other modules are the built-in
strategies, and `registry` makes the one that a config names. A strategy does not know launchers,
precision or data.
"""

from __future__ import annotations

from distrain.runners.strategies.base import Strategy, broadcast_from_leader
from distrain.runners.strategies.registry import build, join

__all__ = ["Strategy", "broadcast_from_leader", "build", "join"]
