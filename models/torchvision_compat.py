"""Import of torchvision that also works with a CPU-only torch.

With it, torchvision's wheel from PyPI fails at import: its compiled part cannot be loaded, so the
two operators that its Python part refers to are not declared ("operator torchvision::nms does not
exist"). Declaring them is enough for models, transforms and datasets. Where torchvision can be
imported, this module does nothing else.

Write `from distrain.models.torchvision_compat import torchvision` at the top of a module instead
of `import torchvision`. A spawned loader process that unpickles a class of that module then
imports it in the same way.
"""

from __future__ import annotations

from typing import Any

import torch

try:
    import torchvision as torchvision
except RuntimeError as _error:
    if "torchvision::nms" not in str(_error):
        raise
    # Kept in a module variable, because the declarations end with the object.
    _Library: Any = torch.library.Library
    _library = _Library("torchvision", "FRAGMENT")
    _library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision as torchvision
