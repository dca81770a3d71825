"""Given a program of a user's, when distrain runs it, then it runs as without distrain."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs

from distrain.runners.records.state import write_state
from tests.integration.cli.conftest import Distrain
from tests.support.programs import SUM

from .conftest import Plain, Write, log_of, only_run, own_variables

LOOK_AROUND = """
    import json, os, sys
    main = sys.modules["__main__"]
    print(json.dumps({
        "argv": sys.argv, "name": __name__, "file": __file__, "path": sys.path[0],
        "spec": getattr(__spec__, "name", None), "package": __package__,
        "is_main": main.__dict__ is globals(), "cwd": os.getcwd(), "variables": dict(os.environ),
        "stdin": sys.stdin.read(), "builtins": type(__builtins__).__name__,
    }))
"""


def seen(text: str) -> dict[str, object]:
    """Return what a program that looks around has printed, without distrain's own variables."""
    found: dict[str, object] = json.loads(text.splitlines()[-1])
    variables = found["variables"]
    assert isinstance(variables, dict)
    return found | {"variables": own_variables(variables)}


@pytest.mark.parametrize(
    "words",
    [
        ("train.py", "--lr", "0.1", "--devices", "many"),
        ("code/train.py",),
        ("-m", "package.train", "-m", "--set"),
        ("-m", "package"),
    ],
)
def test_a_script_sees_what_it_sees_under_python(
    words: tuple[str, ...], write: Write, distrain: Distrain, plain: Plain, runs_dir: Path
) -> None:
    for name in ("train.py", "code/train.py", "package/train.py", "package/__main__.py"):
        write(name, LOOK_AROUND)
    done = distrain("run", *words)
    assert done.returncode == 0, done.stderr
    alone = seen(plain("-u", *words).stdout)
    assert seen(log_of(only_run(runs_dir))) == alone
    assert seen(done.stdout.partition("completed")[0]) == alone


def test_ranks_see_what_they_see_under_torchrun(
    write: Write, distrain: Distrain, plain: Plain, runs_dir: Path
) -> None:
    write("train.py", LOOK_AROUND.replace("print(", "open(os.environ['RANK'], 'w').write("))
    words = ("train.py", "--lr", "0.1")
    done = distrain("run", "--devices", "cpu:2", *words)
    assert done.returncode == 0, done.stderr
    ours = [seen((runs_dir.parent / str(rank)).read_text()) for rank in range(2)]
    torchrun = plain("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *words)
    assert torchrun.returncode == 0, torchrun.stderr
    for rank, found in enumerate(ours):
        alone = seen((runs_dir.parent / str(rank)).read_text())
        variables, expected = found.pop("variables"), alone.pop("variables")
        assert found == alone
        assert isinstance(variables, dict)
        assert isinstance(expected, dict)
        # CPU ranks see no GPU, gloo is told which interface to use, and collectives are noted.
        assert variables.keys() - expected.keys() <= {
            "CUDA_VISIBLE_DEVICES",
            "GLOO_SOCKET_IFNAME",
            "TP_SOCKET_IFNAME",
            "TORCH_FR_BUFFER_SIZE",
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
        }
        assert expected.keys() <= variables.keys()
        same = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS")
        assert {name: variables[name] for name in same} == {name: expected[name] for name in same}


def test_a_script_inherits_a_token_that_its_record_does_not_have(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write("train.py", "import os, sys\nsys.exit(os.environ['API_TOKEN'] != 'xyzzy')\n")
    done = distrain("run", "train.py", API_TOKEN="xyzzy")
    assert done.returncode == 0, done.stderr
    files = [path for path in only_run(runs_dir).dir.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"xyzzy" in path.read_bytes()]


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("def step():\n    raise ValueError('bad lr')\nstep()\n", 1, "rank 0: bad lr"),
        ("import no_such_module\n", 1, "rank 0: No module named 'no_such_module'"),
        ("print('before')\nif True\n    pass\n", 1, "rank 0: expected ':'"),
        ("import sys\nsys.exit(3)\n", 3, "rank 0: exited with code 3"),
        ("import sys\nsys.exit('no data')\n", 1, "rank 0: no data"),
        ("import os\nos._exit(4)\n", 4, "rank 0: exited with code 4 without reporting an error"),
        ("import os\nos.kill(os.getpid(), 9)\n", -9, "rank 0: killed by SIGKILL"),
    ],
)
def test_a_failure_looks_as_under_python(
    text: str,
    code: int,
    message: str,
    write: Write,
    distrain: Distrain,
    plain: Plain,
    runs_dir: Path,
) -> None:
    write("train.py", text)
    done = distrain("run", "train.py")
    alone = plain("train.py")
    record = only_run(runs_dir)
    assert alone.returncode == code
    assert done.returncode == 1
    assert log_of(record) == alone.stdout + alone.stderr
    assert alone.stdout + alone.stderr in done.stdout
    sentence = message.partition(": ")[2]
    assert done.stderr.count(sentence) == 1  # of what its output shows, only who failed and how
    assert record.state.reason.startswith(message)
    assert record.ranks()[0].code == code


