# Every target sets up what it needs first (tools/setup.sh); where nothing changed that takes a second.
PY := .venv/bin/python
SHELL := /bin/bash
.DEFAULT_GOAL := help

.PHONY: help setup demo test test-cpp test-py test-oldest test-peers test-peers-quick test-cuda test-gpu-programs sanitize test-wide lint lint-cpp lint-py lint-sh format bench bench-full bench-peers bench-check bench-program soak gpu-day docs wheel wheel-cuda lock clean

help: ## list the targets
	@echo "usage: make <target>"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: ## install what is missing, build the native module
	@tools/setup.sh

demo: setup ## train a small network privately and show accuracy, epsilon and cost
	@$(PY) examples/digits.py

SUITES := cpp py oldest gpu
test: setup ## run all C++ and Python tests; the last line counts them
	@$(PY) tools/run_tests.py $(SUITES)

test-cpp: setup ## run the C++ tests
	@$(PY) tools/run_tests.py cpp

test-py: setup ## run the Python tests and doctests; make test-py PYTEST="-k clip -x" selects
	@$(PY) tools/run_tests.py py --pytest $(PYTEST)

test-oldest: setup ## run the tests of the transform on the oldest JAX that is supported
	@$(PY) tools/run_tests.py oldest

test-peers: setup ## run the tests beside other libraries, in an environment of their own (1 GB)
	@$(PY) tools/run_tests.py peers

test-peers-quick: setup ## the part of test-peers that takes little
	@$(PY) tools/run_tests.py peers-quick

test-cuda: setup ## what is about GPUs alone: kernels (needs nvcc), their tests, gates and lowering tests
	@$(PY) tools/run_tests.py cuda

test-gpu-programs: setup ## compile the paper's models for GPUs that are not there, and look at the programs
	@$(PY) tools/run_tests.py gpu-all --pytest $(PYTEST)

sanitize: setup ## run the C++ tests under the address, undefined-behaviour and thread sanitizers
	@$(PY) tools/run_tests.py cpp --configs asan ubsan tsan

test-wide: setup ## run the C++ tests with the bodies of AVX-512 compiled for AVX2
	@$(PY) tools/run_tests.py cpp --configs wide

lint: lint-cpp lint-py lint-sh ## check format, style and types of all code

lint-cpp: setup ## clang-format and clang-tidy
	$(PY) tools/lint_cpp.py format
	$(PY) tools/lint_cpp.py tidy

lint-py: setup ## ruff and mypy
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy

lint-sh: setup ## shellcheck
	shellcheck .ci/run $$(git ls-files '*.sh')

format: setup ## rewrite all code in the project's format
	$(PY) tools/lint_cpp.py format --fix
	$(PY) -m ruff check --fix --exit-zero
	$(PY) -m ruff format

BAZEL_RUN := bazel run --ui_event_filters=-info --noshow_progress --repo_env=BK_JAX_PYTHON=$(CURDIR)/$(PY)
SUITE := $(BAZEL_RUN) //benchmarks/suite

bench: setup ## measure every method and write benchmarks/REPORT.md, 15 minutes; BENCH="--scale 0.5" is smaller
	@$(SUITE):run -- --profile quick $(BENCH)

bench-full: setup ## the same with the paper's models at full size, hours; type it again to go on
	@$(SUITE):run -- --profile full --resume $(BENCH)

bench-peers: setup ## the same for other libraries, in environments of their own (6 GB)
	@$(PY) tools/peers.py
	@$(SUITE):run -- --profile peers $(BENCH)

bench-check: setup ## compare copies, memory and times of a few steps with stored ones; BENCH=--counts runs nothing
	@$(SUITE):gate -- $(BENCH)

PROGRAM := kernels:kernels_benchmark
bench-program: setup ## run one benchmark; PROGRAM=ops:dense_benchmark BENCH="--budget 1" selects
	@$(BAZEL_RUN) //benchmarks/$(PROGRAM) -- $(BENCH)

soak: setup ## 10,000 steps of fit with kills, full disks and wrong clocks, then 8 threads for an hour; SOAK="--steps 500 --faults 5" THREADS="--minutes 1" is shorter
	@$(PY) -m benchmarks.soak.run $(SOAK)
	@$(PY) -m benchmarks.soak.threads $(THREADS)

gpu-day: setup ## all that needs a GPU, and one report in out/gpu-day; REHEARSE=1 without one, GPU_DAY="--quick" in an hour
	@$(PY) -m benchmarks.gpu.cycles predict
	@$(PY) -m benchmarks.gpu.day.run $(if $(REHEARSE),--rehearse) $(GPU_DAY)

docs: setup ## build the site into build/docs/html, in an environment of its own (.venv-docs, 1 GB); DOCS=--shots adds pictures
	@$(PY) tools/docs.py $(DOCS)

wheel: setup ## build source archive and wheels into dist/, check them in new environments
	@$(PY) tools/wheels.py

wheel-cuda: setup ## build the wheel with the module for GPUs into dist/ (needs nvcc)
	@$(PY) tools/cuda_wheel.py

lock: setup ## resolve pyproject.toml's dependencies anew into requirements.lock
	@$(PY) tools/lock.py

clean: ## remove what was built; environments stay
	@if command -v bazel >/dev/null && [ -f WORKSPACE ]; then bazel clean; fi
	rm -rf build dist python/bk_jax/_*.so python/*.egg-info compile_commands.json
	find python tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
