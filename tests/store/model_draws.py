"""What Hypothesis draws for the model of a store: the name of a command or an event, and small numbers."""

from hypothesis import strategies as st

COMMANDS = [
    "submit", "submit", "replace", "replace", "many", "own", "own", "claim", "claim", "claim", "claim_suspect", "claim_suspect", "claim_id",
    "claim_id", "record", "record", "record", "record_again", "settle", "settle", "settle", "release", "release", "wait",
    "wait", "nack", "ack", "send", "send", "cancel", "cancel_parked", "retry", "retry", "resume", "resume", "register", "renew",
    "leave", "sweep", "sweep", "drain", "drain", "limit", "prune", "undo", "undo", "undo_child", "undo_child", "decide", "decide",
    "limit_keys", "limit_keys", "pause",
]  # fmt: skip
EVENTS = [
    "commit",
    "time",
    "time",
    "time",
    "lease",
    "kill",
    "kill_holder",
    "start",
    "start",
    "reopen",
]

draws = st.tuples(
    st.sampled_from(COMMANDS + EVENTS), st.integers(0, 11), st.integers(0, 6), st.integers(0, 3)
)
