"""Where the demo happens: it removes what an earlier demo has left, and nothing else."""

import asyncio
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from outlast import Outlast, workflow
from outlast.tools.demo.workspace import (
    QUEUE,
    RUNS_MAX,
    DemoRefused,
    address_of,
    make_folder,
)
from support.processes import Program


@workflow(name="research")
async def of_a_demo() -> None:
    return


@workflow(name="payments")
async def of_somebody() -> None:
    return


def store_with(path: Path, flow, queue: str) -> None:
    async def main() -> None:
        async with Outlast(address_of(path)) as app:
            await app.submit(flow(), id="one", queue=queue)

    asyncio.run(main())


def everything(folder: Path) -> dict[str, bytes | None]:
    return {
        str(one): one.read_bytes() if one.is_file() else None for one in sorted(folder.rglob("*"))
    }


def test_the_store_of_an_earlier_demo_is_removed_and_nothing_beside_it(tmp_path):
    path = tmp_path / "outlast-demo.db"
    store_with(path, of_a_demo, QUEUE)
    (tmp_path / "outlast-demo.db.bak").write_text("kept")
    make_folder(path)
    assert [one.name for one in tmp_path.iterdir()] == ["outlast-demo.db.bak"]


@pytest.mark.parametrize(
    ("flow", "queue"), [(of_somebody, "default"), (of_somebody, QUEUE), (of_a_demo, "default")]
)
def test_demo_refuses_and_keeps_a_store_with_other_runs(tmp_path, flow, queue):
    path = tmp_path / "outlast-demo.db"
    store_with(path, flow, queue)
    before = path.read_bytes()
    with pytest.raises(DemoRefused, match="not the demo's"):
        make_folder(path)
    assert path.read_bytes() == before


def test_a_store_with_a_session_is_refused(tmp_path):
    path = tmp_path / "outlast-demo.db"

    async def main() -> None:
        async with Outlast(address_of(path)) as app:
            await app.session("user-1").set("name", "Ada")

    asyncio.run(main())
    with pytest.raises(DemoRefused, match="not the demo's"):
        make_folder(path)


def test_a_store_with_nothing_but_a_checkpoint_is_refused_and_stays(tmp_path):
    path = tmp_path / "outlast-demo.db"

    async def main() -> None:
        async with Outlast(address_of(path)) as app:
            await app.checkpoint("import").save(line=7)

    asyncio.run(main())
    with pytest.raises(DemoRefused, match="not the demo's"):
        make_folder(path)
    assert path.exists()


def test_a_store_whose_runs_were_all_pruned_is_refused_and_stays(tmp_path):
    """Finished work of another program leaves its queues and their limits."""
    path = tmp_path / "outlast-demo.db"

    async def main() -> None:
        async with Outlast(address_of(path)) as app:
            await (await app.start(of_somebody(), id="one")).result()
            assert await app.prune(older_than=0) == 1

    asyncio.run(main())
    with pytest.raises(DemoRefused, match="not the demo's"):
        make_folder(path)
    assert path.exists()


def test_demo_finds_a_foreign_run_behind_a_page_of_its_own(tmp_path):
    path = tmp_path / "outlast-demo.db"

    async def main() -> None:
        async with Outlast(address_of(path)) as app:
            await app.submit(of_somebody(), id="first")
            for number in range(RUNS_MAX):
                await app.submit(of_a_demo(), id=f"then {number}", queue=QUEUE)

    asyncio.run(main())
    with pytest.raises(DemoRefused, match="not the demo's"):
        make_folder(path)
    assert path.exists()


def letters(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE letters (text)")


STRANGE = {
    "text": lambda path: path.write_text("a letter"),
    "nothing": lambda path: path.write_text(""),
    "another database": letters,
    "a folder": lambda path: path.mkdir(),
    "a folder beside it": lambda path: Path(f"{path}.d").mkdir(),
    "a log beside it": lambda path: Path(f"{path}-wal").write_text("left alone"),
}


@pytest.mark.parametrize("what", STRANGE)
def test_file_that_is_not_a_store_is_refused_and_kept(tmp_path, what):
    path = tmp_path / "outlast-demo.db"
    STRANGE[what](path)
    before = everything(tmp_path)
    with pytest.raises(DemoRefused, match="or remove this one yourself"):
        make_folder(path)
    assert everything(tmp_path) == before


def test_a_link_is_refused_and_not_followed(tmp_path):
    store_with(tmp_path / "theirs.db", of_a_demo, QUEUE)
    for end in ("", ".d"):
        link = tmp_path / f"outlast-demo.db{end}"
        link.symlink_to(tmp_path / f"theirs.db{end}")
        with pytest.raises(DemoRefused, match="symbolic link"):
            make_folder(tmp_path / "outlast-demo.db")
        link.unlink()
    assert (tmp_path / "theirs.db").exists()


def test_demo_refuses_a_store_that_a_process_has_open(tmp_path):
    path = tmp_path / "outlast-demo.db"

    async def main() -> None:
        async with Outlast(address_of(path)):
            with pytest.raises(DemoRefused, match="is in use"):
                await asyncio.to_thread(make_folder, path)

    asyncio.run(main())
    make_folder(path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(DemoRefused, match="another folder"):
        make_folder(tmp_path / "nowhere" / "outlast-demo.db")


@pytest.mark.parametrize("name", ["", ".", "/"])
def test_a_folder_that_has_no_name_is_one_sentence(name):
    with pytest.raises(DemoRefused, match="Name a file"):
        make_folder(Path(name))


def test_names_that_an_address_would_read_otherwise_are_names(tmp_path):
    path = tmp_path / "a b?c#d%20.db"
    store_with(path, of_a_demo, QUEUE)
    assert path.exists()
    make_folder(path)
    assert not list(tmp_path.iterdir())


def test_a_store_whose_worker_was_killed_a_moment_ago_is_removed(tmp_path):
    path = tmp_path / "outlast-demo.db"
    program = f"import os\nfrom outlast.sync import Outlast\nwith Outlast({address_of(path)!r}):\n    os.kill(os.getpid(), 9)"
    with Program.python("-c", program, folder=tmp_path.parent / f"{tmp_path.name}-out") as process:
        assert process.wait() == -signal.SIGKILL
    make_folder(path)
    assert not list(tmp_path.iterdir())
