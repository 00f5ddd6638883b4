from collections.abc import Iterator
from pathlib import Path

import pytest
from example_tools import Stage


@pytest.fixture
def stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Stage]:
    stage = Stage(tmp_path, capsys)
    yield stage
    stage.close()
