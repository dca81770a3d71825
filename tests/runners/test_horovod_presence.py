"""Whether Horovod can be used: asked of stand-ins for it, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_nvml import fake_torch

from runners import horovod
from runners.config import RunConfig
from runners.devices import Device
from runners.errors import ConfigError
from runners.horovod import presence
from runners.horovod.presence import Presence
from runners.runs import check

CPUS = [Device(kind="cpu", index=index) for index in range(2)]
GPUS = [Device(kind="cuda", index=index, uuid=f"GPU-{index}") for index in range(2)]
ROOT = Path(__file__).parents[2]
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


class Stand:
    """A folder with a Horovod that does as told, and a cache that nobody else has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = folder / "horovod"
        self.library = self.package / "torch" / "mpi_lib_v2.so"

    def put(self, code: str, built_for: str = "") -> None:
        (self.package / "torch").mkdir(parents=True)
        (self.package / "__init__.py").touch()
        (self.package / "torch" / "__init__.py").write_text(code)
        self.library.write_bytes(b"as it was built")
        if built_for:
            (self.package / "metadata.json").write_text(f'{{"pytorch": "{built_for}"}}')

    @property
    def times_loaded(self) -> int:
        file = self.package / "torch" / "loaded"
        return len(file.read_text()) if file.exists() else 0

    def problem(self, *more: Path) -> str:
        return self.asked("problem()", *more)

    def asked(self, call: str, *more: Path) -> str:
        paths = [str(path) for path in (self.folder, *more, ROOT)]
        done = subprocess.run(
            [sys.executable, "-c", f"from runners.horovod import *; print({call})"],
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
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


def test_one_that_works_is_loaded_once(stand: Stand) -> None:
    stand.put(WORKS)
    assert [stand.problem(), stand.problem()] == ["", ""]
    assert stand.times_loaded == 1


@pytest.mark.parametrize(
    ("built", "via", "devices", "lacks"),
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
def test_what_it_was_built_without_is_refused_by_its_key(
    built: str, via: str, devices: list[Device], lacks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Presence(**dict.fromkeys(built.split(), True))
    monkeypatch.setattr(presence, "presence", lambda: found)
    assert [key for key, _ in presence.problems(via, devices)] == lacks


def test_that_it_is_missing_is_said_with_all_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "presence", lambda: Presence("it is not there", "build it"))
    config = RunConfig().with_changes(
        {"strategy": "horovod", "launcher": "torchrun", "devices": "cpu:2", "data.name": "none"}
    )
    with pytest.raises(ConfigError) as caught:
        check(config)
    assert {key for key, _ in caught.value.problems} == {"launcher", "strategy", "data.name"}


def test_what_libraries_print_beside_is_no_answer(stand: Stand) -> None:
    noise = "import atexit; print('MPI begins'); atexit.register(print, 'UCX ends')"
    stand.put(f"{WORKS}\n{noise}")
    assert stand.problem() == ""


def test_one_that_ends_python_is_not_taken_for_one_that_works(stand: Stand) -> None:
    stand.put("import os; os._exit(0)")
    assert "Python ended before it was" in stand.problem()


def test_another_build_of_it_is_asked_anew(stand: Stand) -> None:
    stand.put(WORKS)
    assert stand.problem() == ""
    stand.library.write_bytes(b"built once more")
    assert stand.problem() == ""
    assert stand.times_loaded == 2


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise ImportError('libmpi.so.40: no such file')", "ImportError: libmpi.so.40: no such"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "it was killed by SIGSEGV"),
        ("print('Warning! MPI libs are missing')", "it is built without PyTorch"),
    ],
)
def test_one_that_cannot_be_loaded_says_why_and_what_to_do(
    stand: Stand, code: str, reason: str
) -> None:
    stand.put(code)
    said = stand.problem()
    assert said.startswith("Horovod cannot be loaded: ")
    assert reason in said
    assert said.endswith(f"; build it anew with `{horovod.FIX}`")


def test_a_bad_answer_is_doubted_after_a_while(stand: Stand) -> None:
    stand.put("raise ImportError('libmpi.so.40: no such file')")
    assert "libmpi" in stand.problem()
    (stand.package / "torch" / "__init__.py").write_text(WORKS)  # the library came
    assert "libmpi" in stand.problem()
    for answer in stand.folder.glob("cache/distrain/horovod/answers/*.json"):
        then = time.time() - presence.DOUBT_S - 1
        os.utime(answer, (then, then))
    assert stand.problem() == ""


def test_one_for_another_torch_is_not_even_loaded(stand: Stand, tmp_path: Path) -> None:
    torch = fake_torch(tmp_path / "torch-of-today")
    stand.put(WORKS, built_for="1.13.1")
    said = stand.problem(torch)
    assert said.startswith("Horovod is built for torch 1.13.1, this is torch ")
    assert stand.times_loaded == 0


def test_one_that_pip_did_not_finish_does_not_work(stand: Stand) -> None:
    stand.put(WORKS)
    noted = stand.folder / "horovod-0.28.1.dist-info"
    noted.mkdir()
    said = f"the installation of Horovod was broken off; repeat it with `{horovod.FIX}`"
    assert stand.problem() == said
    (noted / "INSTALLER").write_text("pip\n")
    assert stand.problem() == ""


@pytest.mark.parametrize("folder", ["made", "runners"])
def test_what_only_has_its_name_is_no_horovod(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder without a package, as that of our tests is, and a package of ours."""
    (tmp_path / "made" / "horovod" / "torch").mkdir(parents=True)
    monkeypatch.setattr(
        sys, "path", [str(ROOT / folder if folder == "runners" else tmp_path / folder)]
    )
    assert horovod.problem() == f"Horovod is not installed; install it with `{horovod.FIX}`"


def test_a_cache_that_cannot_be_written_costs_time_only(stand: Stand) -> None:
    stand.put(WORKS)
    (stand.folder / "cache").write_text("no folder")
    assert stand.problem() == ""
