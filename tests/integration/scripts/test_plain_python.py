"""Given a program, when distrain runs it, then it prints and exits as under `python`."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Distrain

from .conftest import Plain, Write, log_of, only_run

PROGRAMS = {
    "an exit handler finds the exception": (
        """
        import atexit, sys

        def show():
            found = sys.last_type, sys.last_traceback.tb_lineno, getattr(sys, "last_exc", None)
            print(repr(sys.last_value), *found, file=sys.stderr)

        atexit.register(show)
        raise ValueError("bad lr")
        """,
        "bad lr",
    ),
    "an exit code of 256 is one of 0": ("import sys\nsys.exit(256)\n", ""),
    "an exit by another value than a code": ("import sys\nsys.exit(0.0)\n", "0.0"),
    "a hook for exceptions fails": (
        """
        import sys

        def hook(kind, error, trace):
            print(sys.exc_info(), trace.tb_lineno, file=sys.stderr)
            raise KeyError("of the hook")

        sys.excepthook = hook
        raise ValueError("bad lr")
        """,
        "bad lr",
    ),
    "a hook for exceptions exits": (
        """
        import sys
        sys.excepthook = lambda *_: sys.exit(7)
        raise ValueError("bad lr")
        """,
        "bad lr",
    ),
    "a signal to the processes of its group": (
        """
        import os, signal, subprocess
        child = subprocess.Popen(["sleep", "600"])
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
        print(child.wait())
        """,
        "",
    ),
    "text that cannot be encoded": (
        """
        import sys
        print(sys.stdout.errors, sys.stderr.errors)
        sys.stderr.write("\\udcff\\n")
        print("\\ud800")
        """,
        "'utf-8' codec can't encode",
    ),
    "an exception that has passed distrain is the cause of another": (
        """
        import distrain

        def load():
            yield 1 / 0

        try:
            next(iter(distrain.track(load())))
        except ZeroDivisionError as error:
            raise RuntimeError("no batch") from error
        """,
        "no batch",
    ),
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_a_program_ends_as_under_python(
    what: str, write: Write, distrain: Distrain, plain: Plain, runs_dir: Path
) -> None:
    text, reason = PROGRAMS[what]
    write("train.py", text)
    done = distrain("run", "train.py")
    alone = plain("train.py")
    record = only_run(runs_dir)
    assert log_of(record) == alone.stdout + alone.stderr
    assert record.state.status == ("failed" if reason else "completed")
    assert (record.ranks()[0].code or 0) == alone.returncode
    assert done.returncode == bool(alone.returncode)
    assert reason in record.state.reason


# The names of modules that distrain itself uses, also late: those of the program are empty.
OWN_MODULES = (
    "ast", "asyncio", "csv", "datetime", "inspect", "linecache", "logging", "msgspec", "queue",
    "random", "resource", "selectors", "signal", "socket", "threading", "token", "tokenize",
    "traceback", "uuid", "wrapt",
)  # fmt: skip


def test_modules_of_a_program_are_not_hidden_by_those_of_distrain(
    write: Write, distrain: Distrain, plain: Plain, runs_dir: Path
) -> None:
    for name in OWN_MODULES:
        write(f"code/{name}.py", f"print('the program has imported its own {name}')\n")
    write("code/email/__init__.py", "")
    write("code/json/no_module.txt", "")
    text = f"""
        import {", ".join(OWN_MODULES)}
        import email, json
        print(hasattr(email, "message"), json.dumps([]))

        def fail(value):
            return 1 + (value / 0)

        fail(1)
        """
    write("code/train.py", text)
    write("code/reports.py", "import distrain\n" + textwrap.dedent(REPORTS))
    alone = plain("code/train.py")
    done = distrain("run", "code/train.py", "--name", "first")
    assert done.returncode == 1
    record = only_run(runs_dir)
    assert log_of(record) == alone.stdout + alone.stderr
    assert record.state.reason == "rank 0: division by zero"
    # What distrain does while the program runs imports none of them.
    shown = distrain("run", "code/reports.py")
    assert "the program has imported" not in shown.stdout
    assert shown.returncode == 1


REPORTS = """
    run = distrain.init(config={"lr": 0.1})
    for batch in distrain.track([[1], [2]]):
        with distrain.phase("forward"):
            distrain.log({"loss": 1.0})
        distrain.step(samples=1)
        assert not distrain.should_stop()
    distrain.log_eval({"loss": 1.0}, samples=2)
    distrain.log({"bad": object()})
    run.finish()
    raise ValueError("1 + (2 / 0)")
"""
