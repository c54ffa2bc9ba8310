# Every target makes .venv and installs the project when needed; nothing else has to be set up.
SHELL       := bash
.SHELLFLAGS := -o pipefail -c
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PIP    := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt

# pip without what is there already: what it fetches, how big that is, and what went wrong.
NEWS  := sed -n -E '/^(Collecting|  Downloading|Installing|Successfully)/p'
extra  = @echo "$(VENV): $(1)"; $(PIP) -e '.[dev,$(1)]' $(2) | $(NEWS)
SUITE  = $(BIN)/python -m pytest -n auto --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help demo test suite test-all test-ray test-flower test-pythons test-stress fuzz faults same browser dataset lint docs release bench bench-network bench-grouping bench-fleets bench-engine bench-runs bench-published bench-growth bench-auto bench-accuracy bench-map bench-scenarios bench-ray bench-flower clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

# Packages that an interrupted pip left half written have no INSTALLER and would count as there.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("coterie needs Python >= 3.11; set PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@for half in $(VENV)/lib/python3*/site-packages/*.dist-info; do \
	  [ ! -d "$$half" ] || [ -e "$$half/INSTALLER" ] || rm -r "$$half"; \
	done; rm -rf $(VENV)/lib/python3*/site-packages/~*
	@[ -e $@ ] || echo "installing into $(VENV): PyTorch, NumPy, SciPy, Matplotlib and tools for tests; 0.4 GB to fetch, 1.5 GB on disk (2.9 and 5.3 GB with PyTorch's CUDA build, pip's choice on Linux)"
	@$(PYTHON) -m venv $(VENV) && echo '*' >$(VENV)/.gitignore
	@if [ -e $@ ]; then $(PIP) -e '.[dev]' | $(NEWS); else $(PIP) -e '.[dev]'; fi
	@touch $@

demo: $(READY)  ## compare six algorithms on real images (about a minute) and write an HTML report
	$(BIN)/coterie demo

test: $(READY) browser lint  ## style, types, and every test but the long ones
	$(BIN)/python -m mypy
	$(SUITE) -m "not long"

suite: $(READY)  ## the tests of make test alone
	$(SUITE) -m "not long"

test-all: $(READY) browser dataset lint  ## everything that this machine can run: long tests, Ray, Flower, ns-3, trackers (an hour; installs them)
	$(call extra,$(ALL),'flwr[simulation]')
	$(BIN)/python -m mypy
	COTERIE_FLOWER=1 $(SUITE) --hypothesis-profile random
ALL := parquet,tensorboard,mlflow,wandb,ray,flower,ns3,docs

test-ray: $(READY)  ## train on Ray with real processes, some of which are killed (installs Ray)
	$(call extra,ray)
	$(BIN)/python -m pytest tests/engine/test_sharded.py tests/engine/test_ray*.py tests/runs/test_ray_sweeps.py

test-flower: $(READY)  ## Flower for real: SuperLinks and SuperNodes on loopback (about 20 minutes; installs flwr and Ray)
	$(call extra,flower,'flwr[simulation]')
	COTERIE_FLOWER=1 $(BIN)/python -m pytest tests/preview/test_planfile.py tests/flower

