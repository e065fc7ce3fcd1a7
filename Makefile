# `make demo` shows the product at work, `make test` tests it; both set themselves up.
VENV := .venv
PYTHON_IN_VENV := $(VENV)/bin/python
LOCK := $(VENV)/bin/uv pip compile -q pyproject.toml --extra all --group build --universal \
	--python-version 3.11 --generate-hashes --no-emit-index-url --custom-compile-command "make lock"

# Many tests wait for other processes, so there are more workers than processors; they are forked
# (tests/workers.py), so one more costs little.
PYTEST_XDIST_AUTO_NUM_WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 3)))
export PYTEST_XDIST_AUTO_NUM_WORKERS
# Without bytecode every worker would compile all tests anew, and every process the product.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo test test-all check fix bench bench-run bench-container bench-packages bench-wasm bench-permission bench-prompt bench-search bench-agent bench-skills bench-fleet bench-console docs site pictures lock wheel machine clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(VENV)/.all ## the product with all extras, in .venv/
	@:

demo: $(VENV)/.all ## skills from discovery to result, in a project made for the occasion
	@$(VENV)/bin/skillbelt demo

test: $(VENV)/.dev ## all tests but the long ones, with a few examples for each property
	$(PYTHON_IN_VENV) -m pytest -m "not long" $(ARGS)

test-all: $(VENV)/.dev ## the long tests, and every property with many examples
	MANY_EXAMPLES=1 $(PYTHON_IN_VENV) -m pytest -m "long or property" $(ARGS)

check: $(VENV)/.dev ## lint, format and types
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy

fix: $(VENV)/.dev ## fixes lint and format
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format

bench: $(VENV)/.dev ## the speed figures of docs/performance.md
	@$(PYTHON_IN_VENV) -m compileall -q src # where Python may not write bytecode, starts are slow
	$(PYTHON_IN_VENV) -m benchmarks.discovery $(ARGS)

bench-run: $(VENV)/.dev ## what the sandbox, a whole run, a chat and collecting cost; ARGS=--endurance
	@$(PYTHON_IN_VENV) -m compileall -q src
	$(PYTHON_IN_VENV) -m benchmarks.sandbox
	$(PYTHON_IN_VENV) -m benchmarks.run $(ARGS)
	$(PYTHON_IN_VENV) -m benchmarks.collect
	$(PYTHON_IN_VENV) -m benchmarks.chat

bench-snapshot: $(VENV)/.dev ## what a snapshot of a workspace costs, beside tar
	@$(PYTHON_IN_VENV) -m compileall -q src
	$(PYTHON_IN_VENV) -m benchmarks.snapshot $(ARGS)

bench-packages: $(VENV)/.dev ## what packages cost a run, beside uv run --with; needs an index
	@$(PYTHON_IN_VENV) -m compileall -q src
	$(PYTHON_IN_VENV) -m benchmarks.packages $(ARGS)

bench-container: $(VENV)/.dev ## what a command in a container costs, beside docker exec
	$(PYTHON_IN_VENV) -m benchmarks.container $(ARGS)

bench-wasm: $(VENV)/.dev ## what a WASM run costs, beside a native one and the bare engine
	$(PYTHON_IN_VENV) -m benchmarks.wasm $(ARGS)

bench-permission: $(VENV)/.dev ## what a decision costs, and a list under many rules
	$(PYTHON_IN_VENV) -m benchmarks.permission $(ARGS)

bench-search: $(VENV)/.dev ## how good and quick search is; ARGS='--pool DIR --labelled FILE'
	$(PYTHON_IN_VENV) -m benchmarks.search $(ARGS)

bench-console: $(VENV)/.dev ## the start and the pages of the console, an answer, the history
	@$(PYTHON_IN_VENV) -m compileall -q src
	$(PYTHON_IN_VENV) -m benchmarks.console $(ARGS)

bench-prompt: $(VENV)/.dev ## prefixes, tokens, the cost of a turn
	$(PYTHON_IN_VENV) -m benchmarks.prefix
	$(PYTHON_IN_VENV) -m benchmarks.tokens
	$(PYTHON_IN_VENV) -m benchmarks.turns

bench-skills: $(VENV)/.dev ## how many scripts of real skills start; ARGS='FOLDER --outside'
	$(PYTHON_IN_VENV) -m benchmarks.real_skills $(ARGS)

bench-agent: $(VENV)/.dev ## what a turn of the runner costs, beside pydantic-ai without skills
	$(PYTHON_IN_VENV) -m benchmarks.runner $(ARGS)

bench-fleet: $(VENV)/.dev ## many machines: growth, and faults at random moments; ARGS='--times 20 --runs 200'
	$(PYTHON_IN_VENV) -m benchmarks.fleet_store
	$(PYTHON_IN_VENV) -m benchmarks.fleet_runs
	$(PYTHON_IN_VENV) -m benchmarks.fleet_growth
	$(PYTHON_IN_VENV) -m benchmarks.fleet_shared
	$(PYTHON_IN_VENV) -m benchmarks.fleet_faults --executor local $(ARGS)
	$(PYTHON_IN_VENV) -m benchmarks.fleet_faults --executor ray $(ARGS)

docs: $(VENV)/.dev ## rewrites the generated pages and builds the site, in build/site/
	$(PYTHON_IN_VENV) scripts/cli_reference.py --write
	$(PYTHON_IN_VENV) scripts/reference.py --write
	$(PYTHON_IN_VENV) scripts/drawings.py --write
	$(PYTHON_IN_VENV) scripts/llms.py --write
	@$(MAKE) --no-print-directory site

site: $(VENV)/.dev ## the documentation as a site, in build/site/
	$(VENV)/bin/zensical build --clean --strict

pictures: $(VENV)/.dev ## draws docs/pictures from real runs, a real chat and the console in a browser
	$(PYTHON_IN_VENV) scripts/terminal_picture.py
	$(PYTHON_IN_VENV) scripts/console_pictures.py

lock: $(VENV)/.dev ## renews the locks; ARGS=--upgrade takes newer versions
	$(LOCK) --group dev -o requirements/dev.txt $(ARGS)
	$(LOCK) -c requirements/dev.txt -o requirements/all.txt $(ARGS)
	$(LOCK) -c requirements/dev.txt --extra ray -o requirements/fleet.txt $(ARGS)

wheel: $(VENV)/.dev ## the wheel of the product, in dist/
	$(VENV)/bin/uv build -q --wheel --no-build-isolation --python $(PYTHON_IN_VENV) --out-dir dist

machine: $(VENV)/.dev ## the native sandbox attacked and tested in a virtual machine; ARCH=amd64 or arm64
	scripts/machine.sh $(ARCH)

clean: ## removes everything that make made
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests benchmarks scripts examples -name __pycache__ -prune -exec rm -rf {} +

# The developer's lock holds everything of the product's, so either stamp means a working product.
$(VENV)/.all: requirements/all.txt pyproject.toml scripts/setup.sh
	@scripts/setup.sh all

$(VENV)/.dev: requirements/dev.txt pyproject.toml scripts/setup.sh
	@scripts/setup.sh dev
