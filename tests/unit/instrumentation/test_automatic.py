"""Given a script that is not changed, when it trains with torch, then its figures are exact.

The names of `PREAMBLE` are used: `loader()` has 24 samples in batches of 4.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tests.support.observed_scripts import run_scripts

SGD = "optimizer steps of SGD"


class Expected(NamedTuple):
    steps: int
    samples: int
    source: str | None = SGD
    skipped: int = 0


SCRIPTS = {
    "a plain loop": (
        """
        for epoch in range(3):
            for batch in loader(samples=26):
                optimizer.zero_grad()
                loss_of(model, batch).backward()
                optimizer.step()
        """,
        Expected(21, 78),
    ),
    "accumulation with a remainder, and evaluations": (
        """
        train, val = loader(), loader(100)
        for epoch in range(2):
            for number, batch in enumerate(train, 1):
                loss_of(model, batch).backward()
                if number % 4 == 0:
                    optimizer.step()
                    optimizer.zero_grad()
                    for batch in val:  # within the epoch, left early
                        loss_of(model, batch)
                        break
            with torch.no_grad():
                for batch in val:
                    loss_of(model, batch)
        """,
        Expected(2, 40),
    ),
    "two optimizers": (
        """
        generator = torch.optim.Adam(nn.Linear(2, 1).parameters(), lr=0.5)
        for batch in loader():
            for each in (optimizer, generator):
                each.zero_grad()
                loss_of(model, batch).backward()
                each.step()
        """,
        Expected(6, 24, f"{SGD}; not counted: Adam"),
    ),
    "accumulation and two optimizers, tracked and logged": (
        """
        generator = torch.optim.Adam(nn.Linear(2, 1).parameters(), lr=0.5)
        for number, batch in enumerate(distrain.track(loader(samples=26)), 1):
            for each in (optimizer, generator):
                loss_of(model, batch).backward()
                if number % 2 == 0:
                    each.step()
                    each.zero_grad()
            distrain.log({"number": number})
        """,
        Expected(3, 24, f"{SGD}; not counted: Adam"),
    ),
    "an optimizer after another one": (
        """
        def train():
            optimizer = torch.optim.Adam(model.parameters(), lr=0.25)
            for batch in loader():
                loss_of(model, batch).backward()
                optimizer.step()
        train()
        train()
        """,
        Expected(12, 48, "optimizer steps of Adam"),
    ),
    "a second stage, while the first optimizer lives": (
        """
        second = torch.optim.Adam(model.parameters(), lr=0.25)
        for each, epochs in ((optimizer, 2), (second, 5)):
            for epoch in range(epochs):
                for batch in loader():
                    loss_of(model, batch).backward()
                    each.step()
        """,
        Expected(42, 168, "optimizer steps of Adam"),
    ),
    "a third stage after a short one, while the optimizers of both live": (
        """
        short = torch.optim.RMSprop(model.parameters(), lr=0.5)
        long = torch.optim.Adam(model.parameters(), lr=0.25)
        for each, epochs in ((optimizer, 2), (short, 1), (long, 5)):
            for epoch in range(epochs):
                for batch in loader():
                    loss_of(model, batch).backward()
                    each.step()
        """,
        Expected(42, 168, "optimizer steps of Adam; not counted: RMSprop"),
    ),
    "checkpoints of torch.distributed, for which torch makes the state of the optimizer": (
        """
        from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
        parts = get_state_dict(model, optimizer)
        set_state_dict(
            model, optimizer, model_state_dict=parts[0], optim_state_dict=parts[1]
        )
        for batch in loader():
            loss_of(model, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
            get_state_dict(model, optimizer)
        """,
        Expected(6, 24),
    ),
    "an engine of DeepSpeed, which steps once to make a state, and then for each group": (
        """
        import types, wrapt
        class DeepSpeedEngine:
            def __init__(self):
                self._configure_optimizer()
            def _configure_optimizer(self):
                optimizer.step()
            def _take_model_step(self):
                groups = optimizer.param_groups
                for group in groups:
                    optimizer.param_groups = [group]
                    scaler.step(optimizer)
                    scaler.update()
                optimizer.param_groups = groups
        module = types.ModuleType("deepspeed.runtime.engine")
        module.DeepSpeedEngine = DeepSpeedEngine
        wrapt.notify_module_loaded(module)
        groups = [{"params": [model.weight]}, {"params": [model.bias], "lr": 0.2}]
        optimizer = torch.optim.SGD(groups, lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        engine = DeepSpeedEngine()
        for number, batch in enumerate(loader(), 1):
            scaler.scale(loss_of(model, batch)).backward()
            if number % 2 == 0:
                engine._take_model_step()
                optimizer.zero_grad()
        """,
        Expected(3, 24),
    ),
    "a gradient scaler": (
        """
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for number, batch in enumerate(loader()):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = loss_of(model, batch)
            scaler.scale(loss * float("inf") if number in (0, 3) else loss).backward()
            scaler.step(optimizer)
            scaler.update()
        """,
        Expected(6, 24, skipped=2),
    ),
    "a gradient scaler, and an optimizer whose step is replaced meanwhile, as by Accelerate": (
        """
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        original = optimizer.step
        for number, batch in enumerate(loader()):
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            scaler.scale(loss * float("inf") if number in (0, 3) else loss).backward()
            optimizer.step = lambda *arguments: original(*arguments)
            scaler.step(optimizer)
            scaler.update()
            optimizer.step = original
        """,
        Expected(6, 24, skipped=2),
    ),
    "a gradient scaler and a fused optimizer": (
        """
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for number, batch in enumerate(loader()):
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            scaler.scale(loss * float("inf") if number == 2 else loss).backward()
            scaler.step(optimizer)
            scaler.update()
        """,
        Expected(6, 24, skipped=1),
    ),
    "a gradient scaler, and a wrapper of an optimizer whose first step is skipped": (
        """
        class Wrapper(torch.optim.Optimizer):
            def __init__(self):
                self.param_groups = optimizer.param_groups
                self.state = optimizer.state
            def step(self):
                return optimizer.step()
        wrapper = Wrapper()
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for number, batch in enumerate(loader()):
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            scaler.scale(loss * float("inf") if number == 0 else loss).backward()
            scaler.step(wrapper)
            scaler.update()
        """,
        Expected(5, 24),
    ),
    "an optimizer whose step calls that of its type, as Horovod makes them": (
        """
        class Averaging(torch.optim.Optimizer):
            def __init__(self, params):
                super(self.__class__, self).__init__(params)
            def step(self, closure=None):
                return super(self.__class__, self).step(closure)
        kind = type("SGD", (type(optimizer),), dict(vars(Averaging)))
        distributed = kind(optimizer.param_groups)
        for batch in loader():
            loss_of(model, batch).backward()
            distributed.step()
        """,
        Expected(6, 24),
    ),
    "an optimizer whose step calls that of its type, of which one is made later": (
        """
        class Announcing(torch.optim.Adam):
            def step(self, closure=None):
                return super().step(closure)
        announcing = Announcing(model.parameters(), lr=0.1)
        for epoch in range(2):
            for batch in loader():
                loss_of(model, batch).backward()
                announcing.step()
            torch.optim.Adam(model.parameters())
        """,
        Expected(12, 48, "optimizer steps of Announcing"),
    ),
    "a batch read to look at it, and a data set that an evaluation reads too": (
        """
        train = loader()
        for epoch in range(2):
            len(next(iter(train))[0])
            for batch in train:
                loss_of(model, batch).backward()
                optimizer.step()
            with torch.no_grad():
                for batch in train:
                    loss_of(model, batch)
        """,
        Expected(12, 48),
    ),
    "a closure": (
        """
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
        for batch in loader():
            def closure():
                optimizer.zero_grad()
                loss = loss_of(model, batch)
                loss.backward()
                return loss
            optimizer.step(closure)
        """,
        Expected(6, 24, "optimizer steps of LBFGS"),
    ),
    "workers that load": (
        """
        for batch in loader(num_workers=2, persistent_workers=True):
            loss_of(model, batch).backward()
            optimizer.step()
        """,
        Expected(6, 24),
    ),
    "passes with persistent workers that are left early": (
        """
        train = loader(num_workers=1, persistent_workers=True)
        val = loader(100, num_workers=1, persistent_workers=True)
        for epoch in range(3):
            for number, batch in enumerate(train):
                if number == 2:
                    break
                loss_of(model, batch).backward()
                optimizer.step()
            for batch in val:
                loss_of(model, batch)
                break
        """,
        Expected(6, 24),
    ),
    "a loader that is read in a thread": (
        """
        import queue, threading
        batches = queue.Queue()
        threading.Thread(target=lambda: [batches.put(batch) for batch in loader()]).start()
        for number in range(6):
            loss_of(model, batches.get()).backward()
            optimizer.step()
        """,
        Expected(6, 0),
    ),
    "tracked, though a loader of torch": (
        """
        batches = distrain.track(loader())
        assert len(batches) == 6 and batches.batch_size == 4
        for epoch in range(2):
            for batch in batches:
                loss_of(model, batch).backward()
                optimizer.step()
            for batch in loader(100):
                loss_of(model, batch)
        """,
        Expected(12, 48),
    ),
    "steps of its own, after a step of the optimizer": (
        """
        for batch in loader():
            loss_of(model, batch).backward()
            optimizer.step()
            distrain.step()
        """,
        Expected(6, 24, "distrain.step()"),
    ),
    "tracked, without an optimizer": (
        """
        del optimizer
        for batch in distrain.track(loader()):
            with torch.no_grad():
                model.weight += 1
        """,
        Expected(6, 24, "batches of distrain.track()"),
    ),
    "phases of its own": (
        """
        for batch in loader():
            with distrain.phase("forward"):
                loss = loss_of(model, batch)
            with distrain.phase("comm"), distrain.phase("sync"):
                loss.backward()
            optimizer.step()
        """,
        Expected(6, 24),
    ),
    "compiled": (
        """
        @torch.compile(backend="eager")
        def train(batch):
            loss = loss_of(model, batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        for batch in loader():
            train(batch)
        """,
        Expected(6, 24),
    ),
    "what is visible": (
        """
        import copy, inspect, io, pickle
        batches = loader()
        for batch in batches:
            loss_of(model, batch).backward()
            optimizer.step()
        for each in (batches, model, optimizer):
            assert b"distrain" not in pickle.dumps(each)
            copy.deepcopy(each)
        assert not model._forward_hooks and not optimizer._optimizer_step_post_hooks
        assert type(iter(batches)).__name__ == "_SingleProcessDataLoaderIter"
        for function in (torch.autograd.backward, torch.amp.GradScaler.step):
            assert "tensors" in str(inspect.signature(function)) or "optimizer" in str(
                inspect.signature(function))
        torch.save(model.state_dict(), file := io.BytesIO())
        assert b"distrain" not in file.getvalue()
        """,
        Expected(6, 24),
    ),
    "steps of its own, after those of the optimizer, while nothing is reported": (
        """
        from distrain.runners.instrumentation.automatic import hooked
        for number, batch in enumerate(loader(), 1):
            loss_of(model, batch).backward()
            if number == 3:
                hooked.session.loop.due = float("inf")
            optimizer.step()
            distrain.step()
            assert hooked.session.steps == number
        """,
        Expected(6, 24, "distrain.step()"),
    ),
    "an optimizer without a learning rate, while nothing is reported": (
        """
        from distrain.runners.instrumentation.automatic import hooked
        class Halving(torch.optim.Optimizer):
            @torch.no_grad()
            def step(self):
                for parameter in self.param_groups[0]["params"]:
                    parameter /= 2
        optimizer = Halving(model.parameters(), {})
        for number, batch in enumerate(loader()):
            loss_of(model, batch).backward()
            if number == 3:
                hooked.session.loop.due = float("inf")
            optimizer.step()
        """,
        Expected(6, 24, "optimizer steps of Halving"),
    ),
    "two loaders for each step": (
        """
        import time
        def wait(batch):
            time.sleep(0.02)
            return torch.utils.data.default_collate(batch)
        for one, two in zip(loader(collate_fn=wait), loader()):
            (loss_of(model, one) + loss_of(model, two)).backward()
            optimizer.step()
        """,
        Expected(6, 0),
    ),
    "a generator that reads the training data without gradients, and an evaluation": (
        """
        import time
        def wait(batch):
            time.sleep(0.02)
            return torch.utils.data.default_collate(batch)
        @torch.no_grad()
        def read():
            yield from loader(collate_fn=wait)
        for batch in read():
            loss_of(model, batch).backward()
            optimizer.step()
        with torch.no_grad():
            for batch in loader(collate_fn=wait):
                loss_of(model, batch)
        """,
        Expected(6, 0),
    ),
    "two fused optimizers of a gradient scaler, one of which skips": (
        """
        other = nn.Linear(2, 1)
        both = [torch.optim.SGD(each.parameters(), lr=0.1, fused=True) for each in (model, other)]
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for batch in loader():
            scaler.scale(loss_of(model, batch)).backward()
            scaler.scale(loss_of(other, batch) * float("inf")).backward()
            for each in both:
                scaler.step(each)
            scaler.update()
        """,
        Expected(6, 24, f"{SGD}; not counted: SGD"),
    ),
    "tracked, and steps in another thread": (
        """
        import threading
        from distrain.runners.instrumentation.automatic import hooked
        for number, batch in enumerate(distrain.track(loader(160))):
            assert hooked.session.automatic.expects_step() == (number == 0)
            loss_of(model, batch).backward()
            thread = threading.Thread(target=optimizer.step)
            thread.start()
            thread.join()
        """,
        Expected(40, 160, "batches of distrain.track()"),
    ),
    "optimizers that are not counted, and make most steps": (
        """
        from distrain.runners.instrumentation.automatic import hooked
        optimizer.step()
        weights = [torch.zeros(1, requires_grad=True) for _ in range(300)]
        others = [torch.optim.SGD([weight], lr=0.1) for weight in weights]
        for _ in range(10):
            for other in others:
                other.step()
        assert len(hooked.session.loop.events.others) <= 2_000
        """,
        Expected(1, 0, f"{SGD}; not counted: SGD"),
    ),
    "a device, which is asked whether it records a graph": (
        """
        from types import SimpleNamespace
        from distrain.runners.instrumentation.automatic import hooked, optimizers
        asked = []
        records = lambda: asked.append(batch) or number == 6
        optimizers.cuda = SimpleNamespace(is_current_stream_capturing=records)
        hooked.uses_cuda = True
        for number, batch in enumerate(loader(samples=32)):
            if number == 3:
                hooked.session.loop.due = float("inf")
            loss_of(model, batch).backward()
            optimizer.step()
        assert len(asked) == 2 * 6 + 1
        """,
        Expected(6, 24, None),
    ),
    "weights that are changed by hand": (
        """
        from distrain.runners.instrumentation.automatic import hooked
        for _ in range(3_000):
            loss_of(model, (torch.ones(4, 2), torch.ones(4, 1))).backward()
        assert len(hooked.session.loop.events.others) <= 2_000
        """,
        Expected(0, 0, None),
    ),
    "an evaluation, which is progress": (
        """
        from distrain.runners.protocol.evaluated_batches import seconds_since_evaluated_batch
        data = loader()
        for batch in data:
            loss_of(model, batch).backward()
            optimizer.step()
        assert seconds_since_evaluated_batch() is None
        for batch in loader():
            loss_of(model, batch)
        assert seconds_since_evaluated_batch() is not None
        """,
        Expected(6, 24),
    ),
    "an evaluation next to tracked batches, which is progress": (
        """
        from distrain.runners.protocol.evaluated_batches import seconds_since_evaluated_batch
        for batch in distrain.track(loader()):
            loss_of(model, batch).backward()
            optimizer.step()
        assert seconds_since_evaluated_batch() is None
        with torch.no_grad():
            for batch in loader():
                loss_of(model, batch)
        assert seconds_since_evaluated_batch() is not None
        """,
        Expected(6, 24),
    ),
    "a mistake of ours": (
        """
        from distrain.runners.instrumentation.automatic import hooked
        counter, hooked.session.loop.counter = hooked.session.loop.counter, None
        for batch in loader():
            loss_of(model, batch).backward()
            optimizer.step()
        print("the end")
        hooked.session.loop.counter = counter
        """,
        Expected(0, 0, ""),
    ),
}


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    return run_scripts({name: script for name, (script, _) in SCRIPTS.items()})


@pytest.mark.parametrize("name", SCRIPTS)
def test_figures(name: str, found: dict[str, dict[str, Any]]) -> None:
    figures = found[name]
    expected = SCRIPTS[name][1]
    if name == "a mistake of ours":
        assert figures["output"].count("further problems are not printed") == 1
        assert figures["output"].endswith("the end\n")
        return
    assert figures["output"] == ""
    steps, samples, skipped = figures["steps"], figures["samples"], figures["skipped"]
    assert (steps, samples, skipped) == (expected.steps, expected.samples, expected.skipped)
    assert figures["sources"].get("steps") == expected.source
    assert figures["measured"] <= figures["seconds"]


def test_phases_and_rate(found: dict[str, dict[str, Any]]) -> None:
    plain = found["a plain loop"]
    assert plain["phases"] == ["data", "forward", "backward", "optimizer"]
    assert (plain["lr"], plain["sources"]["lr"]) == (0.1, "parameter group 0 of SGD")
    assert {*plain["missing"]} == {"comm", "values"}
    assert found["an optimizer after another one"]["lr"] == 0.25
    engine = "an engine of DeepSpeed, which steps once to make a state, and then for each group"
    assert found[engine]["lr"] == 0.1
    assert "forward" in found["a closure"]["phases"]
    threaded = found["a loader that is read in a thread"]
    assert threaded["phases"] == ["backward", "optimizer"]
    assert {"samples", "data", "forward"} <= threaded["missing"].keys()
    two = found["two loaders for each step"]
    assert two["phases"] == ["data", "forward", "backward", "optimizer"]
    assert two["seconds"] >= 0.1
    decorated = "a generator that reads the training data without gradients, and an evaluation"
    assert found[decorated]["phases"] == ["data", "forward", "backward", "optimizer"]
    assert found[decorated]["seconds"] >= 0.1
    own = found["phases of its own"]
    assert own["phases"] == ["data", "forward", "comm", "optimizer"]
    assert own["sources"]["forward"] == own["sources"]["comm"] == "distrain.phase()"
    assert own["logged"] == ["phase/sync"]
    assert own["sources"]["values"] == "distrain.phase()"
