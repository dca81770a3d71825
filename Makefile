# Everything runs in .venv, made here on first use; a later call only checks two time stamps.
PYTHON ?= python3
VENV   := .venv
INTEGRATIONS := .venv-integrations
BIN    := $(VENV)/bin
# What the app and runs need; where the development tools are installed, all of it is.
APP    := $(firstword $(wildcard $(VENV)/ready) $(VENV)/app-ready)

# More workers than cores, because tests wait most of their time.
PYTEST := $(BIN)/python -m pytest --durations=25 --dist worksteal -n $$((2 * $$(nproc)))

FUZZ   ?= short

.PHONY: help demo tui horovod browser slurm slurm-down check test fuzz test-cluster test-horovod \
	test-gpu test-hosts test-slurm test-integrations test-faults lint types layers bench clean
help:
	@echo "make demo          train with two-process DDP on the digits images"
	@echo "make tui           open the terminal app"
	@echo "make check         lint, types, layers, unit tests and tests of the app: minutes"
	@echo "make test          check, then the tests with real runs"
	@echo "make test-cluster  test-horovod, test-hosts and test-slurm, which make test leaves out"
	@echo "make test-horovod  build and install Horovod, then run its tests"
	@echo "make test-hosts    run the tests with several hosts (Linux, as root)"
	@echo "make test-slurm    install Slurm, then run the tests with a cluster (Debian, as root)"
	@echo "make test-gpu      run the tests and benchmarks that need a GPU; writes build/gpu"
	@echo "make test-integrations  run the tests with wandb, Lightning and others, in .venv-integrations"
	@echo "make fuzz          fuzz what is read from others: a minute; FUZZ=full: half an hour or more"
	@echo "make test-faults   break runs in 280 ways; writes docs/reliability.md (Linux, as root; 40 minutes)"
	@echo "make horovod       build Horovod for the installed torch and install it"
	@echo "make slurm         install Slurm and start two nodes on this machine (Debian, as root)"
	@echo "make slurm-down    stop that cluster"
	@echo "make browser       install Chromium, in which tests open a report (Debian, as root)"
	@echo "make bench         run the benchmarks (an hour and a half)"
	@echo "make clean         remove both environments and caches"
	@echo "The first call installs into .venv: for tui and demo only what they need."

$(VENV)/ready: pyproject.toml constraints.txt
	@echo "setting up $(VENV): PyTorch is large, this takes a few minutes the first time"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $@

demo: $(APP)
	@$(BIN)/distrain run ddp

$(VENV)/app-ready: pyproject.toml constraints.txt
	@echo "setting up $(VENV): PyTorch is large, this takes a few minutes the first time"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

tui: $(APP)
	@$(BIN)/distrain-tui

check: lint types layers
	$(PYTEST) tests/unit tests/tui

test: check
	$(PYTEST) tests/integration tests/gpu
	@echo "Left: make test-cluster (Horovod, several hosts, Slurm) and make test-integrations."

test-gpu: $(VENV)/ready
	PYTHON=$(BIN)/python tests/gpu/tryout build/gpu facts tests presets overhead precisions

test-cluster: test-horovod test-hosts test-slurm

horovod: $(VENV)/ready
	@PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/distrain doctor --fix horovod

test-horovod: horovod
	DISTRAIN_HOROVOD=required $(PYTEST) tests/cluster/horovod

slurm: $(VENV)/ready
	@which slurmctld slurmd sbatch munged ip >/dev/null || { \
	  export DEBIAN_FRONTEND=noninteractive; apt-get update -qq && \
	  apt-get install -qq --no-install-recommends slurmctld slurmd slurm-client munge iproute2; }
	@$(BIN)/python -m tests.cluster.slurm.cluster up

slurm-down: $(VENV)/ready
	@$(BIN)/python -m tests.cluster.slurm.cluster down

test-slurm: slurm
	DISTRAIN_SLURM=required $(PYTEST) tests/cluster/slurm

test-hosts: $(VENV)/ready
	DISTRAIN_HOSTS=required $(PYTEST) tests/cluster/hosts

# The one case with Slurm needs a cluster that make slurm has started.
test-faults: horovod
	$(BIN)/python -m tests.faults

# transformers and Lightning import torchvision where they find it, and its wheel from PyPI cannot be
# imported with a CPU-only torch. Scripts do not need it.
# Only the modules that the tests import are compiled, when they are imported first.
$(INTEGRATIONS)/ready: pyproject.toml constraints.txt
	@echo "setting up $(INTEGRATIONS): this takes a few minutes the first time"
	$(PYTHON) -m venv $(INTEGRATIONS)
	$(INTEGRATIONS)/bin/python -m pip install --no-compile --quiet --constraint constraints.txt \
	  --editable ".[integrations]"
	$(INTEGRATIONS)/bin/python -m pip uninstall --quiet --yes torchvision
	@touch $@

test-integrations: $(INTEGRATIONS)/ready
	PYTHONDONTWRITEBYTECODE= DISTRAIN_INTEGRATIONS=required $(INTEGRATIONS)/bin/python -m pytest --durations=25 \
	  --dist worksteal -n $$(nproc) tests/integrations

# Atheris is of no use to other targets, and has wheels for few platforms.
$(VENV)/fuzz-ready: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[fuzz]"
	@touch $@

fuzz: $(VENV)/fuzz-ready
	$(BIN)/python -m tests.fuzz $(if $(filter full,$(FUZZ)),--full)

browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { \
	  export DEBIAN_FRONTEND=noninteractive; apt-get update -qq && \
	  apt-get install -qq --no-install-recommends chromium; }

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/ready
	$(BIN)/mypy

layers: $(VENV)/ready
	$(BIN)/lint-imports

bench: $(VENV)/ready
	@for name in overhead script peers startup ingest open open_logged listing tui plots stragglers agreement; do $(BIN)/python -m benchmarks.$$name || exit 1; done

clean:
	rm -rf $(VENV) $(INTEGRATIONS) .fuzz .pytest_cache .mypy_cache .ruff_cache .hypothesis
