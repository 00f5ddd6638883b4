"""Implement `outlast chaos`: kill real workers by a plan, then judge the result.

The verdict comes from the store and from an external ledger. See docs/chaos.md.
"""
