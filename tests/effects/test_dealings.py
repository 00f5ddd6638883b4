"""Dealings: what a journal says that a run has done to the outside world. A pure fold: it says that something happened only on evidence, and
that something did not only where it is certain."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.replay.dealings import Dealings
from outlast.replay.errand import DID_NOT
from outlast.replay.journal import Journal
from outlast.store.rows import Entry
from outlast.values.exceptions import CANCELLED

ERROR = json.dumps({"type": "builtins:ConnectionError", "message": "x"})


class Book:
    """A journal that is written entry by entry, one a second."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    @property
    def last(self) -> int:
        return len(self.entries)

    def add(self, kind: str, place: str = "pay#1", **fields) -> int:
        seq = len(self.entries) + 1
        self.entries.append(Entry(seq, kind, place, 100.0 + seq, **fields))
        return seq

    def intent(self, place: str = "pay#1", key: str = "k", generation: int = 0, **more) -> int:
        said = {
            "key": key,
            "effect": place.partition("#")[0],
            "code": "shop",
            "arguments": '{"amount":3}',
            "compensation": None,
            "timeout": 10.0,
            "threaded": False,
            "generation": generation,
        }
        return self.add("intent", place, args="fingerprint", value=json.dumps(said | more), attempt=1)

    def happened(self, place: str = "pay#1", value: str = '"receipt"') -> int:
        return self.add("step", place, value=value)

    def did_not(self, place: str = "pay#1") -> int:
        return self.add("step", place, error=ERROR)

    def raised(
        self, place: str = "pay#1", attempt: int = 1, *, certain: bool = False, due: float = 7.0
    ) -> int:
        args = DID_NOT if certain else None
        return self.add("attempt", place, args=args, value=str(due), error=ERROR, attempt=attempt)

    def asked(self, place: str = "pay#1", attempt: int = 1, due: float = 9.0) -> int:
        return self.add("verify", place, value=str(due), error=ERROR, attempt=attempt)

    def verified_not(self, place: str = "pay#1") -> int:
        return self.add("verify", place, args=DID_NOT)

    def decided(self, what: str, intent: int, place: str = "pay#1", value: str = "null") -> int:
        return self.add("decision", place, value=json.dumps({"what": what, "value": value, "intent": intent}))

    def retried(self, start: int | None) -> int:
        return self.add("retry", "", value=json.dumps({"from": start, "was": "failed", "undoing": False}))

    def fold(self, *, lean: bool = False) -> Dealings:
        return Journal(self.entries, lean=lean).dealings

    def __getitem__(self, place: str):
        return self.fold().places[place]


def only(book: Book):
    (dealing,) = book.fold()
    return dealing


# -- one place


def test_a_journal_without_effects_has_no_dealings():
    book = Book()
    book.add("step", "work#1", value="1")
    book.add("attempt", "work#2", value="3", error=ERROR, attempt=1)
    book.add("death", "")
    dealings = book.fold()
    assert list(dealings) == dealings.opened == dealings.undoable == []


def test_an_intent_is_open_and_has_all_that_is_needed_to_ask_after_it():
    book = Book()
    seq = book.intent(key="k-1")
    dealing = only(book)
    assert (dealing.open, dealing.happened, dealing.closed) == (True, None, None)
    assert (dealing.intent, dealing.first, dealing.at, dealing.acts) == (seq, seq, 101.0, 1)
    assert (dealing.effect, dealing.code, dealing.key, dealing.timeout) == ("pay", "shop", "k-1", 10.0)
    assert (dealing.args, dealing.arguments) == ("fingerprint", '{"amount":3}')


def test_a_step_with_a_value_says_that_it_happened():
    book = Book()
    book.intent()
    book.happened(value='"r"')
    dealing = only(book)
    assert (dealing.open, dealing.happened, dealing.value) == (False, True, '"r"')


def test_a_step_with_only_an_error_says_that_it_did_not():
    book = Book()
    book.intent()
    book.did_not()
    dealing = only(book)
    assert (dealing.open, dealing.happened, dealing.value) == (False, False, None)


def test_a_step_with_both_says_that_it_happened_without_a_result_to_record():
    book = Book()
    book.intent()
    book.add("step", "pay#1", value="null", error=ERROR)
    assert (only(book).open, only(book).happened) == (False, True)


def test_an_attempt_that_raised_leaves_it_open_and_counts():
    book = Book()
    book.intent()
    book.raised(attempt=2, due=77.0)
    dealing = only(book)
    assert (dealing.open, dealing.raised, dealing.retry_at, dealing.error) == (True, 2, 77.0, ERROR)


