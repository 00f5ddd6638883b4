"""`outlast submit --debounce` and `--window`."""

import pytest


def submit(outlast, *options):
    return outlast("submit", "agent.py:report", *options)


def test_the_last_of_a_burst_is_kept(outlast):
    burst = ("--key", "ann", "--debounce", "5m", "--debounce-max", "1h")
    id = submit(outlast, "tides", *burst).out.strip()
    assert id.startswith("report:ann~")
    assert submit(outlast, "winds", *burst, "--json").json["run"]["id"] == id
    row = outlast.row(id)
    assert (row.args, row.key) == ('{"topic":"winds"}', "ann")
    assert row.due - row.created > 299


def test_a_repeat_in_the_window_is_rejected_joined_or_replaced(outlast):
    window = ("--id", "doc", "--window", "1h")
    id = submit(outlast, "tides", *window).out.strip()
    refused = submit(outlast, "winds", *window)
    assert (refused.code, refused.out) == (1, "")
    assert f"run '{id}' was submitted in the same window" in refused.err
    assert submit(outlast, "winds", *window, "--on-repeat", "join").out == f"{id}\n"
    assert outlast.row(id).args == '{"topic":"tides"}'
    assert submit(outlast, "winds", *window, "--on-repeat", "replace").out == f"{id}\n"
    assert outlast.row(id).args == '{"topic":"winds"}'


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--debounce", "5"], "needs an id or a key"),
        (["--debounce", "5", "--window", "5", "--id", "a"], "exclude each other"),
        (["--window", "5", "--id", "a", "--join"], "on_conflict has no effect"),
        (["--window", "5", "--id", "a", "--on-repeat", "wait"], "is not one of reject"),
        (["--window", "soon", "--id", "a"], "soon"),
    ],
)
def test_options_that_make_no_sense_are_refused(outlast, options, said):
    answer = submit(outlast, "tides", *options)
    assert answer.code != 0
    assert said in answer.err
