"""docs/settings.md names every setting, with its default."""

import re
from dataclasses import fields
from pathlib import Path

from outlast.settings import Settings
from outlast.settings.checks import EXIT_SECONDS, GRACE_MIN, INTERVAL_SECONDS_MIN, STALL_MIN
from outlast.settings.third_party_env import GRACE, STORES

PAGE = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \| ([^|]*) \|", re.MULTILINE)


def test_every_setting_is_on_the_page_with_its_default() -> None:
    table = dict(ROW.findall(PAGE.partition("## All settings")[2]))
    defaults = {field.name: field.default for field in fields(Settings)}
    assert list(table) == list(defaults)
    for name, said in table.items():
        default = defaults[name]
        expected = f"`{default}`" if default else "none"
        assert said == (
            expected
            if isinstance(default, str)
            else f"{default:,g}"
            if isinstance(default, float)
            else f"{default:,}"
        )


def test_the_bounds_on_the_page_are_those_of_the_code() -> None:
    refused = PAGE.partition("## Validation")[2].partition("\n## ")[0]
    assert f"| `grace` | below {GRACE_MIN:g} s" in refused
    assert f"{EXIT_SECONDS} s together" in refused
    assert f"| `heartbeat`, `poll` | below {INTERVAL_SECONDS_MIN} s |" in refused
    assert f"| `stall_max`, `stall_warn` | below {STALL_MIN} s; " in refused


def test_every_variable_of_other_tools_is_on_the_page() -> None:
    for name in (GRACE, *STORES):
        assert f"`{name}`" in PAGE
