"""Outlast beside its peers, on the same machine, in the same rounds: `python -m bench.contest`; see bench/README.md."""
