"""A run's folder: its one writer and its readers.

`writer` is used by the supervisor only; `reader`, `snapshot` and `summary` are read-only and work
while the run is live. Does not own what the numbers mean (`analysis`).
"""
