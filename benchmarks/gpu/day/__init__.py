"""The day with a GPU: `make gpu-day` runs every step that needs one, and writes one report.

    python -m benchmarks.gpu.day.run [--quick] [--only STEP ...] [--again STEP ...]
    python -m benchmarks.gpu.day.run --rehearse

Each step is a module with a function `run(day)`; `day.Day` says what is behind it, a GPU or the
emulated device. Results are JSON under `out/gpu-day`, one file for each step, so that a run that was
stopped goes on where it was.
"""
