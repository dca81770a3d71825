"""Given a script that logs with other libraries, when it runs, then its values are recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cli.conftest import Distrain
from tests.integration.scripts.conftest import Plain, Write, log_of, only_run, summary

from .conftest import curve

# Values are 1, 2, … 5 at the steps 0, 10, … 40 where the script gives steps.
LOGS = """
    import inspect, pickle
    import mlflow, numpy, tensorboardX, torch, trackio, wandb
    from torch.utils.tensorboard import SummaryWriter

    def seen(call, *arguments, **keywords):
        try:
            print("seen", call(*arguments, **keywords))
        except Exception as error:
            print("seen", type(error).__name__)

    writer, other = SummaryWriter("board"), tensorboardX.SummaryWriter("other")
    run = wandb.init(project="project", dir=".")
    trackio.init(project="project")
    mlflow.start_run()
    for number in range(1, 6):
        step = 10 * (number - 1)
        seen(writer.add_scalar, "loss", torch.tensor(float(number)), global_step=step)
        seen(writer.add_scalars, "acc", {"train": number, "val": numpy.float32(number)}, step)
        seen(writer.add_histogram, "weights", torch.ones(3), step)
        seen(other.add_scalar, "x/loss", number, step)
        seen(wandb.log, {"w/loss": number, "loss": 99, "text": "text", "many": [1, 2]}, step=step)
        run.log({"deep": {"er": {"value": torch.tensor(number)}}, "h": wandb.Histogram([1, 2])})
        seen(trackio.log, {"t/loss": number, "text": "text"}, step=step)
        seen(mlflow.log_metric, "m/loss", number, step=step)
        seen(mlflow.log_metrics, {"m/acc": number}, step)
    seen(writer.add_scalar, "bad", torch.ones(3), 50)
    seen(writer.add_scalar, "worse")
    seen(mlflow.log_metric, "bad", "text")
    seen(wandb.log, ["no mapping"])
    wandb.finish()
    seen(run.log, {"late": 1})
    trackio.finish()
    mlflow.end_run()
    for function in (SummaryWriter.add_scalar, wandb.Run.log, mlflow.log_metrics):
        seen(lambda: inspect.signature(function))
        assert pickle.loads(pickle.dumps(function)) is function
"""
STEPPED = ("loss", "acc/train", "acc/val", "x/loss", "w/loss", "t/loss", "m/loss", "m/acc")


def seen(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("seen")]


def test_numbers_are_recorded_once_and_the_script_notices_nothing(
    write: Write, distrain: Distrain, plain: Plain, runs_dir: Path
) -> None:
    write("logs.py", LOGS)
    found = summary(distrain, "logs.py")
    record = only_run(runs_dir)
    assert found["status"] == "completed", log_of(record)
    for name in STEPPED:
        assert curve(record, name) == (5, 15.0, 40), name
    assert curve(record, "deep.er.value")[:2] == (5, 15.0)
    assert {*found["metrics"]} == {*STEPPED, "deep.er.value"}
    sources = "SummaryWriter, tensorboardX, wandb.log, trackio.log, mlflow"
    assert found["sources"]["values"] == sources
    assert "distrain" not in log_of(record)
    alone = plain("logs.py")
    assert seen(log_of(record)) == seen(alone.stdout)
    assert {"seen AssertionError", "seen TypeError", "seen UsageError"} <= {*seen(alone.stdout)}


@pytest.mark.parametrize("mode", ["disabled"])
def test_values_are_recorded_where_wandb_itself_is_off(
    mode: str, write: Write, distrain: Distrain
) -> None:
    write("logs.py", "import wandb\nwandb.init()\nfor _ in range(3):\n    wandb.log({'loss': 1})\n")
    done = distrain("run", "logs.py", WANDB_MODE=mode)
    assert done.returncode == 0, done.stderr
    assert '"loss": 1.0' in distrain("show", "latest", "--json").stdout
