# make demo    train the Walker, measure it, draw its learning curves, film it
# make test    the tests                        make lint   formatting, style, types
# make docs    the documentation, into site/    make bench  the benchmarks (NAME=... to run one)
# make setup   only the virtual environment, made once and again when its two lists of packages change

PYTHON ?= python3
# PyTorch's CPU build, for machines without a GPU whose package index offers the CUDA build only:
#   make demo TORCH_INDEX=<the index of CPU wheels that PyTorch's install page names>
TORCH_INDEX ?=
# One more than two cores: many tests wait for processes.
TEST_WORKERS ?= 3
EXTRAS := dev,docs,envpool,export,minari,optuna,ray

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -c constraints.txt
LIBRARY := .venv/.library
EVERYTHING := .venv/.everything

.PHONY: setup demo test lint docs bench

setup: $(EVERYTHING)

# The library alone is enough for the demo; the tools of development come with `make setup`.
$(LIBRARY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "gaitway needs Python 3.11 or newer; name one: make setup PYTHON=python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { rm -rf .venv; \
	  echo "no virtual environment: on Debian or Ubuntu run \`apt-get install -y python3-venv\` as root"; exit 1; }
	$(if $(TORCH_INDEX),$(PIP) --index-url $(TORCH_INDEX) torch)
	$(PIP) -e .
	@scripts/rendering_libraries.sh
	@touch $@

$(EVERYTHING): $(LIBRARY)
	$(PIP) -e ".[$(EXTRAS)]"
	@scripts/browser.sh
	@touch $@

demo: $(LIBRARY)
	@scripts/demo.sh $(ARGS)

# One torch thread per worker: on small networks more threads only wait for each other. Bytecode is kept, also where the
# environment says otherwise: hundreds of processes that tests start would compile the library again, each of them.
test: setup
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist worksteal $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: setup
	$(BIN)/gaitway bench $(NAME) $(ARGS)
