"""Series of measured rows and their roll-ups, which are read in O(points) at any length.

`series` lists the series of a record and `rollup` defines their tables; `appender` writes them;
`rows`, `bounds` and `curves` read them; `levels` is the arithmetic of roll-ups. `run_curve`
combines the ranks' curves into the run's. Does not know runs or processes.
"""
