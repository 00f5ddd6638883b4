"""Every snippet in the README and the docs runs, each in a process of its own and an empty folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FOR_READERS = {"architecture.md"}  # signatures, not programs
SERVERS = {"DATABASE_URL": "postgres_server", "REDIS_URL": "redis_server"}  # for snippets that ask for one


def snippets() -> list:
    return [
        pytest.param(code, id=f"{page.name}-{number}")
        for page in PAGES
        if page.name not in FOR_READERS
        for number, code in enumerate(FENCE.findall(page.read_text()), 1)
    ]


@pytest.mark.parametrize("code", snippets())
def test_a_snippet_runs_as_it_stands(code: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    servers = {
        name: request.getfixturevalue(fixture).url for name, fixture in SERVERS.items() if name in code
    }
    program = tmp_path / "snippet.py"
    program.write_text(code)
    done = subprocess.run(
        [sys.executable, "-W", "error", program],
        cwd=tmp_path,
        env={**os.environ, **servers},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_relative_link_leads_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?(?: \"[^\"]*\")?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_setting_and_exit_code_is_documented() -> None:
    from dataclasses import fields

    from outlast.cli import exits
    from outlast.settings import Settings

    guarantees, commands = (ROOT / "docs/guarantees.md").read_text(), (ROOT / "docs/commands.md").read_text()
    assert [f.name for f in fields(Settings) if f.name != "store" and f"`{f.name}`" not in guarantees] == []
    assert [
        code for code, meaning in exits.MEANINGS.items() if f"| {code} | {meaning} |" not in commands
    ] == []
