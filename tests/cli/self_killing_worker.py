"""`outlast worker`, whose first minute is a moment."""

import sys

from outlast.cli import main, self_kill

self_kill.FIRST_SECONDS = 0.3
main(sys.argv[1:])
