"""What strategies and the training loop share about the ranks of a run.

Owns a rank's device (`device`), the group of all ranks and its collectives (`process_group`), the
measurement of phases and communication (`timing`, `cuda_timing`), and the recognition of errors
that another rank caused (`secondary_failures`). Does not own how replicas are kept equal
(`strategies`).
"""
