"""`outlast limit`: the limits of one queue, and a pause."""

import pytest

from outlast.store.commands import Claim, SetQueueLimits

NO_KEY_LIMITS = {"per_key_concurrency": None, "per_key_rate": None, "paused": False}


def test_a_queue_gets_limits_of_its_own(outlast):
    outlast.commit()
    answer = outlast("limit", "mail", "--depth", "100", "--concurrency", "2")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == "outlast: queue mail: at most 100 queued, at most 2 executing.\n"
    assert outlast("limit", "mail", "--json").json == {
        "queue": "mail",
        "depth": 100,
        "concurrency": 2,
        **NO_KEY_LIMITS,
    }


def test_limit_changes_only_what_is_named(outlast):
    outlast.commit(SetQueueLimits("mail", 100, 2))
    assert outlast("limit", "mail", "--depth", "7", "--json").json == {
        "queue": "mail",
        "depth": 7,
        "concurrency": 2,
        **NO_KEY_LIMITS,
    }
    assert outlast("limit", "mail", "--no-concurrency", "--json").json == {
        "queue": "mail",
        "depth": 7,
        "concurrency": None,
        **NO_KEY_LIMITS,
    }
    answer = outlast("limit", "mail", "--no-depth")
    assert answer.err == "outlast: queue mail: no depth limit of its own, no concurrency limit.\n"
    outlast("limit", "mail", "--concurrency", "1")
    [queue] = outlast("queues", "--json").json["queues"]
    assert (queue["depth_max"], queue["concurrency_max"]) == (None, 1)


def test_limits_are_only_shown_where_nothing_is_to_change(outlast):
    outlast.commit()
    assert outlast("limit", "mail", "--json").json == {
        "queue": "mail",
        "depth": None,
        "concurrency": None,
        **NO_KEY_LIMITS,
    }
    assert outlast("limit", "mail").err == (
        "outlast: queue mail has no limits and has never been used.\n"
    )
    assert outlast("queues", "--json").json == {"queues": []}


def test_paused_queue_gives_out_nothing_until_it_is_resumed(outlast):
    outlast.registered()
    outlast.submitted("r1")
    answer = outlast("limit", "default", "--concurrency", "0")
    assert answer.err.splitlines() == [
        "outlast: queue default: no depth limit of its own, at most 0 executing.",
        "outlast: Nothing more is claimed from it. To resume: `outlast limit default --no-concurrency`.",
    ]  # fmt: skip
    assert outlast.commit(Claim("w1", "t")) == [[]]
    outlast("limit", "default", "--no-concurrency")
    ((row,),) = outlast.commit(Claim("w1", "t2"))
    assert row.id == "r1"


def test_a_queue_gets_limits_per_key(outlast):
    outlast.commit()
    answer = outlast("limit", "mail", "--per-key-concurrency", "3", "--per-key-rate", "100/1m")
    assert answer.err == (
        "outlast: queue mail: no depth limit of its own, no concurrency limit, at most 3 executing "
        "per key, at most 100/1m starting per key.\n"
    )
    limits = {"queue": "mail", "depth": None, "concurrency": None, "paused": False}
    assert outlast("limit", "mail", "--no-per-key-rate", "--json").json == {
        **limits, "per_key_concurrency": 3, "per_key_rate": None
    }  # fmt: skip
    assert "mail: of each key at most 3 executing." in outlast("queues").out
    assert outlast("limit", "mail", "--no-per-key-concurrency", "--json").json == {
        **limits, "per_key_concurrency": None, "per_key_rate": None
    }  # fmt: skip


def test_a_paused_queue_keeps_its_limits(outlast):
    outlast.registered()
    outlast.submitted("r1")
    outlast("limit", "default", "--concurrency", "2")
    answer = outlast("limit", "default", "--pause")
    assert answer.err.splitlines() == [
        "outlast: queue default: no depth limit of its own, at most 2 executing, paused.",
        "outlast: Nothing more is claimed from it. To resume: `outlast limit default --resume`.",
    ]
    assert "default: paused. To resume: `outlast limit default --resume`." in outlast("queues").out
    assert outlast.commit(Claim("w1", "t")) == [[]]
    assert outlast("limit", "default", "--resume", "--json").json["concurrency"] == 2
    ((row,),) = outlast.commit(Claim("w1", "t2"))
    assert row.id == "r1"


@pytest.mark.parametrize(
    "words",
    [
        [], ["mail", "--depth", "-1"], ["mail", "--depth", "0"], ["mail", "--concurrency", "-1"], ["mail", "--depth", "many"], ["mail", "--depth", "1", "--no-depth"],
        ["mail", "--concurrency", "1", "--no-concurrency"], ["a/b", "--depth", "1"], ["", "--depth", "1"],
        ["a\x1bb", "--depth", "1"], ["mail", "--depth", "99999999999999999999"],
        ["mail", "--per-key-concurrency", "0"], ["mail", "--per-key-rate", "100"], ["mail", "--per-key-rate", "20000/1m"],
        ["mail", "--per-key-rate", "1/1m", "--no-per-key-rate"], ["mail", "--per-key-rate", "0/1m"],
    ],
)  # fmt: skip
def test_an_impossible_limit_is_a_usage_error(outlast, words):
    outlast.commit()
    answer = outlast("limit", *words)
    assert answer.code == 2
    assert "\x1b" not in answer.err
    assert outlast("queues", "--json").json == {"queues": []}
