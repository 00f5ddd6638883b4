import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from check_tools import fill


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database in which the workflows of `check_tools` have ended."""
    path = tmp_path_factory.mktemp("filled") / "outlast.db"
    fill(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


@pytest.fixture
def copy(filled: Path, tmp_path: Path) -> Path:
    """Return a copy of that database, which the test may damage."""
    path = tmp_path / "outlast.db"
    path.write_bytes(filled.read_bytes())
    return path
