"""A program of the user's as a rank, and what it may call of distrain.

`script_rank` is the process of a rank that runs a script or any other program, `python_program` and
`executable` run it as the shell would. `api` is what the program may call, `rank_session` counts
its steps, `logged_values` keeps what it logs, and `rank_process` is what every process of a rank
has in common, that of the training loop too. Loads torch only if the program does. Does not own how
ranks are started (`launchers`), nor what becomes of their reports (`supervision`, `records`).
"""
