"""When alerts fire on given series: the shipped rule files, evaluated by promtool in simulated time.

Input series of a rule test → every alert's label sets, with the times at which each fired: promtool is asked for each
stretch of time, and answers with a number whose bits are the evaluations at which an alert fired.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from realparts.promtool import GPU_RULES, ask

_N_BITS = 50
"""Evaluations in one number: a double holds 53 bits exactly."""

_QUESTION = re.compile(
    r'expr: (?P<expr>"(?:\\.|[^"\\])*"), time: [^,\n]+,\s*\n\s*exp: [^\n]*\n\s*got: (?P<got>[^\n]*)\n?'
)
_SAMPLE = re.compile(r'\{(?P<labels>(?:\w+="(?:\\.|[^"\\])*"(?:, )?)*)\} (?P<value>[0-9.E+]+)')
_LABEL = re.compile(r'(\w+)="((?:\\.|[^"\\])*)"')
_FIRST = re.compile(r"time\(\) - ([0-9]+)")


class RuleError(Exception):
    """promtool could not evaluate the rules; the message is what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """One alert, from when it began to fire until it ended.

    Attributes:
        labels: as Alertmanager would get them.
        begins_s, ends_s: of the story; the end is the first evaluation at which it did not fire.
    """

    labels: Mapping[str, str]
    begins_s: int
    ends_s: int


def firings(
    promtool: Path,
    file: Path,
    series: Sequence[tuple[str, str]],
    *,
    scrape_s: int,
    evaluate_s: int,
    duration_s: int,
    rule_files: Sequence[Path] = GPU_RULES,
) -> list[Firing]:
    """Evaluate the rules over a story.

    Args:
        file: where the test is written.
        series: (series, values), a value each ``scrape_s``.
        evaluate_s: between two evaluations, of all groups.

    Raises:
        RuleError: a rule cannot be evaluated on these series, for two of them match one, or so.
    """
    stretch_s = _N_BITS * evaluate_s
    questions = []
    for first in range(0, duration_s + 1, stretch_s):
        last = min(first + stretch_s - evaluate_s, duration_s - duration_s % evaluate_s)
        # The second more lets the first evaluation in, whether a range is open or closed at its beginning.
        stretch = f"[{last - first + 1}s:{evaluate_s}s]"
        expr = f'sum_over_time((ALERTS{{alertstate="firing"}} * 2 ^ ((time() - {first}) / {evaluate_s})){stretch})'
        questions.append({"expr": expr, "eval_time": f"{last}s"})
    done = ask(
        promtool, file, series, questions, scrape_s=scrape_s, evaluate_s=evaluate_s, rule_files=rule_files
    )  # fmt: skip
    said = done.stdout + done.stderr
    answers = {match["expr"]: match["got"] for match in _QUESTION.finditer(said)}
    rest = _QUESTION.sub("", said)
    if done.returncode not in (0, 1) or "err:" in rest or (done.returncode == 1 and not answers):
        raise RuleError(f"promtool could not evaluate the rules: {rest.strip()[:2000]}")
    fired: dict[tuple[tuple[str, str], ...], set[int]] = {}
    for expr, got in answers.items():
        found = _FIRST.search(expr)
        assert found is not None
        for sample in _SAMPLE.finditer(got):
            bits, labels = int(float(sample["value"])), tuple(_LABEL.findall(sample["labels"]))
            at = fired.setdefault(tuple(pair for pair in labels if pair[0] != "alertstate"), set())
            at.update(int(found[1]) // evaluate_s + n for n in range(_N_BITS) if bits >> n & 1)
    return sorted(
        (
            Firing(labels=dict(labels), begins_s=first * evaluate_s, ends_s=last * evaluate_s)
            for labels, at in fired.items()
            for first, last in _runs(at)
        ),
        key=lambda firing: firing.begins_s,
    )


def _runs(at: set[int]) -> list[tuple[int, int]]:
    """The unbroken runs: (first, the one after the last)."""
    firsts = sorted(one for one in at if one - 1 not in at)
    lasts = sorted(one + 1 for one in at if one + 1 not in at)
    return list(zip(firsts, lasts, strict=True))
