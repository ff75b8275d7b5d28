# make demo     the whole way on this machine: two recordings of a real kernel, one breakdown
# make test     everything (what CI runs)
# make lab-all  every scenario in the guests; leaves docs/lab-results.md (ARGS='life:: split' runs some again)
# make check    formatting, lints, unit and golden tests: no root, no guest
# make fuzz     FUZZ_SECONDS=600 for each decoder; needs a C++ compiler
# make install  PREFIX=/usr/local
# make dist     dist/ntp-VERSION-ARCH-linux.tar.gz: static tools, pages and completions, for any Linux from 5.10 on
#               (ARCH=aarch64 for another machine)
# make bench    bench-analysis (BENCH_N=1000000,10000000; beside a database), bench-recording (in guests, beside bpftrace)
# make lab      ARGS='run --kernel 6.12 --iodepth 32 -o out'

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
KERNEL ?= 6.12
FUZZ_SECONDS ?= 600
BENCH_N ?= 1000000,10000000
BENCH_DIR ?=
DEMO ?= lab-out/demo
BIN := $(or $(CARGO_TARGET_DIR),target)/release
TOOLS := ntp-probe ntp-capture ntp-join ntp-stages ntp-fmt
# What shells complete: made by the build, laid out as it is installed in share/.
COMPLETIONS := $(BIN)/completions
SHELLS := bash-completion/completions zsh/site-functions fish/vendor_completions.d

.PHONY: all demo test lab-all check bench bench-analysis bench-recording dist fuzz build install lab deps

all: build

# Installs what is missing and can be installed; says what.
deps:
	@tests/install-deps

build:
	$(CARGO) build --release --workspace --bins
	$(BIN)/ntp-completions $(COMPLETIONS)

demo: deps build
	@tests/demo "$(abspath $(BIN))" "$(KERNEL)" "$(DEMO)"

check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings
	$(CARGO) test --release --workspace --exclude ntp-lab --exclude ntp-tests
	$(CARGO) test --release -p ntp-tests --lib --test tools
	$(CARGO) test --release -p ntp-lab --lib --bins

# What is found is kept as a test of the crate it was found in.
fuzz:
	CARGO="$(CARGO)" fuzz/run $(FUZZ_SECONDS)

# The lab's tests run alone: two emulators on two CPUs measure each other.
test: deps build check
	$(CARGO) test --release -p ntp-lab --test '*' -- --test-threads=1
	$(CARGO) test --release -p ntp-tests --test lab -- --test-threads=1 --nocapture

lab-all: deps build
	@mkdir -p docs
	tests/lab-all docs/lab-results.md $(ARGS)

# Builds nothing: root need not have a toolchain.
install:
	@test -x $(BIN)/ntp-capture || { echo "make: $(BIN) has no tools: run make build first" >&2; exit 2; }
	@test -d $(COMPLETIONS) || { echo "make: no $(COMPLETIONS): run make build first" >&2; exit 2; }
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(addprefix $(BIN)/,$(TOOLS)) $(DESTDIR)$(PREFIX)/bin
	install -d $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/man/man5 $(DESTDIR)$(PREFIX)/share/man/man7
	install -m 644 man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 man/*.5 $(DESTDIR)$(PREFIX)/share/man/man5
	install -m 644 man/*.7 $(DESTDIR)$(PREFIX)/share/man/man7
	for dir in $(SHELLS); do \
		install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/$$dir $(COMPLETIONS)/$$dir/* || exit; \
	done

# Static binaries need no C library; a target of its own, since build scripts cannot be static.
# Another machine's (ARCH=aarch64) need its compiler and its Rust library, on Debian
# gcc-aarch64-linux-gnu and `rustup target add aarch64-unknown-linux-gnu`.
MACHINE := $(shell uname -m)
ARCH := $(MACHINE)
CROSS := $(if $(filter-out $(MACHINE),$(ARCH)),$(ARCH)-linux-gnu-)
STATIC := $(or $(CARGO_TARGET_DIR),target)/$(ARCH)-unknown-linux-gnu/release
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
DIST = ntp-$(VERSION)-$(ARCH)-linux

dist: build
	RUSTFLAGS="-C target-feature=+crt-static $(if $(CROSS),-C linker=$(CROSS)gcc)" \
		$(CARGO) build --release --target $(ARCH)-unknown-linux-gnu \
		$(addprefix -p ,$(TOOLS))
	rm -rf dist/$(DIST)
	$(MAKE) --no-print-directory install BIN=$(STATIC) COMPLETIONS=$(COMPLETIONS) DESTDIR= PREFIX=dist/$(DIST)
	cp README.md dist/$(DIST)
	$(CROSS)strip dist/$(DIST)/bin/*
	tar --owner=0 --group=0 --numeric-owner --sort=name -C dist -czf dist/$(DIST).tar.gz $(DIST)
	rm -r dist/$(DIST)
	@ls -l dist/$(DIST).tar.gz

# docs/benchmarks.md has the figures.
bench: bench-analysis bench-recording

# The folder needs 600 bytes a command.
bench-analysis:
	@tests/install-deps bench
	$(CARGO) build --release -p ntp-join -p ntp-stages -p ntp-fmt -p ntp-bench
	@tests/bench/run "$(abspath $(BIN))" "$(BENCH_N)" "$(BENCH_DIR)"

lab: build
	$(BIN)/lab $(ARGS)

bench-recording: deps build
	$(CARGO) bench -p ntp-tests --bench recording -- $(ARGS)
