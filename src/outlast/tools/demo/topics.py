"""Define what the fake model knows: search results and an answer for each topic.

Each topic is researched by one run, whose id is the name of the topic.
"""

from __future__ import annotations

from typing import NamedTuple


class Topic(NamedTuple):
    results: dict[str, str]
    """Search results by question, in the order in which the model asks."""
    answer: str


STOPPED, KILLED, WAITING = "tides", "bees", "glaciers"
"""The runs: the worker of one is stopped, that of another is killed, and one waits for approval."""
APPROVAL = "approved"
"""The message that WAITING waits for."""
TOPICS = {
    STOPPED: Topic(
        {
            "what pulls the sea": "The Moon pulls the near side of the Earth harder than the far "
            "side. The Sun does the same, at half the strength.",
            "spring and neap tides": "At new and full Moon both pull along one line: spring tides. "
            "At the quarters they pull across each other: neap tides.",
        },
        "The sea rises and falls because the Moon does not pull everywhere alike. It pulls the "
        "near side of the Earth harder than its middle, and the middle harder than the far side, "
        "so the water bulges on both. The Earth turns under the two bulges, and most coasts meet "
        "each of them once a day. When Sun and Moon stand in line, the tides are high: springs. "
        "When they stand at right angles, the tides are weak: neaps.",
    ),
    KILLED: Topic(
        {
            "the waggle dance": "A forager runs straight while waggling, circles back, and "
            "repeats. The angle to the vertical is the angle to the Sun.",
            "distance in the dance": "The longer the waggle run lasts, the farther away the food: "
            "about a second for each kilometre.",
        },
        "A bee that has found food tells the others where it is by dancing. In the dark of the "
        "hive she runs straight up the comb, shaking her body, turns back to where she began, and "
        "runs again. The angle of her run to the vertical is the angle of the flight to the Sun, "
        "and as the Sun moves on she turns her dance with it. How long she shakes says how far to "
        "fly: a second is about a kilometre. Her sisters follow her with their feelers, and then "
        "they fly out and mostly arrive.",
    ),
    WAITING: Topic(
        {"how ice flows": "Under its own weight ice deforms like honey, and slides on melt water."},
        "A glacier is a river that takes its time. Snow that outlasts the summer is pressed to "
        "ice, and ice that is thick enough cannot carry its own weight: it flows downhill, a "
        "hand's breadth a day or less. Where it melts as fast as it arrives, it ends.",
    ),
}
ANSWER_TOKENS = len(TOPICS[KILLED].answer.split())
"""How many tokens the answer of KILLED has."""
KILL_AFTER = ANSWER_TOKENS * 3 // 5
"""How many tokens of this answer arrive before its worker is killed."""
TOOL_CALL = f"search#{len(TOPICS[STOPPED].results)}"
"""The step of STOPPED that is in flight when its worker is stopped: the last search."""
