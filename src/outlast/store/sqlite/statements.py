"""Name every SQL statement of the SQLite store. The texts are in `sql/`.

Values are always bound.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from outlast.store.rows import (
    DELAYED,
    SUSPECT_DEATHS,
    DrainRow,
    Entry,
    ExecutionRow,
    RunQuery,
    RunRow,
    Status,
    WorkerRow,
)
from outlast.store.session_rows import NAMES_MAX
from outlast.store.sqlite.sql_files import SqlFiles

_sql = SqlFiles(
    Path(__file__).parent / "sql",
    run=", ".join(RunRow._fields),
    entry=", ".join(Entry._fields),
    execution=", ".join(ExecutionRow._fields),
    # The last fields of these rows are computed.
    drain=", ".join(DrainRow._fields[:-1]),
    worker=", ".join(WorkerRow._fields[:-1]),
    suspect_deaths=str(SUSPECT_DEATHS),
    names_max=str(NAMES_MAX),
)

BEGIN = "BEGIN IMMEDIATE"
COMMIT = "COMMIT"
ROLLBACK = "ROLLBACK"

# runs.sql
RUN_BY_ID = _sql("RUN_BY_ID")
RUN_BY_PK = _sql("RUN_BY_PK")
RUN_BY_FENCE = _sql("RUN_BY_FENCE")
RUNS_BY_ID = _sql("RUNS_BY_ID")
RUNS_WHERE = {
    name: _sql(f"where_{name}", above=">=")
    for name in (
        *("prefix", "workflow", "queue", "items", "undoing", "parent", "by", "key", "worker"),
        *(
            "waiting_for",
            "awaits_message",
            "created_before",
            "created_after",
            "ended_after",
            "before_pk",
        ),
    )
}
_AWAITS_NONE = _sql("where_awaits_none")
# As literals, so that an index for some statuses is used.
_STATUS_IS = {status: f"status = '{status}'" for status in get_args(Status)} | {
    DELAYED: _sql("where_delayed")
}
_RUNS = _sql("RUNS", where="{where}")


def runs_statement(query: RunQuery) -> str:
    """Return the statement that reads the runs of a query. Its values are bound by their names."""
    given = query._asdict() | {"prefix": query.prefix or None}
    where = [text for name, text in RUNS_WHERE.items() if given[name] is not None]
    if query.awaits_message is False:
        where[where.index(RUNS_WHERE["awaits_message"])] = _AWAITS_NONE
    if query.statuses:
        known = [f"({_STATUS_IS[one]})" for one in query.statuses if one in _STATUS_IS]
        where.append(f"({' OR '.join(known) or 'false'})")
    return _RUNS.replace("{where}", " AND ".join(where) or "true")


ENDS = _sql("ENDS")
HAS_FENCE = _sql("HAS_FENCE")
MAY_NEED_COMPENSATION = _sql("MAY_NEED_COMPENSATION")
CANCELS = _sql("CANCELS")

# submit.sql
SUBMIT = _sql("SUBMIT")
ENQUEUE = _sql("ENQUEUE")
REPLACE = _sql("REPLACE")

# claim.sql
NEXT_FENCE = _sql("NEXT_FENCE")
CLAIMED_BY_TOKEN = _sql("CLAIMED_BY_TOKEN")
COME_DUE = _sql("COME_DUE")
NEXT_DUE = _sql("NEXT_DUE")
QUEUE_NAMES = _sql("QUEUE_NAMES")
NEXT_WORKFLOW = {level: _sql("NEXT_WORKFLOW", level=level) for level in (1, 2)}
READY_ITEM = {level: _sql("READY_ITEM", level=level) for level in (1, 2)}
CLAIMABLE = {
    (level, new): _sql("CLAIMABLE", level=level, new=new) for level in (1, 2) for new in (0, 1)
}
CLAIMABLE_CHILDREN = {new: _sql("CLAIMABLE_CHILDREN", new=new) for new in (0, 1)}
CLAIMABLE_BY_ID = _sql("CLAIMABLE_BY_ID")
RECOVERED = _sql("RECOVERED")
CLAIM = _sql("CLAIM")
ABLE = _sql("ABLE")

# keys.sql
KEY_RULE = _sql("KEY_RULE")
KEY_CHANGES = _sql("KEY_CHANGES")
NEXT_KEY_CHANGE = _sql("NEXT_KEY_CHANGE")
KEY_REVIEWED = _sql("KEY_REVIEWED")
KEY_REVIEW_AT = _sql("KEY_REVIEW_AT")
KEY_RUNNING = _sql("KEY_RUNNING")
KEY_START = _sql("KEY_START")
KEY_HEADS = _sql("KEY_HEADS")
KEY_NEXT = _sql("KEY_NEXT")
GIVE_TURN = _sql("GIVE_TURN")
TAKE_TURN = _sql("TAKE_TURN")
KEYS_CHANGED = _sql("KEYS_CHANGED")

# entries.sql
RECORD = _sql("RECORD")
RECORDED = _sql("RECORDED")
SEQ_TAKEN = _sql("SEQ_TAKEN")
APPEND = _sql("APPEND")
MARK = _sql("MARK")
JOURNAL = _sql("JOURNAL")
LAST_SEQ = _sql("LAST_SEQ")
DONE = _sql("DONE")
HISTORY = _sql("HISTORY")
DONE_COUNT = _sql("DONE_COUNT")
SAVE = _sql("SAVE")
PROGRESS = _sql("PROGRESS")
FORGET_PROGRESS = _sql("FORGET_PROGRESS")
DECIDED = _sql("DECIDED")
REQUEUED = _sql("REQUEUED")

# release.sql
WAIT = _sql("WAIT")
SETTLE = _sql("SETTLE")
SETTLED = _sql("SETTLED")
HELD = _sql("HELD")
HELD_BY = _sql("HELD_BY")
HOLDS = _sql("HOLDS")
GIVE_BACK = _sql("GIVE_BACK")
GIVE_BACK_ALL_BUT = _sql("GIVE_BACK_ALL_BUT")
LEFT = _sql("LEFT")
RELEASED_EARLIER = _sql("RELEASED_EARLIER")
NEWS = _sql("NEWS")
ACK = _sql("ACK")
ACKED_BY = _sql("ACKED_BY")

# requests.sql
MAILBOX = _sql("MAILBOX")
SEND = _sql("SEND")
MESSAGES = _sql("MESSAGES")
WAKE = _sql("WAKE")
WAKE_PARENT = _sql("WAKE_PARENT")
CANCEL = _sql("CANCEL")
CANCEL_AT_ONCE = _sql("CANCEL_AT_ONCE")
REQUEUE = _sql("REQUEUE")
UNDO = _sql("UNDO")
UNDONE_BY = _sql("UNDONE_BY")

# workers.sql
ENLIST = _sql("ENLIST")
RENEW = _sql("RENEW")
REGISTERED = _sql("REGISTERED")
LEAVE = _sql("LEAVE")
HOLDERS = _sql("HOLDERS")
WORKERS = _sql("WORKERS")
DRAIN = _sql("DRAIN")
ASK_DRAIN = _sql("ASK_DRAIN")
ASKED = _sql("ASKED")
CUT_LEASES = _sql("CUT_LEASES")
PULSE = _sql("PULSE")
BEAT = _sql("BEAT")

# drains.sql
DRAIN_OPEN = _sql("DRAIN_OPEN")
DRAIN_REPORT = _sql("DRAIN_REPORT")
DRAIN_SWEPT = _sql("DRAIN_SWEPT")
DRAINS_TOO_MANY = _sql("DRAINS_TOO_MANY")
DRAIN_FORGET = (
    _sql("DRAIN_FORGET_RECOVERIES"),
    _sql("DRAIN_FORGET_DRAINS"),
)
DRAINS = _sql("DRAINS")
RECOVERIES = _sql("RECOVERIES")

# deaths.sql
RECORD_DEATH = _sql("RECORD_DEATH")
DEATHS_TOO_MANY = _sql("DEATHS_TOO_MANY")
OWN_DEATHS = _sql("OWN_DEATHS")
OTHER_DEATHS = _sql("OTHER_DEATHS")
FLEET_SIZE = _sql("FLEET_SIZE")

# queues.sql
QUEUE = _sql("QUEUE")
DEPTH = _sql("DEPTH")
MOVED = _sql("MOVED")
LISTED = _sql("LISTED")
LIMIT = _sql("LIMIT")
QUEUES = _sql("QUEUES")

# sessions.sql
_ABOVE = {False: ">=", True: ">"}
SESSION = _sql("SESSION")
SESSION_NAMED = _sql("SESSION_NAMED")
SESSION_FIELDS = {
    (above, reverse): _sql("SESSION_FIELDS", above=sign, order="DESC" if reverse else "ASC")
    for above, sign in _ABOVE.items()
    for reverse in (False, True)
}
SESSION_ITEMS = _sql("SESSION_ITEMS")
SESSIONS = _sql("SESSIONS")
SESSIONS_WITH_PREFIX = _sql("SESSIONS_WITH_PREFIX", above=">=")
SESSIONS_BY_ID = {above: _sql("SESSIONS_BY_ID", above=sign) for above, sign in _ABOVE.items()}
SESSION_FOUND = _sql("SESSION_FOUND")
SESSION_TOUCHED = _sql("SESSION_TOUCHED")
SESSION_NEWEST = _sql("SESSION_NEWEST")
SESSION_NEW = _sql("SESSION_NEW")
SESSION_CHANGE = _sql("SESSION_CHANGE")
SESSION_EXTEND = _sql("SESSION_EXTEND")
SESSION_SET = _sql("SESSION_SET")
SESSION_SET_LIST = _sql("SESSION_SET_LIST")
SESSION_UNSET = _sql("SESSION_UNSET")
SESSION_UNLIST = _sql("SESSION_UNLIST")
SESSION_ADD = _sql("SESSION_ADD")
SESSION_REPLACE = _sql("SESSION_REPLACE")
SESSION_CUT_OLDEST = _sql("SESSION_CUT_OLDEST")
SESSION_CUT_NEWEST = _sql("SESSION_CUT_NEWEST")
SESSIONS_EXPIRED = _sql("SESSIONS_EXPIRED")
SESSION_EMPTY = (_sql("SESSION_FORGET_ITEMS"), _sql("SESSION_FORGET_FIELDS"))
SESSION_FORGET = (*SESSION_EMPTY, _sql("SESSION_FORGET_SESSIONS"))

# streams.sql
STREAM_PART = _sql("STREAM_PART")
STREAM_BOUNDS = _sql("STREAM_BOUNDS")
STREAM_SET = _sql("STREAM_SET")
STREAM_PART_SET = _sql("STREAM_PART_SET")
STREAM_PART_MOVE = _sql("STREAM_PART_MOVE")
STREAM_CHUNK_ADD = _sql("STREAM_CHUNK_ADD")
STREAM_CHUNKS_FROM = _sql("STREAM_CHUNKS_FROM")
STREAM_CHUNKS_DROP = _sql("STREAM_CHUNKS_DROP")
STREAM_CHUNK_DROP = _sql("STREAM_CHUNK_DROP")
STREAM = _sql("STREAM")
STREAMS = _sql("STREAMS")
UNENDED = _sql("UNENDED")
STREAM_PARTS = _sql("STREAM_PARTS")
STREAM_PART_VALUES = _sql("STREAM_PART_VALUES")

# housekeeping.sql
MEASURED = _sql("MEASURED")
DURATIONS_TOO_MANY = _sql("DURATIONS_TOO_MANY")
MEASURED_PAIRS = _sql("MEASURED_PAIRS")
DURATIONS = _sql("DURATIONS")
PRUNABLE = _sql("PRUNABLE")
PRUNABLE_BY_ID = _sql("PRUNABLE_BY_ID")
ACKED = _sql("ACKED")
PRUNE = (
    _sql("PRUNE_ENTRIES"),
    _sql("PRUNE_MESSAGES"),
    _sql("PRUNE_EXECUTIONS"),
    FORGET_PROGRESS,
    _sql("PRUNE_STREAM_CHUNKS"),
    _sql("PRUNE_STREAM_PARTS"),
    _sql("PRUNE_STREAMS"),
    _sql("PRUNE_RUNS"),
)

# executions.sql
KEEP_EXECUTION = _sql("KEEP_EXECUTION")
EXECUTIONS = _sql("EXECUTIONS")
