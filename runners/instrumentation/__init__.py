"""A user program as a rank, and what it may call of distrain.

`script_rank` is the process of a rank that runs a script or any other program; `python_program` and
`executable` run it as the shell would, and `hidden_modules` keeps what distrain has loaded out of
the program's imports. `joined_rank` and `observation` are ranks whose process distrain has not
started. `api` is what the program may call, and `automatic` observes what it does by itself. Both
note `loop_events`, which a `training_loop` replays once per window: its `step_counter` and
`loop_timer` make steps and phases of them. `logged_values` keeps what is logged, in the forms of
`plain_values`, `sources` where figures come from, and `rank_session` sends all this. `rank_process`
is what every process of a rank has in common, that of the training loop too. Loads torch only if
the program does. Does not own how ranks are started (`launchers`), nor what becomes of their
reports (`supervision`, `records`).
"""
