"""The journal's entries about one effect fold into its state."""

from effect_log_tools import ERROR, JournalWriter

from outlast.codec.exceptions import CANCELLED


def only(book: JournalWriter):
    (effect_record,) = book.fold()
    return effect_record


# -- one place


def test_journal_without_effects_gives_an_empty_log():
    book = JournalWriter()
    book.add("step", "work#1", value="1")
    book.add("attempt", "work#2", value="3", error=ERROR, attempt=1)
    book.add("death", "")
    effect_log = book.fold()
    assert list(effect_log) == effect_log.opened == effect_log.undoable == []


def test_intent_alone_is_open():
    book = JournalWriter()
    seq = book.intent(key="k-1")
    effect_record = only(book)
    assert (effect_record.open, effect_record.happened, effect_record.closed) == (True, None, None)
    assert (effect_record.intent, effect_record.first, effect_record.at, effect_record.acts) == (
        seq,
        seq,
        101.0,
        1,
    )
    assert (effect_record.effect, effect_record.code, effect_record.key, effect_record.timeout) == (
        "pay",
        "shop",
        "k-1",
        10.0,
    )
    assert (effect_record.args, effect_record.arguments) == ("fingerprint", '{"amount":3}')


def test_step_with_a_value_means_happened():
    book = JournalWriter()
    book.intent()
    book.happened(value='"r"')
    effect_record = only(book)
    assert (effect_record.open, effect_record.happened, effect_record.value) == (False, True, '"r"')


def test_step_with_only_an_error_means_it_did_not_happen():
    book = JournalWriter()
    book.intent()
    book.did_not()
    effect_record = only(book)
    assert (effect_record.open, effect_record.happened, effect_record.value) == (False, False, None)


def test_step_with_value_and_error_means_happened_without_result():
    book = JournalWriter()
    book.intent()
    book.add("step", "pay#1", value="null", error=ERROR)
    assert (only(book).open, only(book).happened) == (False, True)


def test_attempt_that_raised_leaves_it_open_and_counts():
    book = JournalWriter()
    book.intent()
    book.raised(attempt=2, due=77.0)
    effect_record = only(book)
    assert (
        effect_record.open,
        effect_record.raised,
        effect_record.retry_at,
        effect_record.error,
    ) == (
        True,
        2,
        77.0,
        ERROR,
    )


def test_attempt_that_failed_for_certain_closes_it():
    book = JournalWriter()
    book.intent()
    book.raised(certain=True)
    assert (only(book).open, only(book).happened) == (False, None)


def test_declared_failure_says_nothing_about_an_earlier_act():
    book = JournalWriter()
    book.intent()
    book.raised()
    book.intent()
    book.raised(attempt=2, certain=True)
    assert only(book).open
    book.intent()
    book.raised(attempt=3, certain=True)
    assert only(book).open, "nor does a second one"


def test_renewed_intent_leaves_no_doubt():
    book = JournalWriter()
    book.intent()
    book.intent(again=True)
    assert (only(book).open, only(book).doubtful, only(book).acts) == (True, False, 1)
    book.raised(certain=True)
    assert not only(book).open


def test_renewed_intent_keeps_an_earlier_doubt():
    book = JournalWriter()
    book.intent()
    book.raised()
    book.intent()
    book.intent(again=True)
    book.raised(attempt=2, certain=True)
    assert only(book).open


def test_last_intent_sets_the_time():
    book = JournalWriter()
    book.intent()
    book.intent(again=True)
    assert (only(book).at, only(book).intent, only(book).first) == (102.0, 2, 1)


def test_verify_that_could_not_tell_counts_and_leaves_it_open():
    book = JournalWriter()
    book.intent()
    book.asked(attempt=3, due=55.0)
    effect_record = only(book)
    assert (effect_record.open, effect_record.asked, effect_record.ask_at, effect_record.doubt) == (
        True,
        3,
        55.0,
        ERROR,
    )


def test_negative_verify_settles_every_act_so_far():
    book = JournalWriter()
    book.intent()
    book.raised()
    book.intent()
    book.raised(attempt=2)
    book.verified_not()
    assert (only(book).open, only(book).doubtful) == (False, False)
    book.intent()
    book.raised(attempt=3, certain=True)
    assert not only(book).open


def test_decision_that_it_happened_is_kept_for_the_life_that_confirms_it():
    book = JournalWriter()
    intent = book.intent()
    book.decided("happened", intent, value='"found"')
    effect_record = only(book)
    assert (effect_record.decision.what, effect_record.decision.value) == ("happened", '"found"')
    assert (effect_record.open, effect_record.happened) == (True, None)


