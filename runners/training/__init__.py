"""Training in a rank: one loop for every strategy, launcher and precision.

`worker` is the process of a rank, `trainer` builds what it trains with, `loop` is the training
loop, and `training_state` saves a training and continues it. Does not own how replicas are kept
equal (`strategies`), the process group (`distributed`) or how ranks are started (`launchers`).
"""
