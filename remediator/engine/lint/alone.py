"""Lints that one playbook gives by itself, with what the settings have to ask.

Takes a ``Written`` playbook, gives ``Lint``s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta

from remediator.core.action import UndoWhen
from remediator.core.matcher import Matcher
from remediator.core.playbook import LabelMap
from remediator.core.render import ParamTemplate
from remediator.core.units import print_duration
from remediator.engine.lint.advice import Lint, LintCode, Written
from remediator.engine.lint.matching import by_label, contradiction, taken_before
from remediator.engine.lint.reading import MESSAGE, checks_of, conditions_of, labels_in, reads
from remediator.engine.reconcile import ABSENT_FOR, EVERY, SILENCE

EXPORTER_LABELS = {"pod": "exported_pod", "namespace": "exported_namespace", "container": "exported_container"}
"""Label → what it is called where it is the workload's.

Source: Prometheus ``honor_labels: false`` (the default): a scraped label that the target has too gets ``exported_``
before its name; dcgm-exporter's own pod then stands in ``pod``.
"""


UNIQUE_LABELS = frozenset({"UUID", "uuid", "gpu_uuid"})
"""Whoever filters on one of these has the host too: no two GPUs in the world share a value."""


def lint_matchers(written: Written) -> Iterator[Lint]:
    """Matchers that never hold, and cases that others leave nothing for."""
    shared = by_label(written.playbook.match)
    told = [some for matchers in shared.values() if (some := contradiction(matchers))]
    for some in told:
        yield _never_holds(written, 0, some)
    if told:
        return
    earlier: list[tuple[Matcher, ...]] = []
    for index, case in enumerate(written.playbook.cases):
        given = by_label((*written.playbook.match, *case.match))
        never = [some for matchers in given.values() if (some := contradiction(matchers))]
        for some in never:
            yield _never_holds(written, index, some)
        if not never and earlier and taken_before(given, earlier):
            message = f"the case {case.name} is never reached: the cases before it take whatever it fits; move it up"
            yield written.lint(LintCode.CASE_NEVER_REACHED, message, written.path(index))
        earlier.append(case.match)


def _never_holds(written: Written, index: int, some: tuple[Matcher, ...]) -> Lint:
    """Told at the last of them, which is the case's where one is."""
    shown = [str(matcher) for matcher in some]
    what = f"{shown[0]} never holds" if len(shown) == 1 else f"{' and '.join(shown)} never hold together"
    everything = (*written.playbook.match, *written.playbook.cases[index].match)
    place = max(everything.index(matcher) for matcher in some)
    message = f"{what}, so this fits no alert; matchers in one list must all hold, and fit the whole value"
    return written.lint(LintCode.MATCHER_NEVER_HOLDS, message, written.matchers_path(index, place))


def lint_labels(written: Written) -> Iterator[Lint]:
    """Labels that are the exporter's own. A message may say whatever it likes."""
    for index, case in written.acting:
        for read in reads(written, index, case):
            if read.action == MESSAGE:
                continue
            for label in sorted(read.labels & EXPORTER_LABELS.keys()):
                message = (
                    f"the label {label} is the exporter's own unless Prometheus honours labels;"
                    f" write {EXPORTER_LABELS[label]}"
                )
                yield written.lint(LintCode.POD_IS_EXPORTER, message, read.path)


def lint_people(written: Written) -> Iterator[Lint]:
    """Ends that nobody hears of."""
    for index, case in written.acting:
        if not case.escalate_to:
            path = written.path(index, "escalate")
            message = (
                "nobody is told of an end without a fix; write escalate: {to: [NAME]}, or set escalate_to in the"
                " settings"
            )
            # Written nowhere, it is missed once and not in each case.
            yield written.lint(LintCode.NO_ESCALATION, message, path if path[-1] == "escalate" else ("playbook",))


