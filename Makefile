# Names for the tasks of `cargo xtask`, which hold all the logic. `make` lists them.
# Arguments for a task: make demo ARGS="--help"

SHELL := /bin/sh
ARGS ?=
XTASK := cargo xtask

.DEFAULT_GOAL := help
.PHONY: help deps build test soak guest demo bench fmt lint doc clean install uninstall toolchain

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: toolchain ## install what is missing: Debian packages (as root), Rust targets
	@$(XTASK) deps $(ARGS)

build: toolchain ## build everything in release mode
	@$(XTASK) build $(ARGS)

test: toolchain ## run every test (as root), guests with other kernels included; the last line counts them
	@$(XTASK) test $(ARGS)

soak: toolchain ## long tests before a release, for hours: oracles, 100,000 instances, every experiment, fuzzing (as root)
	@$(XTASK) soak $(ARGS)

guest: toolchain ## run the guest and security tests inside Debian's stock kernels
	@$(XTASK) guest $(ARGS)

demo: toolchain ## real traffic through a chain of isolated network functions (as root)
	@$(XTASK) demo $(ARGS)

bench: toolchain ## run the benchmarks (as root)
	@$(XTASK) bench $(ARGS)

fmt: toolchain ## format Rust and C
	@$(XTASK) fmt $(ARGS)

lint: toolchain ## formatting, clippy, dependency policy
	@$(XTASK) lint $(ARGS)

doc: toolchain ## build the documentation
	@$(XTASK) doc $(ARGS)

clean: toolchain ## remove build results and leftovers of killed tests
	@$(XTASK) clean $(ARGS)

install: toolchain ## install programs, library, header, systemd unit, completions (PREFIX, DESTDIR)
	@$(XTASK) install $(ARGS)

uninstall: toolchain ## remove what install installed
	@$(XTASK) uninstall $(ARGS)

# What xtask itself needs before it can install the rest: cargo, and a linker.
toolchain:
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust with https://rustup.rs" >&2; exit 1; }
	@command -v cc >/dev/null || { \
		[ "$$(id -u)" = 0 ] || { echo "a C compiler is missing; as root: apt-get install gcc libc6-dev" >&2; exit 1; }; \
		apt-get -q update && \
		DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends gcc libc6-dev; }
