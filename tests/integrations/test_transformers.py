"""Given a script with a Trainer of Hugging Face, when it runs, then its training is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrain.runners.protocol.events import Evaluation
from tests.integration.cli.conftest import Distrain
from tests.integration.scripts.conftest import Write, log_of, only_run, summary
from tests.integration.scripts.test_stopping import Launch, wait_for_text

from .conftest import History, curve

TRAINS = """
    import json, sys
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    def texts(count):
        tokens = [(torch.arange(8) + number) % 16 for number in range(count)]
        return [{"input_ids": each, "labels": each} for each in tokens]

    settings = {"report_to": "tensorboard"}
    callbacks = []
    if "--ours" in sys.argv:
        from distrain.integrations.transformers import DistrainCallback
        settings = {}
        callbacks = [DistrainCallback(), DistrainCallback()]  # the second one changes nothing
    size = dict(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=1)
    trainer = Trainer(
        GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0)),
        TrainingArguments(
            "out",
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            eval_strategy="epoch",
            save_strategy="no",
            logging_steps=1,
            disable_tqdm=True,
            use_cpu=True,
            **settings,
        ),
        train_dataset=texts(48),
        eval_dataset=texts(20),
        callbacks=callbacks,
    )
    trainer.train()
    if trainer.is_world_process_zero():
        with open("history.json", "w") as file:
            json.dump(trainer.state.log_history, file)
"""
TWO_EPOCHS = TRAINS.replace("EPOCHS", "2")
LONG = TRAINS.replace("EPOCHS", "100_000").replace('"--ours" in sys.argv', "True")

TWICE = TWO_EPOCHS.replace("trainer.train()", "[trainer.train() for _ in range(2)]")


def test_what_an_unchanged_script_logs_is_recorded(
    write: Write, distrain: Distrain, history: History, runs_dir: Path
) -> None:
    write("train.py", TWO_EPOCHS)
    found = summary(distrain, "train.py")
    record = only_run(runs_dir)
    assert found["status"] == "completed", log_of(record)
    losses = [entry["loss"] for entry in history() if "loss" in entry]
    assert curve(record, "train/loss") == (12, pytest.approx(sum(losses)), 12)
    assert curve(record, "eval/loss")[::2] == (2, 12)
    assert found["sources"]["values"] == "SummaryWriter"


def test_two_ranks_with_the_callback_have_exact_steps_samples_and_evaluations(
    write: Write, distrain: Distrain, history: History, runs_dir: Path
) -> None:
    write("train.py", TWO_EPOCHS)
    found = summary(distrain, "--devices", "cpu:2", "train.py", "--ours")
    record = only_run(runs_dir)
    assert found["status"] == "completed", log_of(record)
    # 48 samples on 2 ranks are 6 batches of 4 each, of which 2 make a step.
    assert (found["world_size"], found["steps"], found["samples"]) == (2, 6, 96)
    losses = [entry["loss"] for entry in history() if "loss" in entry]
    for rank in range(2):
        assert curve(record, "loss", rank) == (6, pytest.approx(sum(losses)), 6)
    evaluated = [entry["eval_loss"] for entry in history() if "eval_loss" in entry]
    assert found["eval"] == {"loss": pytest.approx(evaluated[-1]), "samples": 20}
    evaluations = [event for event in record.evaluations() if isinstance(event, Evaluation)]
    assert [event.step for event in evaluations] == [3, 6]
    assert not any(name.startswith("eval") for name in found["metrics"])
    settings = record.script_settings().config
    assert settings["gradient_accumulation_steps"] == 2
    assert not {"hub_token", "learning_rate"} & {*settings}  # not changed from the defaults


def test_what_a_later_training_logs_is_recorded_after_the_first(
    write: Write, distrain: Distrain, runs_dir: Path
) -> None:
    write("train.py", TWICE)
    found = summary(distrain, "train.py", "--ours")
    record = only_run(runs_dir)
    assert found["status"] == "completed", log_of(record)
    assert found["steps"] == 24
    assert curve(record, "loss")[::2] == (24, 24)


def test_a_trainer_stops_with_the_run_and_saves(launch: Launch, tmp_path: Path) -> None:
    run = launch(LONG, "--devices", "cpu:2")
    wait_for_text(run, "eval_loss")
    run.stop()
    found = run.wait(120)
    assert found["status"] == "stopped", run.reason
    (saved,) = (tmp_path / "out").glob("checkpoint-*")
    assert saved.name == f"checkpoint-{found['steps']}"
