"""Installation of Horovod, as far as possible without a compiler: pip is a script."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from distrain.runners.errors import InstallError
from distrain.runners.horovod import install, source, toolchain, wheel
from distrain.runners.horovod.install import Installation
from distrain.runners.horovod.presence import Presence
from distrain.runners.horovod.source import PATCHES, Patch, apply, unpack
from distrain.runners.horovod.subprocesses import Commands, InstallStoppedError, find_error
from distrain.runners.horovod.toolchain import Toolchain, find_toolchain
from distrain.runners.horovod.wheel import build, cached_wheel, parse_progress

CPU = Toolchain(torch="2.13.0")
# A pip that copies files of its own folder, and prints the progress of make in a build.
PIP = """
import pathlib, shutil, sys, time
folder, arguments = pathlib.Path(__file__).parent, sys.argv[1:]
def after(option):
    return pathlib.Path(arguments[arguments.index(option) + 1])
if arguments[0] == "download":
    assert {sha!r} in after("--requirement").read_text()
    shutil.copy(folder / "horovod-0.28.1.tar.gz", after("--dest"))
elif arguments[0] == "wheel":
    print("[ 42%] Building CXX object", flush=True)
    {build}
    after("--wheel-dir").mkdir()
    (after("--wheel-dir") / "horovod-0.28.1.whl").write_text((folder / "horovod").name)
