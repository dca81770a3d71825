"""The engine: configuration, launching, supervision, training, records and analysis.

Owns how training is run and what is known of it. Does not own what is trained
(`distrain.models`) nor the terminal app (`distrain.tui`). docs/architecture.md lists its packages
from the top down. The public API is `distrain`.
"""

if __name__ == "runners":  # found as a folder of the checkout, where Python was started
    from distrain.old_names import forward_runners

    forward_runners()
