"""Training programs that know nothing of distrain."""

from __future__ import annotations

# Every rank prints the sum over all ranks of their numbers from 1, and its arguments.
SUM = """
import sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor(dist.get_rank() + 1)
dist.all_reduce(total)
print("sum", total.item(), *sys.argv[1:])
dist.destroy_process_group()
"""

# Saves when it is interrupted, and takes its time for it.
SAVES = """
import time

print("ready", flush=True)
try:
    time.sleep(600)
except KeyboardInterrupt:
    time.sleep(1.5)
    print("saved", flush=True)
    raise
"""
