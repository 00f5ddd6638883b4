"""`outlast chaos`: real workers, killed by a plan, and a verdict from the store and from an outside ledger. See docs/chaos.md."""
