# Two commands do everything: `make demo` and `make test`. Both set up what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint types unit docs bench bench-check clean

demo: $(READY)
	$(BIN)/hobnob demo

test: lint types unit

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/pyright --warnings

unit: $(READY)
	$(BIN)/pytest -n 2 --dist worksteal

docs: $(READY)
	$(BIN)/python -m sphinx -W --keep-going -q docs build/docs
	@echo "Open build/docs/index.html"

bench: $(READY)
	$(BIN)/python -m benchmarks

bench-check: $(READY)
	$(BIN)/python -m benchmarks --check

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	touch $(READY)

clean:
	rm -rf $(VENV) build runs
