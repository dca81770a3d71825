"""Comparison of runs, or of the candidates of a bench.

`model` is the object that the command line, the report and the app show, so that all of them give
the same figures and sentences. `recorded_runs` fills it from runs, `distrain.runners.bench` from
measured rounds. `sentences` words the results, `table` the figures; `report` and `markdown` are
files to share. Does not start runs.
"""
