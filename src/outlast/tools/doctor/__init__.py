"""Find common problems before they matter.

The doctor gathers facts once, and each check is a function of these facts.
"""
