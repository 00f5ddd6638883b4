"""Generated journals fold into the same state in every process, and a lean fold keeps only what is needed."""

import os

from effect_log_tools import ERROR, JournalWriter
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.execution.effects_from_journal import EffectLog
from outlast.execution.journal import Journal

# -- whatever the journal


PLACES = ("a#1", "b#1")


OPS = (
    "intent", "slow intent", "raised", "certain", "asked", "verified not", "happened", "did not", "happened without result",
    "decided happened", "decided not", "death", "resume", "retry",
)  # fmt: skip


class Model:
    """What may have happened at one place, act by act."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.in_doubt: set[int] = set()
        """Acts of which it is not known whether they happened."""
        self.intents: list[int] = []
        self.evidence: bool | None = None


@settings(max_examples=2000 if "OUTLAST_TEST_KILLS" in os.environ else 150, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(OPS), st.sampled_from(PLACES), st.integers(1, 30)),
        min_size=5,
        max_size=40,
    )
)
def test_generated_journals_match_a_model(plan):
    book, models, folded = JournalWriter(), {place: Model() for place in PLACES}, EffectLog()
    journal = Journal()
    for op, place, number in plan:
        before = book.last
        _write(book, models, op, place, number)
        for entry in book.entries[before:]:
            journal.add(entry)
        folded = journal.effect_log
        for name, model in models.items():
            effect_record = folded.get(name)
            open_, happened = (
                (False, None)
                if effect_record is None
                else (effect_record.open, effect_record.happened)
            )
            assert open_ == bool(model.in_doubt), (op, name, book.entries)
            assert happened == model.evidence, (op, name, book.entries)
            assert not (open_ and happened is not None), "what is known is not open"
        assert {one.place for one in folded.opened} == {
            name for name, model in models.items() if model.in_doubt
        }
    again = Journal(book.entries).effect_log
    assert again.records == folded.records, "the same in every process"


def _write(book: JournalWriter, models: dict[str, Model], op: str, place: str, number: int) -> None:
    """One more entry, if a life or a person could write it here."""
    model = models[place]
    acted = bool(model.intents)
    if op in ("intent", "slow intent") and model.evidence is None:
        for again in range(1 + (number % 3 if op == "slow intent" else 0)):
            seq = book.intent(place, again=True) if again else book.intent(place)
        model.intents.append(seq)
        model.in_doubt.add(seq)
    elif op in ("raised", "certain") and acted and model.intents[-1] in model.in_doubt:
        book.raised(place, number % 5, certain=op == "certain")
        if op == "certain":
            model.in_doubt.discard(model.intents[-1])
    elif op == "asked" and model.in_doubt:
        book.asked(place, number % 5)
    elif op in ("verified not", "decided not") and model.in_doubt:
        book.verified_not(place) if op == "verified not" else book.decided(
            "did_not", model.intents[-1], place
        )
        model.in_doubt.clear()
    elif op == "decided happened" and model.in_doubt:
        book.decided("happened", model.intents[-1], place)
    elif (
        op in ("happened", "did not", "happened without result")
        and acted
        and model.evidence is None
    ):
        if op == "happened":
            book.happened(place)
        elif op == "did not":
            book.did_not(place)
        else:
            book.add("step", place, value="null", error=ERROR)
        model.in_doubt.clear()
        model.evidence = op != "did not"
    elif op in ("death", "resume"):
        book.add(op, "", value="{}")
    elif op == "retry" and book.last:
        start = min(number, book.last)
        book.retried(start)
        for name, one in models.items():
            closed = _closed(book, one, name)
            if closed >= start and not one.evidence and not one.in_doubt:
                one.clear()


def _closed(book: JournalWriter, model: Model, place: str) -> int:
    """The entry that ended what was dealt with here: its outcome, or else its last intent."""
    if not model.intents:
        return 0
    steps = [
        one.seq
        for one in book.entries
        if one.key == place and one.kind == "step" and one.seq > model.intents[-1]
    ]
    return steps[-1] if steps and model.evidence is not None else model.intents[-1]


# -- in a life, which has to fit into memory


def test_lean_fold_drops_arguments_and_results_that_are_not_needed():
    book = JournalWriter()
    for number in range(20):
        book.intent(f"pay#{number}", arguments="a" * 1000)
        book.happened(f"pay#{number}", value="r" * 1000)
    lean, whole = book.fold(lean=True), book.fold()
    for effect_log, characters in ((lean, 20 * 10), (whole, 20 * 2000)):
        kept = [text for one in effect_log for text in (one.arguments, one.closed.value)]
        assert (len(effect_log.records), sum(map(len, kept)) <= characters) == (20, True)
        assert all(one.happened and not one.open for one in effect_log)
    assert sum(len(one.value) for one in whole) == 20 * 1000, "who looks wants to see it"


def test_lean_fold_keeps_what_is_open_or_to_be_undone_or_failed():
    book = JournalWriter()
    book.intent("open#1")
    book.intent("pay#1", compensation="refund")
    book.happened("pay#1")
    book.intent("undo:pay#1")
    book.happened("undo:pay#1", value='"refunded"')
    book.intent("bad#1")
    book.did_not("bad#1")
    book.intent("odd#1")
    book.add("step", "odd#1", value='"happened"', error=ERROR)
    assert book.fold(lean=True).records == book.fold().records
