"""Real faults in real runs: `python -m tests.faults` (`make test-faults`).

`cases` chooses what is tried, `case` carries out one case in a process and a mount namespace of
its own, `__main__` runs many at once and keeps their results, `page` writes docs/reliability.md.
`user/` is what the runs execute.
"""