test-pythons: browser  ## the tests with the oldest and the newest Python from 3.11 to 3.13 that is here (makes .venv-3.11, ...)
	@runs() { command -v "$$1" >/dev/null && "$$1" -c 'import venv' 2>/dev/null; }; \
	found=; for v in 3.11 3.12 3.13; do \
	  for python in python$$v "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$v.*/bin/python; do \
	    if runs "$$python"; then found="$$found $$v=$$python"; break; fi; \
	  done; \
	done; \
	set -- $$found; [ $$# -gt 0 ] || { echo "*** NO PYTHON from 3.11 to 3.13: nothing was tested ***"; exit 1; }; \
	oldest=$$1; newest=$${!#}; [ $$# -gt 1 ] || { newest=; echo "*** ONE PYTHON only, $${oldest#*=}: no other will be tested ***"; }; \
	failed=0; for one in $$oldest $$newest; do \
	  echo "Python $${one%%=*}"; \
	  $(MAKE) --no-print-directory suite VENV=.venv-$${one%%=*} PYTHON="$${one#*=}" || failed=1; \
	done; exit $$failed

test-stress: $(READY) browser  ## the tests in random order, beside a load, on other kernels, threads and locales (six times as long)
	$(BIN)/python scripts/stress.py $(STRESS)

fuzz: $(READY)  ## try to break every reader and every command with changed files and lines, for SECONDS [600]
	$(call extra,parquet)
	cd tests && OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 ../$(BIN)/python -m fuzz --seconds $(or $(SECONDS),600) $(FUZZ)

faults: $(READY)  ## every kind of command, killed, out of disk, paused, moved: what holds afterwards (half an hour; needs a C compiler)
	$(BIN)/python tests/faults $(FAULTS)

same: $(READY)  ## nothing moved: small runs by BASE [HEAD] and by the working tree, byte by byte (a minute and a half)
	$(BIN)/python scripts/same.py $(or $(BASE),HEAD) $(if $(ONLY),--only $(ONLY))

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

dataset:  ## install Debian's Fashion-MNIST for the test that reads it, where root and apt-get can
	@found() { [ -d /usr/share/datasets/fashion-mnist ]; }; \
	found && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing dataset-fashion-mnist ..."; \
	  { $(APT) install -y -qq dataset-fashion-mnist || { $(APT) update -qq && $(APT) install -y -qq dataset-fashion-mnist; }; } >/dev/null 2>&1; \
	fi; \
	found || echo "*** NO FASHION-MNIST: the full dataset will NOT be read by a test; install Debian's dataset-fashion-mnist ***"

lint: $(READY)  ## style only
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .

docs: $(READY)  ## the site: site/index.html, which opens from disk (installs mkdocs-material)
	$(call extra,docs)
	$(BIN)/python scripts/reference.py --check
	$(BIN)/python scripts/verdict.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "site: site/index.html"

release: $(READY)  ## wheel, sdist and SBOM in dist/, installed and tried in fresh environments; nothing is uploaded (minutes)
	$(call extra,release)
	$(BIN)/python scripts/release.py

bench: $(READY)  ## print the speed table of this machine
	$(BIN)/python benchmarks/speed.py

bench-network: $(READY)  ## the network clock against ns-3: errors and speed (about 20 minutes; needs g++)
	$(call extra,ns3)
	$(BIN)/python benchmarks/network.py

bench-grouping: $(READY)  ## the planner against ten other groupings: quality and speed (about 30 minutes)
	$(BIN)/python benchmarks/grouping.py

bench-fleets: $(READY)  ## what a plan is worth on twelve fleets, against FedAvg and every rival
	$(BIN)/python benchmarks/fleets.py $(FLEETS)

bench-engine: $(READY)  ## the engine against plain torch, pfl, fedjax and Flower (about 20 minutes; installs them)
	$(BIN)/python benchmarks/engine.py

bench-runs: $(READY)  ## whole runs against plain torch, pfl, fedjax and Flower: CPU, wall, memory (hours; goes on where it stopped)
	$(BIN)/python benchmarks/runs.py --out runs/bench-runs.jsonl $(BENCH)

bench-published: $(READY)  ## the published benchmarks of FLUTE, pfl and BlazeFL in their shapes (hours; goes on where it stopped)
	$(BIN)/python benchmarks/published.py --out runs/bench-published.jsonl $(BENCH)

bench-growth: $(READY)  ## seconds and memory of runs as nodes, model, groups and cohort grow (15 minutes; goes on where it stopped)
	$(BIN)/python benchmarks/growth.py $(GROWTH)

bench-auto: $(READY)  ## choosing K, tau1 and tau2 by a pilot, against every choice of a grid (an hour or more; goes on where it stopped)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/auto.py

bench-map: $(READY)  ## where groups pay, every method at its best, over skew and networks (minutes; goes on where it stopped)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/map/measure.py --out runs/map
	$(BIN)/python benchmarks/map/tables.py runs/map

bench-accuracy: $(READY)  ## forecasts of a target accuracy on problems held out: needs FEMNIST, ARRAYS (see benchmarks/curves; half an hour)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/curves/record.py --held-out --auto --femnist $(FEMNIST) --arrays $(ARRAYS) --out runs/accuracy
	$(BIN)/python benchmarks/curves/judge.py runs/accuracy

bench-scenarios: $(READY)  ## what plans advise for the scenarios, against the best of a fair comparison (goes on where it stopped)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/scenarios.py --out runs/scenarios
	$(BIN)/python benchmarks/scenarios.py --out runs/scenarios --print

bench-ray: $(READY)  ## Ray beside the engines of one process, and a cluster of four (installs Ray)
	$(call extra,ray)
	$(BIN)/python benchmarks/ray.py

bench-flower: $(READY)  ## 20 SuperNodes on loopback: accuracy against the simulator's, bytes by tier (half an hour; installs flwr)
	$(call extra,flower)
	$(BIN)/python benchmarks/flower.py

clean:  ## remove .venv, .venv-3.*, the site and caches; runs/ stays
	rm -rf $(VENV) .venv-3.* build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
