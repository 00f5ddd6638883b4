from support.shared import FULL

collect_ignore = [] if FULL else ["test_built_site.py"]
