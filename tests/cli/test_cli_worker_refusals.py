"""`outlast worker` refuses what it cannot work on before it opens a store."""

import pytest


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Missing argument"),
        (["absent.py"], "there is no file 'absent.py' here"),
        (["absent"], "there is no module 'absent'"),
        (["absent.mod:app"], "there is no module 'absent.mod'"),
        (["agent.py:"], "is not MODULE or MODULE:APP"),
        ([":app"], "is not MODULE or MODULE:APP"),
        (["agent.py:app"], "'app' is not an Outlast object in agent.py. Outlast objects in that module: none."),
        (["agent.py:report"], "'report' is a workflow. A worker executes all workflows of a module: `outlast worker agent.py`"),
        (["empty.py"], "there is nothing to work on in empty.py"),
        (["empty.py:bare"], "there is nothing to work on in empty.py:bare"),
        (["synced.py"], "is an outlast.sync.Outlast"),
        (["agent.py", "twice.py"], "two workflows have the name 'report'"),
        (["one.py", "two.py"], "a worker uses one Outlast object, and these modules define 2: one.py, two.py"),
        (["agent.py", "--queue", ""], "queue name must be a non-empty string"),
        (["agent.py", "--queue", "a/b"], "contains '/' or '#'"),
        (["agent.py", "--queue", "a,b"], "comma"),
        (["agent.py", "--concurrency", "0"], "greater than or equal to 1"),
        (["agent.py", "--log", "xml"], "xml"),
        (["agent.py", "--store", "mysql://x"], "is not the address of a store"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_exits_2_and_makes_no_store(outlast, words, message):
    files = {
        "empty.py": "from outlast import Outlast\nbare = Outlast()\n",
        "synced.py": "from outlast.sync import Outlast\napp = Outlast()\n",
        "twice.py": "from outlast import workflow\n\n@workflow\nasync def report(): ...\n",
        "one.py": "from agent import report\nfrom outlast import Outlast\napp = Outlast()\n",
        "two.py": "from agent import report\nfrom outlast import Outlast\napp = Outlast()\n",
    }
    for name, text in files.items():
        (outlast.folder / name).write_text(text)
    answer = outlast("worker", *words)
    assert answer.code == 2
    assert message in " ".join(answer.err.split())
    assert not outlast.db.exists()


def test_a_module_that_cannot_be_imported_shows_where(outlast):
    (outlast.folder / "broken.py").write_text("raise ValueError('\\x1b[31mred')\n")
    answer = outlast("worker", "broken.py")
    assert answer.code == 1
    assert "outlast: broken.py could not be imported: ValueError: \\e[31mred" in answer.err
    assert not outlast.db.exists()


def test_a_store_of_this_process_alone_is_refused(outlast):
    answer = outlast("worker", "agent.py", "--store", "memory:")
    assert answer.code == 1
    assert "exists only in the process" in answer.err


def test_a_store_that_cannot_be_used_exits_75(outlast, monkeypatch):
    monkeypatch.setenv("OUTLAST_STORE_PATIENCE", "0.2")
    monkeypatch.setenv("OUTLAST_STORE", outlast.away)
    assert outlast("worker", "agent.py").code == 75
