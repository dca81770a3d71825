"""The old name of `distrain`: `from runners import launch` and `python -m runners` still work."""

from distrain.old_names import forward_runners

forward_runners()
