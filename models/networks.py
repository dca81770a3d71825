"""The built-in networks, for any input shape and number of classes. They return logits."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from distrain.models.errors import TaskError


def mlp(
    *,
    shape: Sequence[int],
    classes: int,
    hidden: Sequence[int] = (128, 128),
    dropout: float = 0.0,
) -> nn.Module:
    """Make fully connected layers of the `hidden` widths with ReLU, for inputs of any shape."""
    if any(width < 1 for width in hidden):
        raise TaskError("model.args", f"the widths in hidden must be 1 or more, not {hidden}")
    _check_dropout(dropout, 1.0)
    layers: list[nn.Module] = [nn.Flatten()]
    width = math.prod(shape)
    for size in hidden:
        layers += [nn.Linear(width, size), nn.ReLU()]
        if dropout:
            layers.append(nn.Dropout(dropout))
        width = size
    return nn.Sequential(*layers, nn.Linear(width, classes))


def cnn(*, shape: Sequence[int], classes: int, dropout: float = 0.25) -> nn.Module:
    """Make the CNN of PyTorch's basic MNIST example, for images of at least 6×6.

    It has two 3×3 convolutions (32 and 64 channels), pooling and 128 units. `dropout` applies
    after pooling; the units have twice as much (0.25 and 0.5 in the example).
    Source: https://github.com/pytorch/examples/tree/main/mnist
    """
    _check_dropout(dropout, 0.5)
    if len(shape) != 3 or min(shape[1:]) < 6:
        raise TaskError(
            "model.name",
            f"cnn takes images (channels × height × width) of at least 6×6, but the "
            f"samples are {'×'.join(map(str, shape))}; use mlp",
        )
    channels, height, width = shape
    units = 64 * ((height - 4) // 2) * ((width - 4) // 2)
    return nn.Sequential(
        OrderedDict[str, nn.Module](
            conv1=nn.Conv2d(channels, 32, 3),
            relu1=nn.ReLU(),
            conv2=nn.Conv2d(32, 64, 3),
            relu2=nn.ReLU(),
            pool=nn.MaxPool2d(2),
            dropout1=nn.Dropout(dropout),
            flatten=nn.Flatten(),
            fc1=nn.Linear(units, 128),
            relu3=nn.ReLU(),
            dropout2=nn.Dropout(2 * dropout),
            fc2=nn.Linear(128, classes),
        )
    )


def _check_dropout(dropout: float, maximum: float) -> None:
    if not 0 <= dropout <= maximum:
        raise TaskError("model.args", f"dropout must be between 0 and {maximum:g}, not {dropout}")
