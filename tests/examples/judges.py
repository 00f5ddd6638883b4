"""What happened outside, counted where it happened: nothing is lost, nothing is there twice, and little is done again.

A judge looks at what is outside and at all processes of its example; `again` is how often something may have been done again.
"""

import json
from collections import Counter

from example_tools import ExampleProcess, Stage

TOKENS = 120


def count(processes: list[ExampleProcess], first_word: str) -> Counter[str]:
    return Counter(
        line for process in processes for line in process.lines if line.startswith(first_word)
    )


def at_most(counted: Counter[str], different: int, again: int) -> None:
    assert len(counted) == different, sorted(counted)
    assert different <= counted.total() <= different + again, counted.most_common(12)


def judge_report(stage: Stage, processes: list[ExampleProcess], again: int) -> None:
    at_most(count(processes, "researching"), 10, again)
    assert processes[-1].lines[-1] == str([f"finding {part}" for part in range(1, 11)])


def judge_batch(stage: Stage, processes: list[ExampleProcess], again: int) -> None:
    orders = int(processes[-1].lines[-1].split()[0])
    at_most(count(processes, "price"), orders, again)
    at_most(count(processes, "invoice"), orders, again)
    written = {file.name: file.read_text() for file in (stage.folder / "invoices").iterdir()}
    assert written == {
        f"order-{n}.txt": f"order-{n}: {(100 + n % 900) / 100:.2f}\n" for n in range(1, orders + 1)
    }
    in_all = sum(100 + n % 900 for n in range(1, orders + 1)) / 100
    assert processes[-1].lines[-1] == f"{orders} invoices, {in_all:.2f} in all"


def judge_checkpoint(stage: Stage, processes: list[ExampleProcess], again: int) -> None:
    at_most(count(processes, "page"), 40, again)
    assert count(processes, "notify") == {"notify the team": 1}
    assert processes[-1].lines[-1] == f"total {sum(n * n for n in range(40))} from 40 pages"


def judge_booked(stage: Stage, processes: list[ExampleProcess], again: int) -> None:
    assert [line.rpartition(" ")[0] for line in stage.ledger("ledger.txt")] == [
        "book flight", "book hotel", "book car",
    ]  # fmt: skip
    assert processes[-1].lines[-1] == "booked: flight in Lisbon, hotel in Lisbon, car in Lisbon"


def judge_undone(stage: Stage, processes: list[ExampleProcess], again: int) -> None:
    assert [line.rpartition(" ")[0] for line in stage.ledger("ledger.txt")] == [
        "book flight", "book hotel", "cancel hotel", "cancel flight",
    ]  # fmt: skip
    assert processes[-1].lines[-1] == "no trip: no car left in Porto"


def judge_approval(stage: Stage, processes: list[ExampleProcess], again: int) -> None:
    at_most(count(processes, "thinks"), 5, again)
    at_most(count(processes, "searches"), 2, again)
    at_most(count(processes, "asks"), 2, again)
    assert [line.partition(" ")[2] for line in stage.ledger("bookings.txt")] == [
        "Lisbon by train, 70 euros"
    ]
    assert processes[-1].lines[-1] == "booked: Lisbon by train, 70 euros"


def judge_openai(stage: Stage, processes: list[ExampleProcess], again: int) -> None:
    at_most(count(processes, "thinks"), 3, again)
    at_most(count(processes, "looks up"), 2, again)
    assert [line.partition(" ")[2] for line in stage.ledger("refunds.txt")] == ["20 euros for o-7"]
    assert processes[-1].lines[-1] == "You get 20 euros back for o-7."


def judge_claude(stage: Stage, processes: list[ExampleProcess], again: int) -> None:
    # The message of a response comes before its calls; one that was in flight comes again.
    assert count(processes, "thinks").total() <= 4 + again
    at_most(count(processes, "looks up"), 2, again)
    assert [line.partition(" ")[2] for line in stage.ledger("refunds.txt")] == ["20 euros for o-7"]
    assert processes[-1].lines[-1] == "You get 20 euros back for o-7."


def judge_pydantic(stage: Stage, processes: list[ExampleProcess], again: int) -> None:
    at_most(count(processes, "thinks"), 3, again)
    at_most(count(processes, "advises"), 2, again)
    assert [line.partition(" ")[2] for line in stage.ledger("hotels.txt")] == ["Hotel Tejo"]
    assert processes[-1].lines[-1] == "Hotel Tejo in Lisbon is booked."


def judge_langgraph(stage: Stage, processes: list[ExampleProcess], again: int) -> None:
    draft = "draft 2 on tides and moons"
    at_most(count(processes, "researches"), 2, again)
    at_most(count(processes, "writes"), 2, again)
    at_most(count(processes, "asks"), 2, again)
    assert [line.partition(" ")[2] for line in stage.ledger("published.txt")] == [draft]
    assert processes[-1].lines[-1] == f"published {draft}"


def judge_stream(stage: Stage, processes: list[ExampleProcess], again: int) -> None:
    """One answer, in one voice: what was shown when a process ended is what the next one began with, up to what was not saved yet."""
    told = [[json.loads(line) for line in process.lines] for process in processes]
    saved = ""
    shown = ""
    for process, lines in zip(processes, told, strict=True):
        if any("set" in line for line in lines):
            begun = next(line["set"] for line in lines if "set" in line)
            assert shown.startswith(begun)
            assert begun.startswith(saved), "what was saved is not asked for again"
            assert again or begun == shown
            shown = begun + "".join(line["append"] for line in lines if "append" in line)
            saved = process.saved
    voice = shown.partition("-")[0]
    assert shown == told[-1][-1]["answer"] == "".join(f"{voice}-{n} " for n in range(TOKENS))
