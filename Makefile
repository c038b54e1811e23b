# Targets need only Python >= 3.11 and make; each builds .venv first if it is missing or stale.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: setup demo test test-nightly test-lowest test-torch check docs bench format clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(STAMP)

demo: setup
	$(BIN)/unf demo

test: setup
	$(BIN)/python -m pytest

test-nightly: setup
	$(BIN)/python -m pytest -m "nightly or not nightly"

# Everything that reads jaxprs, on the oldest JAX that is supported.
test-lowest:
	test -x .venv-lowest/bin/python || $(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --editable '.[test]' jax==0.10.0 jaxlib==0.10.0
	.venv-lowest/bin/python -m pytest tests/graph tests/spec tests/lab/cli tests/compatibility

# unf.torch and its tutorial; `.venv-torch/bin/python -m pytest -m nightly tests/torch` runs
# Hugging Face's models.
test-torch:
	test -x .venv-torch/bin/python || $(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip install --quiet --editable '.[test,torch]' torch==2.13.0 transformers
	OMP_NUM_THREADS=1 .venv-torch/bin/python -m pytest tests/torch src/unf/torch \
		'tests/test_docs.py::test_page_prints_what_it_says[pytorch]'

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs: setup
	$(BIN)/mkdocs serve

bench: setup
	$(BIN)/python -m benchmarks

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .venv-lowest .venv-torch site dist out .pytest_cache .ruff_cache .hypothesis .jax_cache
