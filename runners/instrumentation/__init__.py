"""A program of the user's as a rank, and what it may call of distrain.

`script_rank` is the process of a rank that runs a script or any other program, `python_program` and
`executable` run it as the shell would, `rank_session` is what the program can ask of its run, and
`rank_process` is what every process of a rank has in common, that of the training loop too. Loads
torch only if the program does. Does not own how ranks are started (`launchers`), nor what becomes
of what they report (`supervision`, `records`).
"""
