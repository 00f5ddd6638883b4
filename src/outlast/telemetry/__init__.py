"""Provide what an operator sees: the names and values of metrics, and logs.

Traces are in `execution/tracing`, what the store knows in `http/store_stats`. Nothing here makes
decisions.
"""
