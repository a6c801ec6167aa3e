# Every target sets up what it needs: a machine with Python 3.11+ and make is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
CONSTRAINTS := -c constraints.txt
# Whatever the shell says: a hundred processes of the tests would compile the package again, each for itself.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-slow test-ray test-gpu check docs pages format bench clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# torch first and pinned, so that nothing else chooses a build (docs/install.md: one without CUDA); stamps keep re-runs instant.
$(VENV)/base.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install $(CONSTRAINTS) "$$(grep '^torch==' constraints.txt)"
	$(PIP) install $(CONSTRAINTS) -e .
	touch $@

$(VENV)/report.stamp: $(VENV)/base.stamp
	$(PIP) install $(CONSTRAINTS) -e ".[report]"
	touch $@

$(VENV)/dev.stamp: $(VENV)/base.stamp
	$(PIP) install $(CONSTRAINTS) -e ".[dev]"
	touch $@

demo: $(VENV)/report.stamp
	$(BIN)/ringfence certify --model default --data default --sigma 0.5 --radius 0.5 --out runs/demo
	@$(BIN)/ringfence report runs/demo --out runs/demo.html --title "Ringfence demo" --json > /dev/null
	@echo
	@echo "The report is $(CURDIR)/runs/demo.html: open it in a browser. What next:"
	@echo "recompute every claim from its counts:"
	@echo "  $(BIN)/ringfence verify runs/demo"
	@echo "fail unless 90% are proved at radius 0.5:"
	@echo "  $(BIN)/ringfence gate runs/demo --certified 0.90@0.5"
	@echo "the largest radii, as papers plot them:"
	@echo "  $(BIN)/ringfence certify --sigma 0.5 --n 1000 --skip 10 --out runs/curve"

# AGAIN="--reruns 1" runs what failed once more: hundreds of tests start, kill and wait for processes.
test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n 2 $(AGAIN) -m "not slow and not gpu"

# Tests of GPUs run on the CPU as far as they can, so that they stay with the code where there is no GPU.
test-slow: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n 2 $(AGAIN) -m "slow and not gpu"
	RINGFENCE_TEST_DEVICE=cpu $(BIN)/python -m pytest -n 2 $(AGAIN) -o addopts="--import-mode=importlib" -m gpu tests/gpu

# Kills on a real Ray: minutes, and only on a machine that does nothing else; what hangs is told by the clock.
test-ray: $(VENV)/dev.stamp
	RINGFENCE_RAY_FAULTS=1 $(BIN)/python -m pytest -n 0 tests/engines/test_ray_faults.py

# On a machine with a GPU; PYTHON may be one that has torch with CUDA and pytest already. Shape checks (in addopts)
# are left out: they do not compile.
test-gpu:
	PYTHONPATH=src:tests/laws $(PYTHON) -m pytest -o addopts="--import-mode=importlib" -m gpu tests/gpu

check: $(VENV)/dev.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

docs: $(VENV)/dev.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# Every page and table that is made from committed runs, and the notebooks with their outputs.
pages: $(VENV)/dev.stamp
	$(BIN)/python reproduce/pages.py
	$(BIN)/python tools/notebook_pages.py

format: $(VENV)/dev.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/dev.stamp
	for script in benchmarks/bench_*.py; do $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache
