"""What this machine and this installation can do, and how to fix what they cannot.

`survey` gathers the report as plain data: what is usable (`capabilities`), which operations work
between two processes (`collectives`) and what there is of Slurm (`slurm`). Torch is loaded only by
processes of its own, which run `probe`. Prints nothing: `cli.doctor` presents the report.
"""
