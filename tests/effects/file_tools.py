"""Programs of the file tests, and what a write leaves behind."""

from pathlib import Path

from ledger_tools import HERE, Program

PROGRAMS = HERE / "programs_ledger"


def start(name: str, where: Path, *args: object) -> Program:
    return Program(str(PROGRAMS / name), where, *args)


def left(where: Path) -> list[str]:
    names = sorted(path.name for path in (where / ".outlast").iterdir())
    return [name for name in names if not name.endswith(".json") and name != "lock"]
