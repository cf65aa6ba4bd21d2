# Two commands: `make demo` and `make test`. Both stand on `make install`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: install demo test lint bench faults soak results docs dist clean
.DELETE_ON_ERROR:

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	touch $(STAMP)

demo: install
	$(BIN)/python -m tinyset demo --out demo --overwrite

test: lint
	$(BIN)/python -m pytest

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: install
	$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY))

faults: install
	$(BIN)/python -m tests.faults $(if $(ONLY),--only $(ONLY))

soak: install
	$(BIN)/python -m tests.faults.soak $(if $(MINUTES),--minutes $(MINUTES)) --out records/soak

results: install
	$(BIN)/python -m records

docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

dist: install
	rm -rf dist
	$(BIN)/python -m build --no-isolation

clean:
	rm -rf demo dist build site .pytest_cache .mypy_cache .ruff_cache
