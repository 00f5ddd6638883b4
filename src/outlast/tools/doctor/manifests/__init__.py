"""Check manifests of workers before they are applied.

`files` reads manifests of every kind into `Workload`s, and the same checks apply to all of them.
"""