"""


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test its own cache and temporary folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    return tmp_path


def tree(folder: Path) -> Path:
    """Write files that contain what the patches expect, and little else."""
    root = folder / f"horovod-{source.VERSION}"
    for patch in PATCHES:
        file = root / patch.file
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as text:
            text.write(f"before\n{patch.before}\nafter\n")
    return root


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive of that tree, with the expected digest."""
    path = tmp_path / "horovod-0.28.1.tar.gz"
    with tarfile.open(path, "w:gz") as packed:
        packed.add(tree(tmp_path / "tree"), arcname=f"horovod-{source.VERSION}")
    monkeypatch.setattr(source, "SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    return path


@pytest.fixture
def pip(archive: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replace pip by a script; the argument is the code that it runs as the compiler."""

    def use(build_code: str = "pass") -> None:
        script = archive.with_name("pip.py")
        script.write_text(PIP.format(sha=source.SHA256, build=build_code))
        for module in (wheel, install):
            monkeypatch.setattr(module, "PIP", [sys.executable, str(script)])

    return use


def make_commands(folder: Path) -> Commands:
    return Commands(folder / "build.log", lambda line: None)


def ignore(stage: str) -> None:
    pass


# --- the source --------------------------------------------------------------------------------


def test_every_patch_is_applied(archive: Path, tmp_path: Path) -> None:
    folder = unpack(archive, tmp_path / "unpacked")
    for patch in PATCHES:
        text = (folder / patch.file).read_text()
        assert text.count(patch.after) == 1, patch
        assert patch.before not in text.replace(patch.after, ""), patch


@pytest.mark.parametrize("times", [0, 2])
def test_an_unexpected_file_is_not_patched(tmp_path: Path, times: int) -> None:
    patch = Patch("CMakeLists.txt", "set(A 1)\n", "set(A 2)\n")
    (tmp_path / patch.file).write_text(patch.before * times)
    with pytest.raises(InstallError, match=r"CMakeLists.txt .*'set\(A 1\)' exactly once"):
        apply(patch, tmp_path)


def test_another_archive_is_refused_without_unpacking_it(archive: Path, tmp_path: Path) -> None:
    archive.write_bytes(archive.read_bytes() + b"more")
    with pytest.raises(InstallError, match="its sha256 is"):
        unpack(archive, tmp_path / "unpacked")
    assert not (tmp_path / "unpacked").exists()


# --- the toolchain -----------------------------------------------------------------------------


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Toolchain]:
    """Return a function that finds the toolchain of a machine with the given programs."""
    for name in [name for name in os.environ if name.startswith(("HOROVOD", "CUDA"))]:
        monkeypatch.delenv(name)

    def has(*programs: str, cuda: str | None = None) -> Toolchain:
        folder = tmp_path / "toolkit" / "bin"
        folder.mkdir(parents=True, exist_ok=True)
        for name in programs:
            (folder / name).write_text("#!/bin/sh\n")
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        monkeypatch.setattr(toolchain, "torch_build", lambda: {"version": "2.13.0", "cuda": cuda})
        return find_toolchain()

    return has


@pytest.mark.parametrize("programs", [("make",), ("g++",)])
def test_without_a_compiler_the_error_names_the_command_that_installs_it(
    bare: Callable[..., Toolchain], programs: tuple[str, ...]
) -> None:
    with pytest.raises(InstallError, match=r"was not found.*apt-get install build-essential"):
        bare(*programs)


def test_without_the_headers_of_python_the_error_names_the_command_as_well(
    bare: Callable[..., Toolchain], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(InstallError, match=r"has no Python.h.*apt-get install python3-dev"):
        bare("g++", "make")


def test_a_torch_for_cpu_gets_a_horovod_for_cpu_even_with_an_nvcc(
    bare: Callable[..., Toolchain], tmp_path: Path
) -> None:
    found = bare("g++", "make", "nvcc")
    environment = found.environment(tmp_path)
    assert found.extras == ["cpu"]
    assert environment["HOROVOD_WITHOUT_CUDA"] == environment["HOROVOD_WITHOUT_MPI"] == "1"
    assert "HOROVOD_GPU_OPERATIONS" not in environment


def test_a_torch_for_cuda_gets_nccl_if_its_header_is_found(
    bare: Callable[..., Toolchain], tmp_path: Path
) -> None:
    header = tmp_path / "toolkit" / "include" / "nccl.h"
    header.parent.mkdir(parents=True)
    header.touch()
    found = bare("g++", "make", "nvcc", "mpicxx", cuda="0.1")
    environment = found.environment(tmp_path)
    assert found.extras == ["cuda0.1", "nccl", "mpi"]
    assert environment["HOROVOD_GPU_OPERATIONS"] == "NCCL"
    assert environment["HOROVOD_CUDA_HOME"] == str(tmp_path / "toolkit")
    assert not environment.keys() & {"HOROVOD_WITHOUT_CUDA", "HOROVOD_WITHOUT_MPI"}


def test_variables_of_the_user_are_not_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOROVOD_WITHOUT_GLOO", "1")
    monkeypatch.setenv("HOROVOD_GPU_ALLREDUCE", "MPI")
    monkeypatch.setenv("MAKEFLAGS", "-j3")
    with_cuda = Toolchain(torch="2", cuda="12.8", cuda_home="/cuda", nccl="/cuda/include")
    environment = with_cuda.environment(tmp_path)
    assert environment["HOROVOD_WITHOUT_GLOO"] == "1"
    assert environment["MAKEFLAGS"] == "-j3"
    assert "HOROVOD_GPU_OPERATIONS" not in environment  # Horovod refuses both


def test_an_mpi_that_the_user_wants_is_left_to_the_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOROVOD_WITH_MPI", "1")
    assert "HOROVOD_WITHOUT_MPI" not in CPU.environment(tmp_path)


@pytest.mark.parametrize(
    "other",
    [
        Toolchain(torch="2.13.1"),
        Toolchain(torch="2.13.0", cuda="12.8", cuda_home="/cuda"),
        Toolchain(torch="2.13.0", mpi="/usr/bin/mpicxx.openmpi"),
    ],
)
def test_a_wheel_is_for_one_toolchain(other: Toolchain) -> None:
    assert other.key != CPU.key == Toolchain(torch="2.13.0").key


def test_a_wheel_is_for_one_set_of_patches_and_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {CPU.key}
    with monkeypatch.context() as patch:
        patch.setattr(source, "PATCHES", PATCHES[1:])
        keys.add(CPU.key)
    with monkeypatch.context() as patch:
        patch.setenv("HOROVOD_CPU_OPERATIONS", "MPI")
        keys.add(CPU.key)
    with monkeypatch.context() as patch:
        patch.setenv("HOROVOD_CYCLE_TIME", "5")  # of a run, not of a build
        keys.add(CPU.key)
    assert len(keys) == 3


# --- building ----------------------------------------------------------------------------------


def test_a_build_caches_its_wheel_and_leaves_nothing_else(
    pip: Callable[..., None], own_folders: Path
) -> None:
    pip()
    stages: list[str] = []
    built = build(CPU, make_commands(own_folders), stages.append)
    assert stages == ["downloading", "unpacking", "building"]
    assert built == cached_wheel(CPU)
    assert [path.name for path in built.parent.iterdir()] == ["horovod-0.28.1.whl"]
    assert list((own_folders / "scratch").iterdir()) == []
    assert cached_wheel(Toolchain(torch="2.13.1")) is None


def test_a_failed_build_names_the_reason_and_its_log_and_leaves_nothing_else(
    pip: Callable[..., None], own_folders: Path
) -> None:
    pip("sys.exit('a.cc:3:1: error: no such thing\\nmake: *** [all] Error 1')")
    with pytest.raises(InstallError) as caught:
        build(CPU, make_commands(own_folders), ignore)
    log = own_folders / "build.log"
    reason = "the build of Horovod failed: a.cc:3:1: error: no such thing"
    assert str(caught.value) == f"{reason}; the whole output is in {log}"
    assert "[ 42%] Building" in log.read_text()
    assert cached_wheel(CPU) is None
    assert list((own_folders / "scratch").iterdir()) == []


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["x", "ERROR: No matching distribution", "y"], "No matching distribution"),
        (["CMake Error at CMakeLists.txt:40 (project):", "No compiler", "z"],
         "CMake Error at CMakeLists.txt:40 (project): No compiler"),
        (["g++ -Werror a.cc", "Killed"], "Killed"),
        ([], "it printed nothing"),
    ],
)  # fmt: skip
def test_the_error_is_found_in_the_output(lines: list[str], reason: str) -> None:
    assert find_error(lines) == reason


@pytest.mark.parametrize(
    ("line", "share"), [("[  7%] Building", 0.07), ("[100%] Linking", 1.0), ("see [50%]", None)]
)
def test_the_progress_of_make_is_parsed(line: str, share: float | None) -> None:
    assert parse_progress(line) == share


# --- the installation --------------------------------------------------------------------------


def test_stopping_kills_every_process_and_leaves_nothing(
    pip: Callable[..., None], own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a compiler that is a child of a child
    sleeps = "import time; print('[ 50%] Building', flush=True); time.sleep(600)"
    pip(f"import subprocess; subprocess.run([sys.executable, '-c', {sleeps!r}])")
    monkeypatch.setattr(install, "presence", lambda refresh: Presence("it is not installed"))
    monkeypatch.setattr(install, "find_toolchain", lambda: CPU)
    half_way = threading.Event()
    installation = Installation(lambda progress: half_way.set() if progress.share == 0.5 else None)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            installation.run()
        except InstallStoppedError as error:
            errors.append(error)

    # Earlier tests may have left processes, such as a resource tracker.
    others = set(psutil.Process().children(recursive=True))
    thread = threading.Thread(target=run)
    thread.start()
    assert half_way.wait(60)
    started = set(psutil.Process().children(recursive=True)) - others
    assert len(started) >= 2
    installation.stop()
    thread.join(60)
    assert len(errors) == 1
    assert psutil.wait_procs(started, timeout=10)[1] == []
    assert cached_wheel(CPU) is None
    assert list((own_folders / "scratch").iterdir()) == []


def test_a_second_installation_waits_for_the_first_and_can_be_stopped(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "presence", lambda refresh: Presence("it is not installed"))
    folder = own_folders / "cache" / "distrain" / "horovod"
    folder.mkdir(parents=True)
    with (folder / "lock").open("w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        stages: list[str] = []
        installation = Installation(lambda progress: stages.append(progress.stage))
        timer = threading.Timer(0.5, installation.stop)
        timer.start()
        with pytest.raises(InstallStoppedError):
            installation.run()
        timer.join()
    assert stages == ["checking the installed Horovod", "waiting for another build"]


def test_a_cached_wheel_that_does_not_work_is_rebuilt(
    pip: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pip()
    answers = iter([Presence("none"), Presence("none"), Presence("broken"), Presence(gloo=True)])
    monkeypatch.setattr(install, "presence", lambda refresh: next(answers))
    monkeypatch.setattr(install, "find_toolchain", lambda: CPU)
    old = build(CPU, make_commands(Path(tempfile.mkdtemp())), ignore)
    shutil.rmtree(old.parent)
    old.parent.mkdir()
    old.with_name("old.whl").touch()
    stages: list[str] = []
    result = Installation(lambda progress: stages.append(progress.stage)).run()
    assert "built in" in result
    assert stages.count("building") > 0
    assert [path.name for path in old.parent.iterdir()] == [old.name]
