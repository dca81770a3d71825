"""Slurm, by its commands: nothing else of it is needed, and nothing of torch.

`commands` runs sbatch, scontrol and their like, `job` reads what they tell of a job, `script` is
the batch script of a run, `nodes` knows the cluster's machines; `recording` runs within the job.
Which process of ours does what and when is the launcher's: `runners/launchers/slurm.py`.
"""
