"""How fast Outlast is, measured against the disk it writes to. `python -m bench`; see bench/README.md."""
