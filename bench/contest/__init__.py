"""Measure Outlast beside its peers, on one machine, in the same rounds. See bench/README.md."""
