"""A line returns exactly what was put into it, and is plain JSON."""

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outlast.store.file.line_format import Damaged, Scanner, check_crc, encode_row, with_crc

JSON = frozenset({"value", "args"})
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
).map(json.dumps)
IN_TEXT = TEXTS | st.none() | st.binary() | ANY_JSON
"""What a column of type TEXT can hold."""
VALUES = IN_TEXT | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
ROWS = st.fixed_dictionaries(
    {},
    optional={
        name: IN_TEXT if name in JSON else VALUES
        for name in ("id", "args", "reason", "value", "waits", "due")
    },
)


def read_back(row):
    body = f'{{"row": {encode_row(row, JSON)}'
    line = with_crc(body)
    assert b"\n" not in line
    json.loads(line)
    scan = Scanner(check_crc(line))
    scan.expect('{"row": ')
    found = scan.row(JSON)
    scan.end()
    return found


@given(ROWS)
@example({"value": "null", "args": None})
@example({"value": '{"$text": "x"}', "args": '{"$hex": "00"}'})
@example(
    {
        "id": '", "value": 1, "',
        "value": '"\\", \\"args\\": "',
        "args": '{"value": {"args": "value"}}',
    }
)
@example({"value": " 1", "args": "1 ", "id": "1"})
@example({"value": "[1,\n2]", "args": "[1,\r2]"})
@example({"value": "NaN", "args": "[Infinity]", "due": math.inf})
@example({"value": "1" * 5000, "args": "[" * 5000})
@example({"value": "\x00\u2028\x85\x1b[31m", "id": "\x00\u2028\x85\x1b[31m"})
@example({"id": b'{"$hex": "', "value": b""})
@example({"value": '{"a": 1, "a": 2}', "args": "1.0"})
def test_row_is_read_as_it_was_written(row):
    found = read_back(row)
    assert list(found.items()) == list(row.items())
    assert [type(value) for value in found.values()] == [type(value) for value in row.values()]


def test_json_values_are_written_as_json():
    line = with_crc(
        f'{{"row": {encode_row({"value": chr(34) + "Grüße" + chr(34), "args": "[1, {}]", "id": "7"}, JSON)}'
    )
    assert json.loads(line)["row"] == {"value": "Grüße", "args": [1, {}], "id": "7"}
    assert '"Grüße"' in line.decode()


def test_deep_value_is_written_as_text_and_a_wide_one_as_json():
    deep = {"value": "[" * 101 + "]" * 101, "args": '{"a":' * 101 + "1" + "}" * 101}
    wide = {"value": "[" * 100 + "]" * 100, "args": json.dumps([["]", {"[": '{\\"['}]] * 500)}
    for row, is_text in ((deep, True), (wide, False)):
        encoded = json.loads(encode_row(row, JSON))
        assert [
            isinstance(value, dict) and list(value) == ["$text"] for value in encoded.values()
        ] == [is_text] * 2
        assert read_back(row) == row


def test_deeply_nested_values_are_read_at_any_stack_depth():
    for depth in (50, 100, 101, 200, 500, 800, 900, 990, 2000, 100_000):
        text = "[" * depth + "]" * depth
        line = with_crc(f'{{"row": {encode_row({"value": text}, JSON)}')

        def read(more, line=line):
            if more:
                return read(more - 1)
            scan = Scanner(check_crc(line))
            scan.expect('{"row": ')
            return scan.row(JSON)

        assert read(40) == {"value": text}


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_any_changed_byte_is_detected(position, other):
    line = bytearray(
        with_crc(
            '{"line": 3, "commit": 4, "insert": "runs", "row": {"pk": 1, "id": "the id of a run"}'
        )
    )
    line[position % len(line)] ^= other
    with pytest.raises((Damaged, UnicodeDecodeError)):
        check_crc(bytes(line))
