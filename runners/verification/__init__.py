"""Verification: does a distributed run compute what one plain process computes?

`cases` launches each preset for a few steps, in which `training.tap` writes gradients, weights and
buffers to files. `compare` runs as a separate process with torch: it takes the same steps with the
plain PyTorch loop of `reference` and compares within the limits of `tolerance`. `result` is the
outcome and its wording. Only `compare`, `reference` and `tolerance` import torch.
"""
