"""Kernels, operations and steps against their baselines.

Programs run from the root of the checkout:

    bazel run //benchmarks/steps:step_benchmark -- --help
    python -m benchmarks.paper.complexity_tables --help

Being a package, it is what `benchmarks` means to a test; tests/benchmarks is none.
"""
