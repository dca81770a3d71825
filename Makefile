# Everything runs in .venv, made here on first use; a later call only checks two time stamps.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: help demo tui horovod browser slurm slurm-down test test-horovod test-slurm test-hosts lint types layers bench clean
help:
	@echo "make demo     set up and run the main job: two-process DDP on the digits images"
	@echo "make tui      set up and open the terminal app"
	@echo "make test     set up and run lint, types, layers and tests, two at a time"
	@echo "make horovod  set up, build Horovod for the torch that is here and install it"
	@echo "make test-horovod  the same, then the tests that need Horovod"
	@echo "make slurm    install Slurm and bring up two nodes on this machine (Debian, as root)"
	@echo "make slurm-down  end that cluster"
	@echo "make test-slurm  install Slurm, then run the tests that need a cluster"
	@echo "make test-hosts  run the tests that need several hosts (Linux, as root)"
	@echo "make browser  install Chromium, in which tests look at a report (Debian, as root)"
	@echo "make bench    set up and run the benchmarks (an hour and a half)"
	@echo "make clean    remove .venv and caches"

$(VENV)/ready: pyproject.toml constraints.txt
	@echo "setting up $(VENV): PyTorch is large, this takes a few minutes the first time"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $@

demo: $(VENV)/ready
	@$(BIN)/distrain run ddp

tui: $(VENV)/ready
	@$(BIN)/distrain-tui

test: lint types layers
	$(BIN)/python -m pytest -n 2 --dist worksteal --ignore=tests/hosts --ignore=tests/slurm

horovod: $(VENV)/ready
	@PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/distrain doctor --fix horovod

test-horovod: horovod
	DISTRAIN_HOROVOD=required $(BIN)/python -m pytest -n 2 --dist worksteal tests/horovod

slurm: $(VENV)/ready
	@which slurmctld slurmd sbatch munged ip >/dev/null || { \
	  export DEBIAN_FRONTEND=noninteractive; apt-get update -qq && \
	  apt-get install -qq --no-install-recommends slurmctld slurmd slurm-client munge iproute2; }
	@$(BIN)/python -m tests.slurm.cluster up

slurm-down: $(VENV)/ready
	@$(BIN)/python -m tests.slurm.cluster down

test-slurm: slurm
	DISTRAIN_SLURM=required $(BIN)/python -m pytest tests/slurm

test-hosts: $(VENV)/ready
	DISTRAIN_HOSTS=required $(BIN)/python -m pytest -n 2 --dist worksteal tests/hosts

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
	@for name in overhead startup ingest open tui plots stragglers agreement; do $(BIN)/python -m benchmarks.$$name || exit 1; done

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
