"""Measurements that take longer than a test may. Run one with `python -m benchmarks.NAME`."""