def test_an_attempt_that_failed_for_certain_closes_it():
    book = Book()
    book.intent()
    book.raised(certain=True)
    assert (only(book).open, only(book).happened) == (False, None)


def test_a_certain_failure_of_the_last_act_says_nothing_of_an_earlier_one():
    book = Book()
    book.intent()
    book.raised()
    book.intent()
    book.raised(attempt=2, certain=True)
    assert only(book).open
    book.intent()
    book.raised(attempt=3, certain=True)
    assert only(book).open, "nor does a second one"


def test_an_intent_that_is_only_repeated_because_it_was_slow_leaves_no_doubt():
    book = Book()
    book.intent()
    book.intent(again=True)
    assert (only(book).open, only(book).doubtful, only(book).acts) == (True, False, 1)
    book.raised(certain=True)
    assert not only(book).open


def test_a_slow_intent_after_an_open_one_leaves_the_doubt_there_was():
    book = Book()
    book.intent()
    book.raised()
    book.intent()
    book.intent(again=True)
    book.raised(attempt=2, certain=True)
    assert only(book).open


def test_the_time_that_counts_is_that_of_the_last_intent():
    book = Book()
    book.intent()
    book.intent(again=True)
    assert (only(book).at, only(book).intent, only(book).first) == (102.0, 2, 1)


def test_a_verify_that_could_not_tell_counts_and_leaves_it_open():
    book = Book()
    book.intent()
    book.asked(attempt=3, due=55.0)
    dealing = only(book)
    assert (dealing.open, dealing.asked, dealing.ask_at, dealing.doubt) == (True, 3, 55.0, ERROR)


def test_a_verify_that_says_no_is_certain_of_every_act_so_far():
    book = Book()
    book.intent()
    book.raised()
    book.intent()
    book.raised(attempt=2)
    book.verified_not()
    assert (only(book).open, only(book).doubtful) == (False, False)
    book.intent()
    book.raised(attempt=3, certain=True)
    assert not only(book).open


def test_a_decision_that_it_happened_is_kept_for_the_life_that_confirms_it():
    book = Book()
    intent = book.intent()
    book.decided("happened", intent, value='"found"')
    dealing = only(book)
    assert (dealing.decision.what, dealing.decision.value) == ("happened", '"found"')
    assert (dealing.open, dealing.happened) == (True, None)


def test_a_decision_that_it_did_not_closes_it():
    book = Book()
    book.decided("did_not", book.intent())
    assert (only(book).open, only(book).happened, only(book).decision.what) == (False, None, "did_not")


def test_a_decision_on_another_intent_says_nothing_of_this_one():
    book = Book()
    first = book.intent()
    book.raised()
    book.intent()
    book.decided("happened", first)
    assert (only(book).open, only(book).decision) == (True, None)


def test_a_new_intent_makes_a_decision_on_the_last_one_history():
    book = Book()
    book.decided("did_not", book.intent())
    book.intent()
    assert (only(book).open, only(book).decision) == (True, None)


def test_what_was_counted_starts_anew_after_a_resume_or_a_decision():
    for kind in ("resume", "decision"):
        book = Book()
        intent = book.intent()
        book.raised(attempt=4)
        book.asked(attempt=5)
        if kind == "resume":
            book.add("resume", "", value="{}")
        else:
            book.decided("happened", intent)
        dealing = only(book)
        assert (dealing.raised, dealing.asked, dealing.retry_at, dealing.ask_at) == (0, 0, 0, 0)
        assert dealing.open


def test_a_death_closes_nothing_and_is_noted_once():
    book = Book()
    book.intent()
    book.add("death", "")
    book.add("death", "")
    dealing = only(book)
    assert (dealing.open, dealing.ended) == (True, 102.0), "the life that had the intent ended at the first"
    book.intent()
    assert only(book).ended < 0


def test_what_belongs_to_other_places_is_no_concern_of_an_effect():
    book = Book()
    book.intent("pay#1")
    book.add("step", "pay#2", value="1")
    book.raised("work#1", certain=True)
    book.add("fired", "timer#1")
    assert [dealing.place for dealing in book.fold()] == ["pay#1"]
    assert only(book).open


def test_the_newest_come_first_by_their_first_intent():
    book = Book()
    book.intent("a#1")
    book.intent("b#1")
    book.intent("a#1")
    assert [dealing.place for dealing in book.fold()] == ["b#1", "a#1"]
    assert [dealing.place for dealing in book.fold().opened] == ["b#1", "a#1"]


