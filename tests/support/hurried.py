"""Programs of the documentation, with shorter pauses.

Their pauses stand for something slow, such as a model. What a program does between two pauses is the same.
"""

import re

PAUSE = re.compile(r"\bsleep\(([\w.]+)\)")


def hurried(program: str, faster: float = 10.0) -> str:
    """Return the text of a program in which each `sleep(seconds)` is this many times shorter."""
    return PAUSE.sub(rf"sleep(\1 / {faster:g})", program)