@pytest.mark.parametrize("code", [0, 3])
def test_a_script_may_close_all_descriptors(
    code: int, write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write("train.py", f"import os, sys\nos.closerange(3, 4096)\nsys.exit({code})\n")
    done = distrain("run", "train.py")
    record = only_run(runs_dir)
    assert done.returncode == bool(code)
    assert record.state.status == ("failed" if code else "completed")
    assert f"exited with code {code}" in record.state.reason
    assert log_of(record) == (
        "distrain: rank 0: the program has closed its connection, so nothing more of it is "
        "recorded\n"
    )


def test_a_rank_that_fails_is_named(write: Write, distrain: Distrain, runs_dir: Path) -> None:
    write(
        "train.py",
        """
        import os, pathlib, time
        begun = pathlib.Path("rank 0 has begun")
        if os.environ["RANK"] == "1":
            while not begun.exists():
                time.sleep(0.05)
            raise RuntimeError("step 7")
        begun.touch()
        time.sleep(60)
        """,
    )
    done = distrain("run", "--devices", "cpu:2", "train.py")
    assert done.returncode == 1
    error = only_run(runs_dir).state.error
    assert error is not None
    assert (error.rank, error.type, error.message, error.secondary) == (
        1,
        "RuntimeError",
        "step 7",
        [0],
    )
    assert done.stderr.count("RuntimeError: step 7") == 2  # in one sentence, and its traceback
    assert "rank 1 failed: RuntimeError: step 7" in done.stderr
    assert "distrain/runners" not in error.traceback


def test_an_abort_of_c_is_explained(write: Write, distrain: Distrain, runs_dir: Path) -> None:
    write(
        "train.py",
        """
        import torch
        from torch import distributed
        distributed.init_process_group("gloo")
        distributed.all_reduce(torch.ones(4 if distributed.get_rank() == 0 else 100_000))
        """,
    )
    assert distrain("run", "--devices", "cpu:2", "train.py").returncode == 1
    assert "op.preamble.length <= op.nbytes" in only_run(runs_dir).state.reason, "gloo's words"


def test_processes_threads_and_exit_handlers_of_a_script_work(
    write: Write, distrain: Distrain
) -> None:
    write(
        "train.py",
        """
        import atexit, multiprocessing, threading, time

        class Model:
            pass

        def work(model):
            return model, __name__

        def later():
            time.sleep(0.5)
            print("the thread ends", type(Model()).__module__)

        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                model, name = pool.apply(work, (Model(),))
            print(isinstance(model, Model), name)
            atexit.register(print, "goodbye")
            threading.Thread(target=later).start()
        """,
    )
    done = distrain("run", "train.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:3] == [
        "True __mp_main__",
        "the thread ends __main__",
        "goodbye",
    ]


def test_a_script_that_fails_may_finish_its_work(write: Write, distrain: Distrain) -> None:
    write(
        "train.py",
        """
        import atexit, threading, time

        def save():
            time.sleep(3.5)
            print("the thread has saved")

        atexit.register(print, "goodbye")
        threading.Thread(target=save).start()
        raise ValueError("bad lr")
        """,
    )
    done = distrain("run", "train.py")
    assert done.returncode == 1
    assert "the thread has saved\ngoodbye\n" in done.stdout


def test_anything_executable_runs(write: Write, distrain: Distrain, runs_dir: Path) -> None:
    script = write("train.sh", '#!/bin/sh\necho "$RANK of $WORLD_SIZE: $*"\nexit "$1"\n')
    script.chmod(0o755)
    done = distrain("run", "--devices", "cpu:2", "./train.sh", "0", "--lr 1")
    assert done.returncode == 0, done.stderr
    assert {"[rank 0] 0 of 2: 0 --lr 1", "[rank 1] 1 of 2: 0 --lr 1"} <= {*done.stdout.splitlines()}
    shutil.rmtree(runs_dir)
    done = distrain("run", "--", str(script), "5")
    assert done.returncode == 1
    assert only_run(runs_dir).state.reason == "rank 0: exited with code 5"
    assert distrain("run", "--", "true").returncode == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("missing.py",), "script.path: there is no file"),
        (("./missing",), "script.path: there is no file"),
        (("./folder",), "script.path: ./folder is a folder; name a script in it"),
        (("./data.txt",), "is not executable; run `chmod +x` on it"),
        (("./no-shell.sh",), "no-shell.sh must name its shell: #!/bin/sh"),
        (("./windows.sh",), r"windows.sh names '/bin/sh\r', which does not exist"),
        (("--", "no-such-command"), "script.path: there is no file or command no-such-command"),
        (("--",), "name a preset, or a script with its arguments"),
        (("-m",), "-m takes the name of a module"),
        (("-m", "data.py"), "data.py is a file: leave out -m"),
        (("data.txt",), "data.txt is a file, not a preset: write ./data.txt to run it"),
        (("python", "data.py", "--lr", "1"), "leave it out (`distrain run data.py --lr 1`), or"),
        (("python3", "-m", "data"), "leave it out (`distrain run -m data`), or"),
        (("torchrun", "data.py"), "distrain starts the ranks itself (`distrain run --devices"),
        (("-m", "torch.distributed.run", "data.py"), "leave out -m torch.distributed.run, because"),
        (("sh",), "sh is a command, not a preset: put -- before it (`distrain run -- sh`)"),
        (("sh", "data.txt"), "put -- before it (`distrain run -- sh data.txt`)"),
        (("data",), "there is no preset 'data'; did you mean data.py?"),
        (("--lr", "1", "data.py"), "unknown option '--lr'; put options of a script after it"),
        (("-m", "not-a-module"), "script.module"),
        (("--launcher", "spawn", "data.py"), "spawn starts functions, not scripts"),
        (
            ("--devices", "cpu:2", "--launcher", "inline", "data.py"),
            "2 CPU processes need torchrun",
        ),
        (("--set", "train.lr=0.1", "data.py"), "the script decides this itself; leave out train"),
        (("--set", "strategy=ddp", "data.py"), "a script wraps its model itself"),
    ],
)
def test_bad_input_gets_one_sentence(
    words: tuple[str, ...], sentence: str, write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write("data.txt", "")
    write("data.py", "")
    write("no-shell.sh", "echo 1").chmod(0o755)
    write("windows.sh", "#!/bin/sh\r\n").chmod(0o755)
    (runs_dir.parent / "folder").mkdir()
    done = distrain("run", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not runs_dir.exists()


def test_a_module_that_is_missing_is_an_error_of_the_run(
    distrain: Distrain, runs_dir: Path
) -> None:
    assert distrain("run", "-m", "no_such_package.train").returncode == 1
    assert "No module named 'no_such_package'" in only_run(runs_dir).state.reason


def test_a_preset_of_a_script_runs_from_anywhere(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write("project/train.py", "import sys, helper\nprint(helper.NAME, *sys.argv[1:])\n")
    write("project/helper.py", "NAME = 'mine'\n")
    write("project/run.toml", '[script]\npath = "train.py"\nargs = ["--lr", "1"]\n')
    done = distrain("run", "project/run.toml", "--name", "first")
    assert done.stdout.startswith("mine --lr 1\n"), done.stderr
    for words in (
        ("run", "project/run.toml", "--set", 'script.args=["2"]'),
        ("rerun", "first", "--set", 'script.args=["2"]'),
    ):
        assert distrain(*words).stdout.startswith("mine 2\n")
    saved = distrain("presets", "save", "mine", "--from", "first-2")
    assert saved.returncode == 0, saved.stderr
    assert distrain("run", "mine").stdout.startswith("mine 2\n")
    dry = distrain("run", "--dry-run", "project/run.toml")
    assert dry.returncode == 0
    assert dry.stderr == "each rank runs: python train.py --lr 1\n"
    dry = distrain("run", "--dry-run", "--", "true", "1")
    assert dry.stderr == "each rank runs: true 1\n"


def test_a_script_without_figures_says_so(write: Write, distrain: Distrain, runs_dir: Path) -> None:
    write("train.py", "print('hello')\n")
    done = distrain("run", "--json", "train.py", "--lr", "1")
    found = json.loads(done.stdout)
    assert "hello" in done.stderr
    expected = {"strategy": "script", "script": "train.py --lr 1", "world_size": 1}
    unknown = dict.fromkeys(("precision", "epochs", "steps", "samples", "samples_per_s", "eval"))
    assert found.items() >= (expected | unknown).items()
    for words in (("show", "latest"), ("runs",), ("compare", "latest", "latest")):
        shown = distrain(*words)
        assert "Traceback" not in shown.stderr
        assert "None" not in shown.stdout
    write("run.toml", '[script]\npath = "train.py"\n')
    refused = distrain("verify", "./run.toml")
    assert refused.returncode == 2
    assert "a check needs a preset without one" in refused.stderr


def test_ranks_of_a_scheduler_run_a_script(
    write: Write, environment: dict[str, str], tmp_path: Path, runs_dir: Path
) -> None:
    write("train.py", SUM)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    given = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    command = [
        sys.executable,
        "-m",
        "distrain",
        "run",
        "--launcher",
        "env",
        "train.py",
        "--lr",
        "1",
    ]
    ranks = [
        subprocess.Popen(
            command,
            env=environment | given | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
        )
        for rank in range(2)
    ]
    assert [rank.wait(120) for rank in ranks] == [0, 0]
    record = only_run(runs_dir)
    assert [log_of(record, rank).splitlines()[-1] for rank in range(2)] == ["sum 3 --lr 1"] * 2


def test_who_comes_later_sees_the_last_lines(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write("train.py", "for number in range(100_000):\n    print('line', number)\n")
    first = distrain("run", "train.py").stdout
    assert first.startswith("line 0\nline 1\n")
    assert "line 99999\n" in first
    record = only_run(runs_dir)
    write_state(record.dir, structs.replace(record.state, created=record.created - 60))
    later = distrain("watch", "latest").stdout
    assert "line 99999\n" in later
    assert "line 50000\n" not in later