def test_only_what_happened_and_has_a_compensation_can_be_undone():
    book = Book()
    book.intent("a#1", compensation="unpay")
    book.happened("a#1")
    book.intent("b#1", compensation="unpay")
    book.did_not("b#1")
    book.intent("c#1")
    book.happened("c#1")
    book.intent("d#1", compensation="unpay")
    dealings = book.fold()
    assert [dealing.place for dealing in dealings.undoable] == ["a#1"]
    assert dealings.compensations == 2, "what is open may have happened"


# -- a retry


def test_what_happened_stays_so_where_a_retry_makes_its_entry_void():
    book = Book()
    start = book.intent()
    book.happened(value='"r"')
    book.retried(start)
    assert (book["pay#1"].happened, book["pay#1"].value, book["pay#1"].generation) == (True, '"r"', 0)


def test_what_did_not_happen_is_another_effect_after_a_retry():
    book = Book()
    start = book.intent()
    book.did_not()
    book.retried(start)
    dealing = book["pay#1"]
    assert (dealing.intent, dealing.open, dealing.happened, dealing.generation) == (0, False, None, 1)


def test_what_was_cancelled_in_doubt_keeps_its_generation_after_a_retry():
    book = Book()
    start = book.intent()
    book.raised()
    book.add("step", "pay#1", error=CANCELLED)
    book.retried(start)
    assert (book["pay#1"].intent, book["pay#1"].generation) == (0, 0)


def test_what_was_cancelled_and_certainly_did_not_happen_is_another_effect_after_a_retry():
    book = Book()
    start = book.intent()
    book.raised(certain=True)
    book.add("step", "pay#1", error=CANCELLED)
    book.retried(start)
    assert book["pay#1"].generation == 1


def test_what_is_open_is_open_after_a_retry():
    book = Book()
    start = book.intent()
    book.retried(start)
    assert (book["pay#1"].open, book["pay#1"].generation) == (True, 0)


def test_what_is_before_the_retrys_start_is_as_it_was():
    book = Book()
    book.intent("a#1")
    book.did_not("a#1")
    start = book.add("step", "work#1", error=ERROR)
    book.retried(start)
    assert (book["a#1"].happened, book["a#1"].generation) == (False, 0)


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


@settings(max_examples=400, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(OPS), st.sampled_from(PLACES), st.integers(1, 30)), min_size=5, max_size=40
    )
)
def test_whatever_the_journal_open_is_what_has_an_act_in_doubt_and_happened_needs_evidence(plan):
    book, models, folded = Book(), {place: Model() for place in PLACES}, Dealings()
    journal = Journal()
    for op, place, number in plan:
        before = book.last
        _write(book, models, op, place, number)
        for entry in book.entries[before:]:
            journal.add(entry)
        folded = journal.dealings
        for name, model in models.items():
            dealing = folded.get(name)
            open_, happened = (False, None) if dealing is None else (dealing.open, dealing.happened)
            assert open_ == bool(model.in_doubt), (op, name, book.entries)
            assert happened == model.evidence, (op, name, book.entries)
            assert not (open_ and happened is not None), "what is known is not open"
        assert {one.place for one in folded.opened} == {
            name for name, model in models.items() if model.in_doubt
        }
    again = Journal(book.entries).dealings
    assert again.places == folded.places, "the same in every process"


def _write(book: Book, models: dict[str, Model], op: str, place: str, number: int) -> None:
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
    elif op in ("happened", "did not", "happened without result") and acted and model.evidence is None:
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


def _closed(book: Book, model: Model, place: str) -> int:
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


def test_a_lean_fold_keeps_no_arguments_or_results_that_nobody_will_need():
    book = Book()
    for number in range(20):
        book.intent(f"pay#{number}", arguments="a" * 1000)
        book.happened(f"pay#{number}", value="r" * 1000)
    lean, whole = book.fold(lean=True), book.fold()
    for dealings, characters in ((lean, 20 * 10), (whole, 20 * 2000)):
        kept = [text for one in dealings for text in (one.arguments, one.closed.value)]
        assert (len(dealings.places), sum(map(len, kept)) <= characters) == (20, True)
        assert all(one.happened and not one.open for one in dealings)
    assert sum(len(one.value) for one in whole) == 20 * 1000, "who looks wants to see it"


def test_a_lean_fold_keeps_what_is_open_or_to_be_undone_or_failed():
    book = Book()
    book.intent("open#1")
    book.intent("pay#1", compensation="refund")
    book.happened("pay#1")
    book.intent("undo:pay#1")
    book.happened("undo:pay#1", value='"refunded"')
    book.intent("bad#1")
    book.did_not("bad#1")
    book.intent("odd#1")
    book.add("step", "odd#1", value='"happened"', error=ERROR)
    assert book.fold(lean=True).places == book.fold().places
