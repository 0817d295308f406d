# Everything here sets itself up. The first call takes a minute, the later ones start at once.
#
#   make demo        two workers compute, check and sign a real matrix product
#   make test        the whole suite, with formatting, types and import layers
#   make quick       what a change wants to know, in four minutes on two cores
#   make acceptance  what takes long: soak, many kills, peers
#   make bench       tiny-job latency and jobs a second
#   make installers  what people install, for this system, into dist/
#   make simulate    a night of simulated pools: make simulate SEEDS=100000

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo test quick acceptance bench installers simulate lint clean
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
WITH_TESTS := .[test,functions,gpu,lan,tray,tui]
PACKAGES := moregpu moregpu_tui moregpu_tray kernels examples tests benchmarks installers assets

help:
	@sed -n '3,9s/^#   //p' Makefile

demo: $(VENV)/.ready-base
	@$(BIN)/python -m moregpu demo $(DEMO)
	@command -v moregpu > /dev/null || echo "To type moregpu yourself:  . $(VENV)/bin/activate" >&2

# Real processes, sockets and desktops on a machine that may be busy: what failed is run once more, alone. What fails
# twice is broken, and what failed once stands in the output.
test: lint
	$(BIN)/pytest -n 2 --dist worksteal -m "not acceptance" \
	  || { echo "again, alone:"; $(BIN)/pytest --last-failed --last-failed-no-failures none -m "not acceptance"; }

quick: $(VENV)/.ready-test
	$(BIN)/ruff check -q $(PACKAGES)
	$(BIN)/pytest -q -n 2 --dist worksteal --hypothesis-profile quick -m "not slow and not acceptance"

acceptance: $(VENV)/.ready-test
	$(BIN)/pytest -m acceptance --timeout 1800

bench: $(VENV)/.ready-test
	@$(BIN)/python -m benchmarks.pool $(BENCH)

installers: $(VENV)/.ready-test
	@$(BIN)/python -m installers.build $(INSTALLERS)

SEEDS := 1000
simulate: $(VENV)/.ready-test
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(SIMULATE)

lint: $(VENV)/.ready-test
	$(BIN)/ruff format --check $(PACKAGES)
	$(BIN)/ruff check $(PACKAGES)
	$(BIN)/basedpyright
	$(BIN)/lint-imports --no-cache

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# ---- the virtual environment ----
# The stamps make the second call instant; pyproject.toml is newer than a stamp after a change of dependencies.
# uv trusts a list of its own unless told otherwise: where the system has certificates (a company's among them, perhaps),
# and nobody said what to trust, the system's hold. UV_NATIVE_TLS is what older versions of uv call that.

$(VENV)/.ready-base: pyproject.toml Makefile
	@$(call set_up,.)
	@touch $@

$(VENV)/.ready-test: pyproject.toml Makefile
	@$(call set_up,$(WITH_TESTS))
	@touch $@ $(VENV)/.ready-base

define set_up
set -euo pipefail; \
as_root() { \
  if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
    echo "installing $$*"; \
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$$@"; } > /dev/null; \
  else echo "MoreGPU needs $$*. Type:  sudo apt-get install $$*" >&2; exit 1; fi; }; \
find_python() { \
  python=; \
  for name in python3.13 python3.12 python3.11 python3 python; do \
    if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then python="$$name"; return; fi; \
  done; }; \
find_python; \
if [ -z "$$python" ] && ! command -v python3 > /dev/null; then as_root python3 python3-venv; find_python; fi; \
if [ -z "$$python" ]; then \
  echo "MoreGPU needs Python 3.11 or newer; none was found on PATH ($$(python3 --version 2>&1))." >&2; exit 1; fi; \
if command -v uv > /dev/null; then uv=uv; else uv=$(BIN)/uv; fi; \
if ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then \
  echo "making $(VENV) with $$("$$python" --version)"; \
  rm -rf $(VENV); \
  if [ "$$uv" = uv ]; then uv venv -q --python "$$("$$python" -c 'import sys; print(sys.executable)')" $(VENV); \
  else \
    "$$python" -c 'import ensurepip, venv' 2> /dev/null \
      || as_root "$$("$$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"; \
    "$$python" -m venv $(VENV); \
  fi; \
fi; \
if [ "$$uv" != uv ] && [ ! -x "$$uv" ]; then $(BIN)/python -m pip install -q --disable-pip-version-check uv; fi; \
if [ -z "$${SSL_CERT_FILE:-}$${SSL_CERT_DIR:-}$${UV_SYSTEM_CERTS:-}$${UV_NATIVE_TLS:-}" ]; then \
  for store in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do \
    if [ -s "$$store" ]; then export UV_SYSTEM_CERTS=true UV_NATIVE_TLS=true; break; fi; \
  done; \
fi; \
echo "installing MoreGPU and what it needs"; \
"$$uv" pip install -q --python $(BIN)/python -e '$(1)'
endef
