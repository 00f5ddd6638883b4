"""Define the colours of the plots, for a light and for a dark page."""

from __future__ import annotations

PAPER, INK, SOFT, GRID = "#ffffff", "#1f2430", "#5b6474", "#e4e7ec"
BLUE, GREEN, GREY, ORANGE, RED = "#2f6db5", "#2b8a57", "#9aa3b2", "#e08a1e", "#c8372d"
ON_DARK = {
    PAPER: "#1e2129",
    INK: "#e6e8ee",
    SOFT: "#a3abb9",
    GRID: "#363b47",
    BLUE: "#5a94d8",
    GREEN: "#43b07a",
    GREY: "#747c8b",
    RED: "#ec6a5f",
}


def theme() -> str:
    """Return the style element that changes the colours for readers who prefer a dark page."""
    rules = [
        f'[{what}="{light}"] {{ {what}: {dark} }}'
        for light, dark in ON_DARK.items()
        for what in ("fill", "stroke")
    ]
    lines = ["<style>", "@media (prefers-color-scheme: dark) {", *rules, "}", "</style>"]
    return "\n".join(lines)
