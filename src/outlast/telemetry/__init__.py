"""Provide what an operator sees.

That is metrics (`meters`, `store_stats`), traces (`spans`) and logs (`logs`). Nothing here makes
decisions.
"""
