"""Runs scripts as a rank observes them, without a supervisor: `python -m … < SCRIPTS > FIGURES`.

Torch is imported once, and each script runs in a fork of that process, so that many are cheap.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Mapping
from typing import Any

from distrain.runners.instrumentation import api, automatic
from distrain.runners.instrumentation.rank_session import RankSession
from distrain.runners.protocol.events import (
    PHASES,
    Logged,
    RankFacts,
    ScriptSettings,
    as_dict,
)
from tests.support.reporters import RecordingReporter

PREAMBLE = """
import distrain, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def loader(samples=24, batch_size=4, **options):
    data = TensorDataset(torch.ones(samples, 2), torch.ones(samples, 1))
    return DataLoader(data, batch_size=batch_size, **options)

def loss_of(model, batch):
    return nn.functional.mse_loss(model(batch[0]), batch[1])

model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

"""


def run_scripts(scripts: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return what was reported of each script, which follows PREAMBLE."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", __name__],
        input=json.dumps(scripts),
        capture_output=True,
        text=True,
        timeout=200,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


class _Sent(RecordingReporter):
    def figures(self) -> dict[str, Any]:
        windows = self.windows
        settings = self.events_of(ScriptSettings)
        facts = self.events_of(RankFacts)
        logged = [name for event in self.events_of(Logged) for name in event.values]
        return {
            "steps": sum(window.steps for window in windows),
            "samples": sum(window.samples for window in windows),
            "skipped": sum(window.skipped for window in windows),
            "seconds": sum(window.seconds for window in windows),
            "lr": windows[-1].lr if windows else None,
            "phases": [name for name in PHASES if any(getattr(each, name) for each in windows)],
            "measured": sum(getattr(each, name) for each in windows for name in PHASES),
            "sources": settings[-1].sources if settings else {},
            "missing": settings[-1].missing if settings else {},
            "logged": sorted(set(logged)),
            "facts": as_dict(facts[-1]) if facts else {},
        }


def _observe(script: str) -> dict[str, Any]:
    sent, output = _Sent(), io.StringIO()
    session = RankSession(sent, 0, window_s=0.0, skip_steps=0)
    api.begin(session)
    automatic.install(session)
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            exec(compile(PREAMBLE + textwrap.dedent(script), "script", "exec"), {})
        except Exception:
            traceback.print_exc()
    session.flush()
    return {**sent.figures(), "output": output.getvalue()}


def main() -> None:
    import torch._dynamo  # noqa: F401  # which optimizers load too, once here

    scripts = json.load(sys.stdin)
    found = {}
    for name, script in scripts.items():
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.write(writer, json.dumps(_observe(script)).encode())  # less than a pipe holds
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            found[name] = json.loads(pipe.read() or "{}")
        os.wait()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
