"""What is trained: networks, data sets, and the task that joins them to a loss and metrics.

Owns the names that `[task]`, `[model]` and `[data]` of a preset may hold, and the objects
they stand for. Does not own how training goes: batches, order, devices, precision and
ranks belong to `runners`, which this package never imports.

Only `models.catalog`, `models.files` and `models.errors` are free of torch; they answer
questions about a preset before anything starts. Only `models.vision` uses torchvision.
"""
