"""Name the user of the command line, for the record of who did something."""

from __future__ import annotations

import os

from outlast.codec.text import safe

PREFIX = "os:"
"""No caller of the HTTP API has a name with a colon, so none is taken for a user of this command.
"""
LENGTH_MAX = 100


def os_user() -> str:
    """Return the user that this process runs as, like "os:ann".

    In a container the user may have no name, so that its number is all there is.
    """
    try:
        import pwd
    except ImportError:
        # Windows has no such numbers.
        import getpass

        name = getpass.getuser()
    else:
        try:
            name = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            name = str(os.getuid())
    return PREFIX + safe(name)[:LENGTH_MAX]
