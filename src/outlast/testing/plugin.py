"""Load the pytest plugin by its name in the package: `-p outlast.testing.plugin`.

pytest loads `outlast_pytest` by itself, which imports nothing of Outlast.
"""

from outlast_pytest import *  # noqa: F403 - hooks and fixtures
