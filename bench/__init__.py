"""Measure Outlast beside its peers (`bench.contest`) and beside the raw store (`bench.own`).

See bench/README.md.
"""
