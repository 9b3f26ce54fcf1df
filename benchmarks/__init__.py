"""Benchmarks: `make bench` prints the whole table, `make bench-check` finds regressions."""
