"""What is trained: networks, data sets, and the task that joins them to a loss and metrics.

Owns the names that `[task]`, `[model]` and `[data]` of a preset may have, and the objects behind
them. Does not own the training itself: batches, their order, devices, precision and ranks belong
to `runners`, which this package never imports.

`catalog`, `importing`, `files` and `errors` do not load torch: they check a preset before anything
starts. Only `vision` uses torchvision, through `torchvision_compat`.
"""

if __name__ == "models":  # found as a folder of the checkout, where Python was started
    from distrain.old_names import refuse

    refuse(__name__)
