# make demo    set up, then run the main job
# make test    set up, then run all tests
# make check   set up, then format, lint, types and import contract
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2

.PHONY: setup demo test check format clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -c "import sys; sys.exit('Shardwright needs Python 3.11 or newer') if sys.version_info < (3, 11) else None"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: setup
	$(BIN)/shardwright partition examples/dot_reshard.hlo
	$(BIN)/shardwright explain examples/dot_reshard.hlo
	$(BIN)/shardwright compare examples/dot_reshard.hlo
	$(BIN)/shardwright verify examples/dot_reshard.hlo

test: setup
	$(BIN)/python -m pytest -n $(JOBS) -q

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
