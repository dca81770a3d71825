"""What GPUs could compute at most: the denominator of the model FLOPs utilisation (MFU)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from distrain.runners.system.devices import Device

# TFLOP/s of dense matrices from NVIDIA's data sheets: fp32 without tensor cores, tf32, and bf16 or
# fp16 with sums in fp32. None: the GPU has no such unit. Of the names that NVML reports, the first
# that contains a key as words of its own decides.
_PEAKS: dict[str, tuple[float, float | None, float | None]] = {
    "H200 NVL": (60, 417.5, 835.5),
    "H200": (67, 494.5, 989.5),
    "H100 NVL": (60, 417.5, 835.5),
    "H100 PCIe": (51, 378, 756),
    "H100 80GB HBM3": (67, 494.5, 989.5),
    "A100": (19.5, 156, 312),
    "A40": (37.4, 74.8, 149.7),
    "A30": (10.3, 82, 165),
    "L40S": (91.6, 183, 362),
    "V100-SXM2": (15.7, None, 125),
    "V100-PCIE": (14, None, 112),
    "Tesla T4": (8.1, None, 65),
    "RTX 4090": (82.6, 82.6, 165.2),
    "RTX 3090": (35.6, 35.6, 71),
}
_VARIANT = re.compile(r"\b(Ti|D|SUPER|Laptop|Max-Q)\b")  # slower or faster than the plain one
_WITHOUT_BF16 = ("V100-SXM2", "V100-PCIE", "Tesla T4")


def peak_flops(devices: Iterable[Device], precision: str) -> float | None:
    """Return FLOP/s that the devices reach together at most; None if one of them is not known.

    `precision` is "fp32", "tf32", "bf16" or "fp16". A part of a GPU (MIG) is not known.
    """
    peaks = [_peak_of(device, precision) for device in devices]
    return None if None in peaks else sum(filter(None, peaks)) or None


def _peak_of(device: Device, precision: str) -> float | None:
    name = next((name for name in _PEAKS if re.search(rf"\b{name}\b", device.name)), None)
    if name is None or device.is_mig or _VARIANT.search(device.name):
        return None
    if precision == "bf16" and name in _WITHOUT_BF16:
        return None
    fp32, tf32, half = _PEAKS[name]
    peak = {"fp32": fp32, "tf32": tf32}.get(precision, half)
    return None if peak is None else peak * 1e12
