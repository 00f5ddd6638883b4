"""How fast Outlast is: beside its peers (`python -m bench.contest`) and beside the store it writes to (`python -m bench.own`); see bench/README.md."""
