"""Hold what the stand-in for a model knows.

Each topic has questions with search results, and an answer.
"""

from __future__ import annotations

from typing import NamedTuple


class Topic(NamedTuple):
    finds: dict[str, str]
    """Search results by question, in the order in which the model asks."""
    answer: str


STOPPED, CUT, ASKS = "tides", "bees", "glaciers"
"""The runs: one whose worker is stopped, one whose worker is killed, one that asks its editor."""
TOPICS = {
    STOPPED: Topic(
        {
            "what pulls the sea": "The Moon pulls the near side of the Earth harder than the far "
            "side; the Sun does the same, at half the strength.",
            "spring and neap tides": "At new and full Moon both pull along one line: spring tides. "
            "At the quarters they pull across each other: neap tides.",
        },
        "The sea rises and falls because the Moon does not pull everywhere alike. The near side of "
        "the Earth is pulled harder than its middle, and the middle "
        "harder than the far side, so the water bulges on both. The Earth turns under the two "
        "bulges, and most coasts meet each of them once a day: two "
        "high tides, and two low ones. The Sun adds its own, smaller pair. When both stand in line "
        "the tides are high, which sailors call springs; when "
        "they stand at right angles the tides are weak, which they call neaps.",
    ),
    CUT: Topic(
        {
            "the waggle dance": "A forager runs straight while waggling, circles back, and "
            "repeats. The angle to the vertical is the angle to the Sun.",
            "distance in the dance": "The longer the waggle run lasts, the farther away the food: "
            "about a second for each kilometre.",
        },
        "A bee that has found food tells the others where it is by dancing. In the dark of the "
        "hive she runs straight up the comb, shaking her body, turns "
        "back to where she began, and runs again. The angle of her run to the vertical is the "
        "angle of the flight to the Sun, and as the Sun moves on she "
        "turns her dance with it. How long she shakes says how far to fly: a second is about a "
        "kilometre. Her sisters follow her with their feelers, and "
        "then they fly out and mostly arrive. Nobody taught them; a hive learns its country again "
        "every day.",
    ),
    ASKS: Topic(
        {
            "how ice flows": "Under its own weight, from some thirty metres of depth on, ice "
            "deforms like a very stiff honey and slides on melt water."
        },
        "A glacier is a river that takes its time. Snow that outlasts the summer is pressed by "
        "what falls upon it, first to grains and then to ice, and ice that "
        "is thick enough cannot carry its own weight: it flows downhill, a hand's breadth a day or "
        "less. On the way it picks up stones and grinds the valley "
        "wide. Where it melts as fast as it arrives, it ends.",
    ),
}