def lint_asking(written: Written, label_map: LabelMap, *, can_ask: bool) -> Iterator[Lint]:
    """What needs an Alertmanager or a Prometheus to ask, where there is none."""
    for index, case in written.acting:
        if case.hold > timedelta(0) and not can_ask:
            message = (
                "after this hold it acts by what was last delivered, and resolved comes as late as Alertmanager's"
                " group_interval; set alertmanager.urls, so that it asks what fires now"
            )
            yield written.lint(LintCode.HOLD_NEEDS_API, message, written.path(index, "hold"))
    if label_map.prometheus:
        return
    first = next((path for index, case in written.acting for path, _ in conditions_of(written, index, case)), None)
    if first is not None:
        message = (
            "there is no Prometheus to ask its queries: `require` waits, `verify` ends unverified; set"
            " prometheus.servers.NAME.url"
        )
        yield written.lint(LintCode.QUERY_NEEDS_PROMETHEUS, message, first)


def lint_verify(written: Written, label_map: LabelMap) -> Iterator[Lint]:
    """Queries that measure others too."""
    for index, case in written.acting:
        for path, check in checks_of(written, index, case):
            if check.condition is None:
                continue
            open_labels = _not_filtered_on(case.per or (), check.condition.query, label_map)
            if open_labels:
                message = (
                    f"the query {check.condition.name} does not filter on {', '.join(open_labels)}, which the run is"
                    " about: others decide with it whether this one is mended; write"
                    f' {open_labels[0]}="{{{{ subject.{open_labels[0]} }}}}" in it, as the metric calls that label'
                )
                yield written.lint(LintCode.VERIFY_TOO_WIDE, message, (*path, "query"))


def _not_filtered_on(per: Iterable[str], query: ParamTemplate, label_map: LabelMap) -> list[str]:
    """What the subject is told apart by and a query does not look at."""
    read = labels_in(query.names) | {name for name in query.names if "." not in name}
    places = {"host", "node", *label_map.host, *label_map.node}
    if read & (places | UNIQUE_LABELS):
        read |= places
    # Each cluster has its Prometheus.
    read |= {"cluster", *label_map.cluster}
    return [label for label in per if label not in read]


def lint_ladder(written: Written) -> Iterator[Lint]:
    """Rungs after which nothing is looked at, so that none above them is climbed to."""
    for index, case in written.acting:
        top = max((step.rung for step in case.steps), default=0)
        for rung in range(1, top):
            places = [place for place, step in enumerate(case.steps) if step.rung == rung]
            if all(case.steps[place].action == MESSAGE for place in places):
                message = (
                    f"rung {rung} only tells people, which is not verified: the run ends on it, and rung {rung + 1}"
                    " comes only when the alert has ended and fires again; tell people in the last rung, or with"
                    " escalate"
                )
                path = written.path(index, "steps", places[0])
                yield written.lint(LintCode.LADDER_WITHOUT_VERIFY, message, path)


def lint_silences(written: Written, *, can_ask: bool) -> Iterator[Lint]:
    """Silences of an alert whose end is waited for."""
    for index, case in written.acting:
        silences = [place for place, step in enumerate(case.steps) if step.action == SILENCE]
        if not silences:
            continue
        waits = [(path, check.within) for path, check in checks_of(written, index, case) if check.condition is None]
        heard_after = ABSENT_FOR + EVERY
        if can_ask:
            message = (
                f"of a silenced alert the engine hears that it is resolved some {print_duration(heard_after)} later, by"
                " asking: give `alert: resolved` a longer `within`"
            )
            odd = [path for path, within in waits if within <= heard_after]
        else:
            message = "a silenced alert's `resolved` is never delivered: set alertmanager.urls, so that it is asked for"
            odd = [path for path, _ in waits]
            if not odd and (
                case.stop_on_resolve
                or any(step.undo is not None and step.undo.when is UndoWhen.RESOLVED for step in case.steps)
            ):
                odd = [written.path(index, "steps", silences[0])]
        for path in odd:
            yield written.lint(LintCode.SILENCE_HIDES_RESOLVE, message, path)
