"""Whether Horovod can be used, found out with fake packages in separate processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distrain.runners import horovod
from distrain.runners.checks import check
from distrain.runners.config.schema import RunConfig
from distrain.runners.errors import ConfigError
from distrain.runners.horovod import presence
from distrain.runners.horovod.presence import Presence
from distrain.runners.system.devices import Device
from tests.support import ROOT
from tests.support.fake_nvml import fake_torch

CPUS = [Device(kind="cpu", index=index) for index in range(2)]
GPUS = [Device(kind="cuda", index=index, uuid=f"GPU-{index}") for index in range(2)]
WORKS = """
from pathlib import Path
def init(): ...
def gloo_built(): return True
def mpi_built(): return False
def nccl_built(): return 0
def cuda_built(): return False
with Path(__file__).with_name("loaded").open("a") as file:
    file.write("x")
"""
PRINT_PROBLEM = "from distrain.runners.horovod import problem; print(problem())"


class FakeHorovod:
    """A folder with a fake package `horovod`, and its own cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = folder / "horovod"
        self.library = self.package / "torch" / "mpi_lib_v2.so"

    def install(self, code: str, built_for: str = "") -> None:
        (self.package / "torch").mkdir(parents=True)
        (self.package / "__init__.py").touch()
        (self.package / "torch" / "__init__.py").write_text(code)
        self.library.write_bytes(b"first build")
        if built_for:
            (self.package / "metadata.json").write_text(f'{{"pytorch": "{built_for}"}}')

    @property
    def times_loaded(self) -> int:
        file = self.package / "torch" / "loaded"
        return len(file.read_text()) if file.exists() else 0

    def problem(self, *more: Path) -> str:
        """Return what `problem()` returns in a new process with these folders on its path."""
        paths = [str(path) for path in (self.folder, *more, ROOT / "src")]
        done = subprocess.run(
            [sys.executable, "-c", PRINT_PROBLEM],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(paths),
                "XDG_CACHE_HOME": str(self.folder / "cache"),
            },
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()


@pytest.fixture
def fake(tmp_path: Path) -> FakeHorovod:
    return FakeHorovod(tmp_path)


def test_a_working_horovod_is_imported_once(fake: FakeHorovod) -> None:
    fake.install(WORKS)
    assert [fake.problem(), fake.problem()] == ["", ""]
    assert fake.times_loaded == 1


@pytest.mark.parametrize(
    ("built", "via", "devices", "keys"),
    [
        ("gloo", "distrain", CPUS, []),
        ("gloo", "mpirun", CPUS, ["horovod.via"]),
        ("gloo mpi", "mpirun", CPUS, []),
        ("mpi", "distrain", CPUS, ["horovod.via"]),
        ("mpi", "horovodrun", CPUS, ["horovod.via"]),
        ("mpi", "mpirun", CPUS, []),
        ("gloo", "distrain", GPUS, ["devices"]),
        ("gloo cuda nccl", "distrain", GPUS, []),
        ("gloo cuda nccl", "distrain", GPUS[:1] * 2, ["devices"]),
        ("gloo cuda", "distrain", GPUS[:1] * 2, []),
        ("gloo", "mpirun", [], ["horovod.via"]),
    ],
)
def test_a_missing_build_option_is_a_problem_of_its_key(
    built: str, via: str, devices: list[Device], keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = Presence(**dict.fromkeys(built.split(), True))
    monkeypatch.setattr(presence, "presence", lambda: installed)
    assert [key for key, _ in presence.problems(via, devices)] == keys


def test_a_missing_horovod_is_reported_with_all_other_problems(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(presence, "presence", lambda: Presence("it is not installed", "build it"))
    config = RunConfig().with_changes(
        {"strategy": "horovod", "launcher": "torchrun", "devices": "cpu:2", "data.name": "none"}
    )
    with pytest.raises(ConfigError) as caught:
        check(config)
    assert {key for key, _ in caught.value.problems} == {"launcher", "strategy", "data.name"}


def test_output_of_libraries_is_not_taken_for_the_answer(fake: FakeHorovod) -> None:
    noise = "import atexit; print('MPI begins'); atexit.register(print, 'UCX ends')"
    fake.install(f"{WORKS}\n{noise}")
    assert fake.problem() == ""


def test_an_import_that_exits_python_is_a_problem(fake: FakeHorovod) -> None:
    fake.install("import os; os._exit(0)")
    assert "Python exited during its import" in fake.problem()


def test_another_build_is_imported_again(fake: FakeHorovod) -> None:
    fake.install(WORKS)
    assert fake.problem() == ""
    fake.library.write_bytes(b"second build")
    assert fake.problem() == ""
    assert fake.times_loaded == 2


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise ImportError('libmpi.so.40: no such file')", "ImportError: libmpi.so.40: no such"),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
            "its import was killed by SIGSEGV",
        ),
        ("print('Warning! MPI libs are missing')", "it is built without PyTorch"),
    ],
)
def test_an_import_that_fails_is_reported_with_reason_and_fix(
    fake: FakeHorovod, code: str, reason: str
) -> None:
    fake.install(code)
    problem = fake.problem()
    assert problem.startswith("Horovod cannot be loaded: ")
    assert reason in problem
    assert problem.endswith(f"; rebuild it with `{horovod.FIX}`")


def test_a_cached_problem_is_checked_again_after_a_while(fake: FakeHorovod) -> None:
    fake.install("raise ImportError('libmpi.so.40: no such file')")
    assert "libmpi" in fake.problem()
    (fake.package / "torch" / "__init__.py").write_text(WORKS)  # the library was installed
    assert "libmpi" in fake.problem()
    for answer in fake.folder.glob("cache/distrain/horovod/answers/*.json"):
        past = time.time() - presence.RETRY_AFTER_S - 1
        os.utime(answer, (past, past))
    assert fake.problem() == ""


def test_a_build_for_another_torch_is_not_imported(fake: FakeHorovod, tmp_path: Path) -> None:
    torch = fake_torch(tmp_path / "torch-of-today")
    fake.install(WORKS, built_for="1.13.1")
    problem = fake.problem(torch)
    assert problem.startswith("Horovod is built for torch 1.13.1, this is torch ")
    assert fake.times_loaded == 0


def test_an_interrupted_installation_is_a_problem(fake: FakeHorovod) -> None:
    fake.install(WORKS)
    metadata = fake.folder / "horovod-0.28.1.dist-info"
    metadata.mkdir()
    problem = f"the installation of Horovod was interrupted; repeat it with `{horovod.FIX}`"
    assert fake.problem() == problem
    (metadata / "INSTALLER").write_text("pip\n")
    assert fake.problem() == ""


@pytest.mark.parametrize("folder", ["made", "runners"])
def test_a_folder_named_horovod_is_not_horovod(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a folder without a package, as in the tests, or distrain's own package
    (tmp_path / "made" / "horovod" / "torch").mkdir(parents=True)
    monkeypatch.setattr(
        sys, "path", [str(ROOT / folder if folder == "runners" else tmp_path / folder)]
    )
    assert horovod.problem() == f"Horovod is not installed; install it with `{horovod.FIX}`"


def test_a_cache_that_cannot_be_written_only_costs_time(fake: FakeHorovod) -> None:
    fake.install(WORKS)
    (fake.folder / "cache").write_text("no folder")
    assert fake.problem() == ""
