"""Slurm, through its commands; nothing else of it is needed, and nothing of torch.

`launcher` submits the job of a run and watches it, `script` writes its batch script. `commands`
runs sbatch, scontrol and the like, `job` reads what they print about a job, `endings` says in
sentences how a job ended or why it cannot start, `nodes` knows the cluster's machines, and
`scheduler` is what the supervisor needs of Slurm.
"""
