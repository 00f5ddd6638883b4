"""Rewrite links that leave docs/: GitHub follows them, a site cannot.

With a `repo_url` they become addresses in the repository. Without one they become plain text, with
the path as a tooltip. Tests check that each link leads to a file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

FENCE = r"^(?P<ticks>```+|~~~+).*?^(?P=ticks)$"
LINK = (
    r"(?<!!)\[(?P<words>[^\]]*)\]"
    r"\((?P<target>\.\./[^)\s#]*)(?P<anchor>#[^)\s]*)?(?: \"(?P<title>[^\"]*)\")?\)"
)
CODE = r"(?P<quote>`+).+?(?P=quote)"
PARTS = re.compile(f"{FENCE}|{LINK}|{CODE}", re.MULTILINE | re.DOTALL)
"""Whatever begins first: what is in code is no link, a link may have code in its words."""


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:  # noqa: ARG001 - MkDocs names them
    """MkDocs calls this with each page before it is rendered."""
    folder = (Path(config.docs_dir) / page.file.src_uri).parent
    root = Path(
        config.config_file_path
    ).parent.resolve()  # as the targets are: a checkout may lie behind a link

    def outside(found: re.Match[str]) -> str:
        if not found["target"]:
            return found[0]
        path = (folder / found["target"]).resolve().relative_to(root).as_posix()
        if config.repo_url:
            address = f"{config.repo_url.rstrip('/')}/blob/HEAD/{path}{found['anchor'] or ''}"
            return f'[{found["words"]}]({address} "{found["title"] or path}")'
        return f'<span title="{found["title"] or path}">{found["words"]}</span>'

    return PARTS.sub(outside, markdown)
