# Every target makes .venv and installs the project when needed; nothing else has to be set up.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test test-ray test-flower browser lint bench bench-network bench-grouping bench-engine bench-auto bench-ray bench-flower clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("coterie needs Python >= 3.11; set PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@echo "installing into $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)  ## compare six algorithms on real images (about a minute) and write an HTML report
	$(BIN)/coterie demo

test: $(READY) browser lint  ## style, types, and every test
	$(BIN)/python -m mypy
	$(BIN)/python -m pytest -n auto --dist loadfile

test-ray: $(READY)  ## train on Ray with real processes, some of which are killed (installs Ray)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev,ray]'
	$(BIN)/python -m pytest tests/test_sharded.py tests/test_ray.py tests/test_ray_*.py

test-flower: $(READY)  ## Flower for real: SuperLinks and SuperNodes on loopback (about 20 minutes; installs flwr and Ray)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev,flower]' 'flwr[simulation]'
	COTERIE_FLOWER=1 $(BIN)/python -m pytest tests/test_planfile.py tests/test_flower_*.py

# The page of `coterie report` is tested in a real browser; without one those tests are skipped, loudly.
APT := timeout 300 apt-get -o Acquire::http::Timeout=15 -o Acquire::Retries=0
browser:  ## install Chromium for the tests of the report's page, where root and apt-get can
	@found() { [ -n "$$CHROMIUM" ] || command -v chromium || command -v chromium-browser || command -v google-chrome || command -v google-chrome-stable; }; \
	found >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing chromium for the tests of the report's page ..."; \
	  { $(APT) install -y -qq chromium || { $(APT) update -qq && $(APT) install -y -qq chromium; }; } >/dev/null 2>&1; \
	fi; \
	found >/dev/null || echo "*** NO CHROMIUM: the report's page will NOT be tested in a browser; install chromium, or set CHROMIUM to its path ***"

lint: $(READY)  ## style only
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .

bench: $(READY)  ## print the speed table of this machine
	$(BIN)/python benchmarks/speed.py

bench-network: $(READY)  ## the network clock against ns-3: errors and speed (about 20 minutes; needs g++)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev,ns3]'
	$(BIN)/python benchmarks/network.py

bench-grouping: $(READY)  ## the planner against ten other groupings: quality and speed (about 30 minutes)
	$(BIN)/python benchmarks/grouping.py

bench-engine: $(READY)  ## the engine against plain torch, pfl, fedjax and Flower (about 20 minutes; installs them)
	$(BIN)/python benchmarks/engine.py

bench-auto: $(READY)  ## choosing K, tau1 and tau2 by a pilot, against every choice of a grid (an hour or more; goes on where it stopped)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/auto.py

bench-ray: $(READY)  ## Ray beside the engines of one process, and a cluster of four (installs Ray)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev,ray]'
	$(BIN)/python benchmarks/ray.py

bench-flower: $(READY)  ## 20 SuperNodes on loopback: accuracy against the simulator's, bytes by tier (half an hour; installs flwr)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev,flower]'
	$(BIN)/python benchmarks/flower.py

clean:  ## remove .venv and caches; runs/ stays
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
