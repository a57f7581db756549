# `make demo` and `make test` need Python 3.11+ and a package index, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export HF_HUB_OFFLINE ?= 1
# Bytecode is written on first import, for what is imported: compiling all that is installed takes
# a minute, and compiling it anew in every process takes longer.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test chaos fuzz test-data lint format bench study docs clean

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Stockpot needs Python 3.11 or newer; set PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable . --group dev
	touch $@

demo: $(VENV)/.ready
	$(BIN)/stockpot run recipes/demo.yaml

# mypy uses one core for a minute, so it runs beside the tests; both must pass. Three workers for two
# cores: tests of killed, started and waiting processes leave a core idle for a third of the time.
test: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy & types=$$!; $(BIN)/python -m pytest -n 3 --dist worksteal; tests=$$?; \
	wait $$types && exit $$tests

# Random kills of every command on every engine; each must end as if undisturbed. Started again it goes on.
KILLS ?= 200
chaos: $(VENV)/.ready
	OMP_NUM_THREADS=1 $(BIN)/python tests/chaos/large.py --kills $(KILLS)
	if [ "$$(id -u)" = 0 ]; then OMP_NUM_THREADS=1 $(BIN)/python tests/chaos/no_room.py; fi

# What can only be seen on the real datasets; fetches them unless they are there.
test-data: $(VENV)/.ready
	$(BIN)/stockpot data get cifar10 mnist fashion_mnist quickdraw
	$(BIN)/python -m pytest -m data

# A minute for every reader of foreign files.
fuzz: $(VENV)/.ready
	$(BIN)/python tests/inputs/fuzz.py --seconds 60

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Every benchmark as it comes; those that failed are named at the end.
bench: $(VENV)/.ready
	@failed=; for script in benchmarks/*.py; do echo "== $$script"; \
	$(BIN)/python $$script || failed="$$failed $$script"; done; \
	if [ -n "$$failed" ]; then echo "failed:$$failed" >&2; exit 1; fi

# The reproductions take from half an hour of two cores to an hour of a GPU: this says how to run each.
study:
	@for page in studies/*/README.md; do echo "== $$page"; \
	sed -n '/^```/,/^```/{/^```/d;p;}' $$page; done

# The site, into site/: links and the tutorial's outputs are checked, nothing is fetched meanwhile.
docs: $(VENV)/.docs
	$(BIN)/python docs/site/transcripts.py --check docs/tutorial.md
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "site/index.html"

$(VENV)/.docs: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --group docs
	touch $@

clean:
	rm -rf $(VENV) runs dist site .mypy_cache .ruff_cache .pytest_cache
