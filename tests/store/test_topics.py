"""Which listeners a commit wakes."""

from outlast.store.commands import Claim, Publish, Record, Send, Settle
from outlast.store.topics import News, Topic, news_of

CHANGES, STREAMS = Topic.CHANGES, Topic.STREAMS


def test_publication_does_not_wake_processes_that_wait_for_work():
    assert news_of({Publish, Record}, notifies=False) == News((STREAMS,), (STREAMS,))


def test_other_commands_do_not_wake_viewers_of_streams():
    assert news_of({Send}, notifies=False) == News((CHANGES,), (CHANGES,))
    assert news_of({Settle}, notifies=False) == News((), (CHANGES,))
    assert news_of({Record}, notifies=False) == News((), ())
    assert news_of({Claim}, notifies=True) == News((CHANGES,), (CHANGES,))


def test_commit_of_both_wakes_both():
    assert news_of({Publish, Settle}, notifies=False) == News((STREAMS,), (CHANGES, STREAMS))
