"""What `help()` says of ready-made effects."""

from __future__ import annotations

import pytest

from outlast.effects import file_effect, http_call, http_effect, write_file

kept = file_effect("keep_file", undo=None)
charge = http_effect("charge_by_http", timeout=30)


@pytest.mark.parametrize("made", [write_file, kept, http_call, charge], ids=lambda made: made.name)
def test_a_ready_made_effect_says_what_it_is_for_and_what_it_does_not_cover(made):
    assert made.name in made.__doc__
    assert "What it does not cover:\n" in made.__doc__


def test_write_file_says_that_it_keeps_a_folder_beside_the_file():
    assert "`.outlast`" in write_file.__doc__
