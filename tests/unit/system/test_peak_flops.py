"""The peak of GPUs, by the names that NVML reports."""

from __future__ import annotations

import pytest

from distrain.runners.system.devices import Device
from distrain.runners.system.peak_flops import peak_flops


def gpu(name: str, uuid: str = "GPU-1") -> Device:
    return Device(kind="cuda", index=0, name=name, uuid=uuid)


@pytest.mark.parametrize(
    ("name", "precision", "tflops"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", 989.5),
        ("NVIDIA H100 PCIe", "bf16", 756),
        ("NVIDIA A100-SXM4-80GB", "tf32", 156),
        ("NVIDIA A100-PCIE-40GB", "fp32", 19.5),
        ("Tesla V100-SXM2-16GB", "fp16", 125),
    ],
)
def test_the_peak_depends_on_precision(name: str, precision: str, tflops: float) -> None:
    assert peak_flops([gpu(name)] * 2, precision) == 2 * tflops * 1e12


def test_there_is_no_peak_of_what_is_not_in_a_data_sheet() -> None:
    known = gpu("NVIDIA A100-SXM4-80GB")
    part = gpu("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "MIG-1")
    for devices, precision in (
        ([known, part], "fp32"),
        ([known, gpu("NVIDIA GeForce GTX 1080")], "fp32"),
        ([gpu("NVIDIA RTX A1000")], "bf16"),
        ([gpu("NVIDIA RTX A4000")], "bf16"),
        ([gpu("NVIDIA GeForce RTX 4090 Laptop GPU")], "bf16"),
        ([gpu("NVIDIA GeForce RTX 3090 Ti")], "bf16"),
        ([gpu("Tesla T4")], "bf16"),
        ([gpu("Tesla T4")], "tf32"),
        ([Device(kind="cpu", index=0)], "fp32"),
    ):
        assert peak_flops(devices, precision) is None
