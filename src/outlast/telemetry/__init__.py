"""Provide what an operator sees: metrics (`meters`, `store_stats`), traces (`spans`) and logs
(`logs`).

Nothing here makes decisions.
"""
