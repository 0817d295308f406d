"""Measurements, one module a subject: `python -m benchmarks.NAME [--json] [--check]`."""
