"""Horovod's source: which file it is, and the few edits without which it does not build or work."""

from __future__ import annotations

import json
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from runners.errors import InstallError

VERSION = "0.28.1"
REQUIREMENT = f"horovod=={VERSION}"
SHA256 = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"


class Edit(NamedTuple):
    """`before` stands in the file exactly once and becomes `after`."""

    file: str
    before: str
    after: str


EDITS = (
    # The headers of torch need C++17.
    Edit("CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 17)"),
    Edit(
        "horovod/torch/CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 17)"
    ),
    # CMake 4 refuses what asks for a CMake before 3.5.
    Edit(
        "third_party/gloo/CMakeLists.txt",
        "cmake_minimum_required(VERSION 2.8.12 FATAL_ERROR)",
        "cmake_minimum_required(VERSION 3.13 FATAL_ERROR)",
    ),
    # It was written to beyond its size: ranks that are awaited were looked up in nothing, and the
    # stall inspector never spoke, so that a job with a rank that does not come waits for ever.
    Edit(
        "horovod/common/gloo/gloo_controller.cc",
        "global_ranks_.reserve(size_);",
        "global_ranks_.resize(size_);",
    ),
    # The interface was forgotten for sets of processes, which then met at the address to which the
    # name of the host leads; few names lead where other hosts reach them, or anywhere.
    Edit(
        "horovod/common/gloo/gloo_context.cc",
        "device_attr.iface = gloo_iface_;\n"
        "  device_attr.ai_family = AF_UNSPEC;\n"
        "  auto dev = CreateDevice(device_attr);\n\n"
        "  global_ctx",
        "device_attr.iface = global_context.gloo_iface_;\n"
        "  device_attr.ai_family = AF_UNSPEC;\n"
        "  auto dev = CreateDevice(device_attr);\n\n"
        "  global_ctx",
    ),
    # An nvcc that does not work, or is not torch's, must not spoil a build for CPU.
    Edit(
        "CMakeLists.txt",
        "check_language(CUDA)\nif(NOT CMAKE_CUDA_COMPILER)\n",
        'if("$ENV{HOROVOD_WITHOUT_CUDA}" STREQUAL "1")\n'
        '    set(CMAKE_CUDA_COMPILER "")\n'
        "else()\n"
        "    check_language(CUDA)\n"
        "endif()\n"
        'if(NOT CMAKE_CUDA_COMPILER AND NOT "$ENV{HOROVOD_WITHOUT_CUDA}" STREQUAL "1")\n',
    ),
    # Debug information costs time and disk, and nobody looks at it.
    Edit(
        "CMakeLists.txt",
        'string(REPLACE "-O2" "-O3" CMAKE_CXX_FLAGS_RELWITHDEBINFO',
        'string(REPLACE "-O2 -g" "-O3" CMAKE_CXX_FLAGS_RELWITHDEBINFO',
    ),
    # distutils went with Python 3.12.
    Edit(
        "horovod/torch/CMakeLists.txt",
        "from distutils.sysconfig import get_python_inc; print(get_python_inc())",
        "import sysconfig; print(sysconfig.get_path('include'))",
    ),
    Edit(
        "horovod/runner/js_run.py",
        "from distutils.spawn import find_executable",
        "from shutil import which as find_executable",
    ),
)


def edits_digest() -> str:
    """Changes with the edits."""
    return sha256(json.dumps(EDITS).encode()).hexdigest()


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack the source that we know, and no other, into a folder; edit it; where it lies.

    Raises InstallError.
    """
    found = sha256(archive.read_bytes()).hexdigest()
    if found != SHA256:
        raise InstallError(f"{archive.name} is not the source that is known: its sha256 is {found}")
    with tarfile.open(archive) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # since 3.11.4
        packed.extractall(folder)
    source = folder / f"horovod-{VERSION}"
    for edit in EDITS:
        apply(edit, source)
    return source


def apply(edit: Edit, source: Path) -> None:
    """Raises InstallError where the file is not as the edit knows it."""
    path = source / edit.file
    text = path.read_text() if path.is_file() else ""
    if text.count(edit.before) != 1:
        line = edit.before.partition("\n")[0]
        raise InstallError(f"{edit.file} of Horovod does not hold {line!r} exactly once")
    path.write_text(text.replace(edit.before, edit.after))
