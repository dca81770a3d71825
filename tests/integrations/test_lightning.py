"""Given a script with a Trainer of Lightning, when it runs, then its training is recorded."""

from __future__ import annotations

from pathlib import Path

from distrain.runners.protocol.events import Evaluation
from tests.integration.cli.conftest import Distrain
from tests.integration.scripts.conftest import Write, log_of, only_run, summary
from tests.integration.scripts.test_stopping import Launch, wait_for_text

from .conftest import curve

TRAINS = """
    import json, os, sys
    import torch
    import lightning.pytorch as pl
    from torch.utils.data import DataLoader, TensorDataset

    class Model(pl.LightningModule):
        def __init__(self, lr=0.001):
            super().__init__()
            self.save_hyperparameters()
            self.layer = torch.nn.Linear(4, 1)
            self.losses = []

        def training_step(self, batch, index):
            loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
            self.log("loss", loss)
            self.losses.append(loss.item())
            return loss

        def validation_step(self, batch, index):
            self.log("mean", batch[1].mean())

        def on_train_epoch_end(self):
            print("trained", flush=True)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)

    def load(count):
        data = TensorDataset(torch.randn(count, 4), torch.arange(float(count))[:, None])
        return DataLoader(data, batch_size=4)

    logger = True
    if "--ours" in sys.argv:
        from distrain.integrations.lightning import DistrainLogger
        logger = [DistrainLogger(), DistrainLogger()]  # the second one changes nothing
    world = int(os.environ.get("WORLD_SIZE", "1"))
    for _ in range(2 if "--twice" in sys.argv else 1):
        trainer = pl.Trainer(
            max_epochs=EPOCHS,
            accumulate_grad_batches=2,
            log_every_n_steps=1,
            logger=logger,
            accelerator="cpu",
            devices=world,
            strategy="ddp" if world > 1 else "auto",
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        model = Model()
        if "--find" in sys.argv:
            from lightning.pytorch.tuner import Tuner
            Tuner(trainer).lr_find(model, load(200), num_training=30, early_stop_threshold=None)
        trainer.fit(model, load(22), load(10))
    with open(f"losses-{trainer.global_rank}.json", "w") as file:
        json.dump(model.losses, file)
    print("left in step", trainer.global_step)
"""
TWO_EPOCHS = TRAINS.replace("EPOCHS", "2")
LONG = TRAINS.replace("EPOCHS", "100_000").replace('"--ours" in sys.argv', "True")


def test_what_an_unchanged_script_logs_is_recorded(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write("train.py", TWO_EPOCHS)
    found = summary(distrain, "train.py")
    record = only_run(runs_dir)
    assert found["status"] == "completed", log_of(record)
    # 22 samples are 6 batches, of which 2 make a step. Lightning counts its steps from 0.
    assert curve(record, "loss")[::2] == (6, 5)
    assert curve(record, "mean") == (2, 9.0, 5)
    assert found["sources"]["values"] == "SummaryWriter"


def test_two_ranks_with_the_logger_have_exact_steps_samples_and_evaluations(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write("train.py", TWO_EPOCHS)
    found = summary(distrain, "--devices", "cpu:2", "train.py", "--ours")
    record = only_run(runs_dir)
    assert found["status"] == "completed", log_of(record)
    # 11 samples for each rank are 3 batches: a step of 8 samples and one of 3.
    assert (found["world_size"], found["steps"], found["samples"]) == (2, 4, 44)
    assert curve(record, "loss", 1)[::2] == (4, 3)
    # Lightning itself has means of 4.0 and 5.0: each of the 5 samples of one rank.
    assert found["eval"] == {"mean": 4.5, "samples": 10}
    evaluations = [event for event in record.evaluations() if isinstance(event, Evaluation)]
    assert [event.step for event in evaluations] == [2, 4]
    assert {*found["metrics"]} == {"loss", "epoch"}
    assert record.script_settings().config == {"lr": 0.001}


def test_what_a_later_trainer_logs_is_recorded_after_the_first(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write("train.py", TWO_EPOCHS)
    found = summary(distrain, "train.py", "--ours", "--twice")
    record = only_run(runs_dir)
    assert found["status"] == "completed", log_of(record)
    assert found["steps"] == 12
    assert curve(record, "loss")[::2] == (12, 12)


def test_steps_of_the_learning_rate_finder_come_before_those_of_the_trainer(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write("train.py", TWO_EPOCHS)
    found = summary(distrain, "train.py", "--ours", "--find")
    record = only_run(runs_dir)
    assert found["status"] == "completed", log_of(record)
    # The finder makes 30 steps of 8 samples.
    assert (found["steps"], found["samples"]) == (36, 240 + 44)
    assert curve(record, "loss")[::2] == (6, 36)
    evaluations = [event for event in record.evaluations() if isinstance(event, Evaluation)]
    assert [event.step for event in evaluations] == [33, 36]


def test_a_trainer_stops_with_the_run(launch: Launch) -> None:
    run = launch(LONG, "--devices", "cpu:2")
    wait_for_text(run, "trained", 2)
    run.stop()
    found = run.wait(120)
    assert found["status"] == "stopped", run.reason
    for rank in range(2):
        assert f"left in step {found['steps']}" in log_of(run.record, rank)