def test_negative_decision_closes_the_effect():
    book = JournalWriter()
    book.decided("did_not", book.intent())
    assert (only(book).open, only(book).happened, only(book).decision.what) == (
        False,
        None,
        "did_not",
    )


def test_decision_on_another_intent_is_ignored():
    book = JournalWriter()
    first = book.intent()
    book.raised()
    book.intent()
    book.decided("happened", first)
    assert (only(book).open, only(book).decision) == (True, None)


def test_new_intent_supersedes_a_decision():
    book = JournalWriter()
    book.decided("did_not", book.intent())
    book.intent()
    assert (only(book).open, only(book).decision) == (True, None)


def test_counters_restart_after_resume_or_decision():
    for kind in ("resume", "decision"):
        book = JournalWriter()
        intent = book.intent()
        book.raised(attempt=4)
        book.asked(attempt=5)
        if kind == "resume":
            book.add("resume", "", value="{}")
        else:
            book.decided("happened", intent)
        effect_record = only(book)
        assert (
            effect_record.raised,
            effect_record.asked,
            effect_record.retry_at,
            effect_record.ask_at,
        ) == (
            0,
            0,
            0,
            0,
        )
        assert effect_record.open


def test_death_closes_nothing_and_is_noted_once():
    book = JournalWriter()
    book.intent()
    book.add("death", "")
    book.add("death", "")
    effect_record = only(book)
    assert (effect_record.open, effect_record.ended) == (True, 102.0), (
        "the life that had the intent ended at the first"
    )
    book.intent()
    assert only(book).ended < 0


def test_entries_of_other_places_are_ignored():
    book = JournalWriter()
    book.intent("pay#1")
    book.add("step", "pay#2", value="1")
    book.raised("work#1", certain=True)
    book.add("fired", "timer#1")
    assert [effect_record.place for effect_record in book.fold()] == ["pay#1"]
    assert only(book).open


def test_newest_first_intent_comes_first():
    book = JournalWriter()
    book.intent("a#1")
    book.intent("b#1")
    book.intent("a#1")
    assert [effect_record.place for effect_record in book.fold()] == ["b#1", "a#1"]
    assert [effect_record.place for effect_record in book.fold().opened] == ["b#1", "a#1"]


def test_only_what_happened_and_has_a_compensation_can_be_undone():
    book = JournalWriter()
    book.intent("a#1", compensation="unpay")
    book.happened("a#1")
    book.intent("b#1", compensation="unpay")
    book.did_not("b#1")
    book.intent("c#1")
    book.happened("c#1")
    book.intent("d#1", compensation="unpay")
    effect_log = book.fold()
    assert [effect_record.place for effect_record in effect_log.undoable] == ["a#1"]
    assert effect_log.compensations == 2, "what is open may have happened"


# -- a retry


def test_effect_that_happened_survives_a_retry():
    book = JournalWriter()
    start = book.intent()
    book.happened(value='"r"')
    book.retried(start)
    assert (book["pay#1"].happened, book["pay#1"].value, book["pay#1"].generation) == (
        True,
        '"r"',
        0,
    )


def test_effect_that_did_not_happen_is_new_after_a_retry():
    book = JournalWriter()
    start = book.intent()
    book.did_not()
    book.retried(start)
    effect_record = book["pay#1"]
    assert (
        effect_record.intent,
        effect_record.open,
        effect_record.happened,
        effect_record.generation,
    ) == (
        0,
        False,
        None,
        1,
    )


def test_doubtful_cancelled_effect_keeps_its_generation_after_a_retry():
    book = JournalWriter()
    start = book.intent()
    book.raised()
    book.add("step", "pay#1", error=CANCELLED)
    book.retried(start)
    assert (book["pay#1"].intent, book["pay#1"].generation) == (0, 0)


def test_cancelled_effect_that_did_not_happen_is_new_after_a_retry():
    book = JournalWriter()
    start = book.intent()
    book.raised(certain=True)
    book.add("step", "pay#1", error=CANCELLED)
    book.retried(start)
    assert book["pay#1"].generation == 1


def test_open_effect_stays_open_after_a_retry():
    book = JournalWriter()
    start = book.intent()
    book.retried(start)
    assert (book["pay#1"].open, book["pay#1"].generation) == (True, 0)


def test_retry_keeps_what_precedes_its_start():
    book = JournalWriter()
    book.intent("a#1")
    book.did_not("a#1")
    start = book.add("step", "work#1", error=ERROR)
    book.retried(start)
    assert (book["a#1"].happened, book["a#1"].generation) == (False, 0)
