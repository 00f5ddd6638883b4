"""Explain everything that has a name in Outlast.

That is errors, the reasons of parked runs, alerts, exit codes and the checks of the doctor. The
Markdown files beside this module are the only source: `outlast explain NAME` prints them, and
`outlast explain --write docs` writes the pages in `pages.py` from them. People read these texts at
three in the morning, so they are short and contain the commands. `import outlast` reads none of
them.
"""
