"""What users see of `each` and `map`: a line on a terminal, `outlast show` and `outlast runs`."""

import asyncio
import io
import json
from types import SimpleNamespace

import pytest

from outlast import Outlast
from outlast.api import progress_line
from outlast.api.progress_line import ProgressLine
from outlast.testing import App
from support.cli import answer_of


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress_line, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


@pytest.fixture
def terminal(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(progress_line, "sys", SimpleNamespace(stderr=terminal))
    return terminal


def test_terminal_has_one_line_that_is_kept_up_to_date_and_cleared_at_the_end(terminal, clock):
    shown = ProgressLine("orders", 1_000)
    shown.skip(100)
    for _ in range(20):
        clock[0] += 0.3125
        shown.add()
    shown.close()
    shown.close()
    lines = terminal.getvalue().split(progress_line.CLEAR)
    assert lines[1] == "orders: 100/1,000 done"
    assert lines[-2] == "orders: 120/1,000 done, 3.2/s, about 5 min left"
    assert lines[-1] == ""


def test_progress_line_changes_at_most_five_times_a_second(terminal, clock):
    shown = ProgressLine("orders", None)
    for _ in range(1000):
        clock[0] += 0.001
        shown.add()
    assert terminal.getvalue().count(progress_line.CLEAR) <= 6
    assert "orders: 1 done" in terminal.getvalue()
    assert "/1" not in terminal.getvalue().split("/s")[0]
    shown.close()


def test_two_at_once_do_not_fight_for_the_line(terminal, clock):
    first, second = ProgressLine("first", None), ProgressLine("second", None)
    first.add()
    second.add()
    assert "second" not in terminal.getvalue()
    first.close()
    second.add()
    assert "second" in terminal.getvalue()
    second.close()


def test_without_a_terminal_nothing_is_printed(capfd):
    async def main(app):
        async for _ in app.each(range(100), id="job"):
            await asyncio.sleep(1)
        await app.map(str, range(10), id="other")

    App().do(main)
    assert capfd.readouterr() == ("", "")


def test_terminal_that_is_gone_stops_nothing(terminal):
    async def main(app):
        terminal.close()
        return [item async for item in app.each("ab", id="job")]

    assert App().do(main) == ["a", "b"]


@pytest.fixture
def outlast(tmp_path, capsys):
    """Call the command line on the store of the test's folder. Return what it printed."""

    def call(*words):
        answer = answer_of([*words, "--store", f"sqlite:///{tmp_path}/outlast.db"], capsys)
        assert answer.code == 0, answer.err
        return answer.out

    return call


def prepare(folder, items, upto):
    async def main():
        async with Outlast(f"sqlite:///{folder}/outlast.db") as app:
            count = 0
            async for _ in app.each(items, id="orders"):
                count += 1
                if count > upto:
                    break

    asyncio.run(main())


def test_show_counts_the_items_and_does_not_list_them(tmp_path, outlast):
    prepare(tmp_path, [f"order-{number}" for number in range(1_000)], upto=20)
    text = outlast("show", "orders")
    assert "20 of 1,000 done" in text
    assert "order-1" not in text
    assert "make the same call again" in text
    shown = json.loads(outlast("show", "orders", "--json"))
    assert shown["items"] == {"done": 20, "total": 1_000}
    assert [entry["kind"] for entry in shown["journal"]] == ["items"]


def test_show_has_no_total_where_it_is_unknown(tmp_path, outlast):
    prepare(tmp_path, iter("abc"), upto=9)
    assert "items      3 done" in outlast("show", "orders")
    shown = json.loads(outlast("show", "orders", "--json"))
    assert shown["items"] == {"done": 3, "total": None}
    assert shown["run"]["result"] == {"items": 3}


def test_each_is_listed_among_the_runs(tmp_path, outlast):
    prepare(tmp_path, "abc", upto=1)
    assert "(each)" in outlast("runs")
    (run,) = json.loads(outlast("runs", "--json"))["runs"]
    assert (run["workflow"], run["status"], run["item"]) == ("(each)", "waiting", False)
