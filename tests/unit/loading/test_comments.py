"""Comments are what YAML takes for comments."""

from __future__ import annotations

import pytest

from remediator.loading.comments import read_comments


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("a: b  # c\n", [("c", 1, 7, False)], id="behind a value"),
        pytest.param("# c\na: b\n", [("c", 1, 1, True)], id="alone"),
        pytest.param("a:\n    # c\n  - b\n", [("c", 2, 5, True)], id="alone and indented"),
        pytest.param("a: b#c\n", [], id="no space before it"),
        pytest.param("a: 'b # c'\n", [], id="in single quotes"),
        pytest.param('a: "b # c" # d\n', [("d", 1, 12, False)], id="in and behind double quotes"),
        pytest.param('"# a": b\n', [], id="in a key"),
        pytest.param("a: |\n  # b\n  c # d\n", [], id="in a block of text"),
        pytest.param("a: >-\n  b\n# c\n", [("c", 3, 1, True)], id="below a block of text"),
        pytest.param("a: |  # c\n  b\n", [("c", 1, 7, False)], id="behind the sign of a block"),
        pytest.param("a: [b, # c\n 'd # e']\n", [("c", 1, 8, False)], id="inside a list"),
        pytest.param("a: b\n  c # d\n", [("d", 2, 5, False)], id="behind a text of several lines"),
        pytest.param("a: b\n---\n# c\nd: e # f\n", [("c", 3, 1, True), ("f", 4, 6, False)], id="two documents"),
        pytest.param("a: b\r\n# c\r\nd: e\r\n", [("c", 2, 1, True)], id="line breaks of Windows"),
        pytest.param("a: 'b\n\n  # c'\n# d\n", [("d", 4, 1, True)], id="quotes over several lines"),
        pytest.param("#\n## b\n", [("", 1, 1, True), ("b", 2, 1, True)], id="empty, and with several signs"),
        pytest.param("a: b # c\nd: 'e\n", [], id="no YAML"),
        pytest.param("", [], id="nothing"),
    ],
)
def test_read_comments_when_a_file_is_so_then_gives_these(
    source: str, expected: list[tuple[str, int, int, bool]]
) -> None:
    assert [(one.text, one.line, one.column, one.is_alone) for one in read_comments(source)] == expected
