"""``--junit FILE``: what became of scenarios, as CI systems read it.

Takes → gives: ``Result``s → JUnit XML, a suite for each file and a case for each scenario.

Must never: give text that no XML parser takes, whatever a label holds.

Source: the format that Jenkins, GitLab and GitHub read: https://github.com/testmoapp/junitxml.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from remediator.cli.scenario_text import failure_text, summary
from remediator.cli.terminal import printable

if TYPE_CHECKING:
    from remediator.engine.playtest import Result

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, not even escaped (https://www.w3.org/TR/xml/#charsets)."""

_WIDTH = 100
"""Columns of what stands in it: pages of CI systems are about that wide."""


def junit_xml(results: Sequence[Result]) -> bytes:
    """All results, those of one file together and in their order.

    What could not be played is an ``error``, what went otherwise a ``failure`` whose text is what a terminal shows.
    """
    root = ElementTree.Element("testsuites", name="remediator test", attrib=_counts(results))
    for file, of_file in groupby(results, key=lambda result: result.file.file):
        group = list(of_file)
        suite = ElementTree.SubElement(root, "testsuite", name=_text(file), attrib=_counts(group))
        for result in group:
            _add_case(suite, result)
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _counts(results: Sequence[Result]) -> dict[str, str]:
    n_errors = sum(bool(result.problem) for result in results)
    return {
        "tests": str(len(results)),
        "failures": str(sum(not result.is_ok for result in results) - n_errors),
        "errors": str(n_errors),
        "time": f"{sum(result.duration_s for result in results):.3f}",
    }


def _add_case(suite: ElementTree.Element, result: Result) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=_text(result.file.file),
        name=_text(result.scenario.name),
        file=_text(result.file.file),
        line=str(result.scenario.line),
        time=f"{result.duration_s:.3f}",
    )
    if result.is_ok:
        return
    found = ElementTree.SubElement(case, "error" if result.problem else "failure", message=_text(summary(result)))
    found.text = "\n".join(_text(line.plain) for line in failure_text(result, _WIDTH))


def _text(text: str) -> str:
    """On one line, what is not printable written out, and what then is still no XML as well."""
    return _NO_XML.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), printable(text))
