# Two commands do everything: `make demo` and `make test`. Both set up what they need.
# `make check` answers in two minutes while you work.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# The newest supported JAX needs a newer Python than the oldest does.
NEWEST_PYTHON ?= $(shell .ci/newest-python)
NEWEST := .venv-newest
NEWEST_READY := $(NEWEST)/.ready

INSTALL := pip install --quiet --disable-pip-version-check
PYTEST := pytest -n 2 --dist loadgroup
FAST := -m "not slow"
# What depends most on JAX: a short part for CI.
SHORT := tests/conformance $(addprefix tests/test_,$(addsuffix .py,\
	circulant fast mixing problem solve threefry turns xla))

.PHONY: demo test check lint types unit test-newest check-newest docs bench bench-check chaos clean

demo: $(READY)
	$(BIN)/hobnob demo

test: lint types unit

check: lint types
	$(BIN)/$(PYTEST) $(FAST)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/pyright --warnings

unit: $(READY)
	$(BIN)/$(PYTEST)

test-newest: $(NEWEST_READY)
	$(NEWEST)/bin/$(PYTEST)

check-newest: $(NEWEST_READY)
	$(NEWEST)/bin/$(PYTEST) $(FAST) $(SHORT)

docs: $(READY)
	$(BIN)/python -m sphinx -W --keep-going -q -E docs build/docs
	@echo "Open build/docs/index.html"

bench: $(READY)
	$(BIN)/python -m benchmarks

bench-check: $(READY)
	$(BIN)/python -m benchmarks --check

chaos: $(READY)
	$(BIN)/python -m tests.peers.chaos --seed 0 --faults 200

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/$(INSTALL) --constraint constraints.txt --editable '.[test]'
	touch $(READY)

$(NEWEST_READY): pyproject.toml constraints-newest.txt
	@test -n "$(NEWEST_PYTHON)" || .ci/newest-python
	$(NEWEST_PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/$(INSTALL) --constraint constraints-newest.txt --editable '.[test]'
	touch $(NEWEST_READY)

clean:
	rm -rf $(VENV) $(NEWEST) build runs
