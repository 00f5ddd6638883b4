"""`outlast worker`, whose first minute is a moment."""

import sys

from outlast.chaos import willing
from outlast.cli import main

willing.FIRST_SECONDS = 0.3
main(sys.argv[1:])
