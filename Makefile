# Entry points for people and for CI. CMake presets do the work; this file only names the steps.
JOBS ?= $(shell nproc)
PORT ?= 30000
MODEL ?= models/kimi-k2-mini
SERVE_FLAGS ?=
PREFIX ?= /usr/local
DESTDIR ?=
FUZZ_SECONDS ?= 60
AGAINST ?= HEAD~1

RELEASE := build/release
CPP_FILES = git ls-files -z --cached --others --exclude-standard -- 'src/*.h' 'src/*.cc' 'tests/*.h' 'tests/*.cc' 'benchmarks/*.cc'

.DEFAULT_GOAL := help
# Steps depend on each other in the order written; the build itself runs in parallel.
.NOTPARALLEL:
.PHONY: help packages test-packages configure build serve test test-layouts bench asan tsan fuzz format format-check tidy source-check lint install clean

help:  ## print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

packages:
	@tools/install_dependencies

test-packages:
	@tools/install_dependencies --with-tests

configure:
	@cmake --preset release >$(RELEASE).log 2>&1 || { cat $(RELEASE).log; exit 1; }

configure: | build/

build/:
	@mkdir -p build

build: packages configure  ## install packages, build everything (release)
	@cmake --build $(RELEASE) -j $(JOBS)

serve: packages configure  ## install packages, build, serve the bundled model on port 30000 (PORT=, MODEL=, SERVE_FLAGS=)
	@cmake --build $(RELEASE) -j $(JOBS) --target gimbal
	@exec $(RELEASE)/gimbal serve --model-path $(MODEL) --port $(PORT) $(SERVE_FLAGS)

test: test-packages configure  ## install packages, build, run every test that needs no GPU
	@cmake --build $(RELEASE) -j $(JOBS)
	@tools/run_tests --build-dir $(RELEASE) --jobs $(JOBS)

test-layouts: test-packages configure  ## every layout of the equality matrix against one rank (make test runs a third of them)
	@cmake --build $(RELEASE) -j $(JOBS) --target gimbal
	@GIMBAL_BINARY=$(RELEASE)/gimbal python3 -B -m pytest -q -s -p no:cacheprovider tests/distributed/test_layout_matrix.py

bench: build  ## run the micro-benchmarks and the comparison with tiktoken
	@programs=$$(find $(RELEASE)/benchmarks -name '*_benchmark' -type f 2>/dev/null | sort); \
	[ -n "$$programs" ] || { echo "No *_benchmark was built under $(RELEASE)/benchmarks." >&2; exit 1; }; \
	for program in $$programs; do echo "== $$program"; "$$program" || exit 1; done
	@echo "== tokenizer against tiktoken (from PyPI, in build/venv-tiktoken)"
	@[ -x build/venv-tiktoken/bin/python ] || python3 -m venv build/venv-tiktoken
	@if build/venv-tiktoken/bin/python -m pip install -q tiktoken; then \
	build/venv-tiktoken/bin/python benchmarks/tokenizer/compare_with_tiktoken.py --build-dir $(RELEASE); \
	else echo "skipped: tiktoken could not be installed"; fi

asan: test-packages  ## unit tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@cmake --preset asan
	@cmake --build build/asan -j $(JOBS)
	@tools/run_tests --build-dir build/asan --jobs $(JOBS) --unit-tests-only

TSAN_TESTS = comm moe scheduler engine
tsan: test-packages  ## ranks as threads under ThreadSanitizer: communication, exchanges, a reduced layout matrix
	@cmake --preset tsan
	@cmake --build build/tsan -j $(JOBS) --target $(TSAN_TESTS:%=gimbal_%_test)
	@for folder in $(TSAN_TESTS); do build/tsan/src/$$folder/gimbal_$${folder}_test --gtest_brief=1 || exit 1; done

fuzz: test-packages  ## run every fuzzer for FUZZ_SECONDS
	@cmake --preset fuzz
	@cmake --build build/fuzz -j $(JOBS) --target fuzzers
	@tools/run_fuzzers --build-dir build/fuzz --seconds $(FUZZ_SECONDS)

format:  ## lay out the C++ sources
	@$(CPP_FILES) | xargs -0 -r clang-format -i

format-check:
	@$(CPP_FILES) | xargs -0 -r clang-format --dry-run -Werror

tidy: configure
	@tools/run_clang_tidy --build-dir $(RELEASE) --jobs $(JOBS) --against $(AGAINST)

source-check:
	@python3 tools/source_check --headers --against $(AGAINST)

lint: test-packages format-check source-check tidy  ## format, source rules, clang-tidy on what changed since AGAINST

install: build  ## copy the program and its models to DESTDIR/PREFIX
	@DESTDIR="$(DESTDIR)" cmake --install $(RELEASE) --prefix $(PREFIX)

clean:  ## remove everything that was built
	@rm -rf build
