"""torchvision, also beside a CPU-only torch, where its wheel fails at import.

There the compiled part cannot load, so nobody declares the two operators that its Python
part then describes ("operator torchvision::nms does not exist"). Declaring them is enough
for models, transforms and datasets. Where torchvision loads, this does nothing.

Write `from models.torchvision_mend import torchvision` at module level instead of
`import torchvision`: a spawned loader process that unpickles a class of that module then
goes this way, too.
"""

from __future__ import annotations

from typing import Any

import torch

try:
    import torchvision as torchvision
except RuntimeError as _error:
    if "torchvision::nms" not in str(_error):
        raise
    # Kept in a module variable because the declarations go when it does.
    _Library: Any = torch.library.Library
    _library = _Library("torchvision", "FRAGMENT")
    _library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision as torchvision
