"""Verification: does a distributed run compute what one plain process computes?

`cases` launches each preset for a few steps, and `training.tap` writes the state before and after
some of them to files. `compare` runs as a separate process with torch. It computes the same
gradients with the plain PyTorch of `reference` and `backward`, in each right way (`gradients`) and
within the limits of `tolerance`; in fp64 (`wide`) where that helps. It computes the same optimizer
steps with `update` and `update_check`, and the same averages of weights with `average`. `digests`
compares the states of all steps and ranks, and `evaluation` the sums. `probe` finds out what a task
does, and `task_rules` whether it may. `result` is the outcome and its wording. Only `cases`,
`digests` and `result` load no torch.
"""
