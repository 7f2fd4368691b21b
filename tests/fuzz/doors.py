"""The doors that text from outside comes in by, each with what must hold of any bytes.

A door's ``check`` raises for what must not be, and returns for all else, refusals included. Seeds come from the tables
and files that the tests have already; ``tests/data/fuzz/<door>/`` adds what once broke something.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from fuzz.bend import bend_json
from recordings import VERSIONS, recorded
from remediator.actions import REGISTRY
from remediator.cli.sender_config import judge_sender
from remediator.clients.fake import FakeWorld
from remediator.core.action import TargetKind
from remediator.core.alert import AlertGroup, label_key, pack_alert, unpack_alert
from remediator.core.decode import decode
from remediator.core.event import Event, EventType
from remediator.core.match import Match, PlaybookIndex
from remediator.core.matcher import parse_matcher
from remediator.core.message import message
from remediator.core.plan import make_plan, pack_plan, subject_id, unpack_plan
from remediator.core.policy import Fleet
from remediator.core.render import MAX_TEXT, Context, Expression, ParamTemplate, TemplateKind
from remediator.core.run import MessageKind, Question, Run
from remediator.core.units import parse_duration, parse_percent, print_duration, strip_port
from remediator.engine.conditions import Conditions
from remediator.engine.dryrun import Wiring, dry_run
from remediator.engine.fleets import Fleets
from remediator.engine.lint import lint
from remediator.errors import DecodeError, MatcherSyntaxError, MissingValueError, SettingsError, TemplateError
from remediator.loading import LoadContext, effective, load
from remediator.settings import load_settings
from remediator.store.audit import canonical_body, chain_hash, export_line, verify

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MOST_SAID = 1000
"""Characters of one refusal: it goes into logs, answers and the audit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """One door.

    Attributes:
        check: raises for what must never happen, given any bytes.
        seeds: inputs to start from.
        max_len: bytes of one input.
        bend: an input and a random number → the input changed within its format, None where it has none; besides what
            the fuzzer does to its bytes.
    """

    name: str
    check: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    max_len: int = 4096
    bend: Callable[[bytes, int], bytes | None] | None = None

    @property
    def words(self) -> Path:
        """Pieces of the format, for the fuzzer to put together, in libFuzzer's form."""
        return DATA / "fuzz" / f"{self.name}.dict"

    def corpus(self) -> dict[str, bytes]:
        """Name → input: the seeds, and what once broke something."""
        kept = {file.name: file.read_bytes() for file in sorted((DATA / "fuzz" / self.name).glob("*"))}
        return {f"seed-{number}": seed for number, seed in enumerate(self.seeds())} | kept


def _table(name: str) -> Any:
    return YAML(typ="safe", pure=True).load((DATA / name).read_text("utf-8"))


def _leaves(value: Any, *keys: str) -> Iterator[str]:
    """Every text below one of these keys."""
    match value:
        case dict():
            for key, item in value.items():
                if key in keys and isinstance(item, str):
                    yield item
                yield from _leaves(item, *keys)
        case list():
            for item in value:
                yield from _leaves(item, *keys)


def _fit_for_people(text: str) -> None:
    assert text.strip(), "it says nothing"
    assert len(text) <= MOST_SAID, f"it says {len(text)} characters"
    text.encode("utf-8")


# --- playbooks that meet whatever comes in ------------------------------------------------------------------------

_EVERYTHING = r"""
playbook: everything
match: ['__no_such_label = ""']
steps:
  - name: tell
    action: notify.send
    if: labels.severity != "info" or annotations.summary in ["a", "b"]
    params:
      to: [oncall]
      title: "{{ labels.alertname | default('?') }} {{ labels['odd.label'] | default('') | upper }} {{ alert.status }}"
      body: "{{ annotations.summary | default(labels.alertname | default('x')) | replace('a', 'b') | trim }}
        {{ group.receiver }} {{ group.external_url }} {{ alert.generator_url }} {{ host | default('nowhere') }}"
  - name: number
    action: noop
    if: labels.code | default("0") | int > 3
---
playbook: restart
match: [container_name != ""]
per: [host, container_name]
steps:
  - {name: restart, action: docker.restart, params: {container: "{{ labels.container_name }}"}}
  - name: signal
    action: docker.signal
    params: {container: "{{ labels.container_name }}", signal: "{{ labels.signal }}"}
guard: {require: [{query: 'min(up{h="{{ host }}"})', equals: 1}]}
verify:
  - {alert: resolved, within: 5m}
  - {query: 'max(x{c="{{ labels.container_name }}",s=~"{{ labels.signal | default(".*") }}"})', below: 0.8}
escalate: {to: [oncall]}
---
playbook: by-regex
match: ['alertname =~ "(GPU|Xid).*"', 'err_code !~ "13|31"', 'host.name != x']
per: [alertname]
cases:
  - {name: ignored, match: [severity = info], ignore: only for information}
  - {name: told}
steps:
  - {action: noop}
"""

CONTEXT = LoadContext(
    actions=REGISTRY,
    notify_targets=frozenset({"oncall", "ml-platform"}),
    vars={"site": "fra1"},
    public_url="http://r",
    fleets={
        name: Fleet(name=name, kind=TargetKind.CONTAINER, size=10) for name in ("gpu_containers", "gpus", "kube_nodes")
    },
)
NOBODY = Conditions({})


@contextmanager
def _file(name: str, data: bytes) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_bytes(data)
        yield file


def _wiring(text: bytes) -> Wiring:
    with _file("in-force.yaml", text) as file:
        loaded = load([file, ROOT / "playbooks"], context=CONTEXT)
    assert loaded.problems == (), [str(problem) for problem in loaded.problems]
    world = FakeWorld(lambda: NOW)
    world.add_host("gpu-07")
    for name in ("trainer-0", "trainer-1"):
        world.add_container("gpu-07", name)
    return Wiring(
        playbooks=loaded.playbook_set,
        actions=REGISTRY,
        clients=world.read_only(),
        conditions=NOBODY,
        fleets=Fleets(NOBODY, ""),
        now=NOW,
        read=None,
        pause=lambda _conn: None,
    )


# --- deliveries ---------------------------------------------------------------------------------------------------

WIRING = _wiring(_EVERYTHING.encode())
INDEX = PlaybookIndex(WIRING.playbooks)


def check_decode(data: bytes) -> None:
    """A group of which every alert can be stored, matched, planned, told and audited; or a refusal in words."""
    try:
        group = decode(data, NOW)
    except DecodeError as error:
        _fit_for_people(str(error))
        return
    for bad in group.bad_alerts:
        _fit_for_people(bad.problem)
        _canonical(EventType.ALERT_REJECTED, {"detail": bad.problem, "index": bad.index})
    for alert in group.alerts:
        packed = json.loads(json.dumps(pack_alert(alert), ensure_ascii=False).encode("utf-8"))
        assert unpack_alert(packed) == alert
        assert label_key(alert.labels) == alert.label_key
        _canonical(EventType.EPISODE_OPENED, {"alert": packed})
        for match in INDEX.match(alert.labels):
            if isinstance(match, Match):
                _plan(match, group, alert)
    json.dumps(dry_run(data, WIRING), ensure_ascii=False).encode("utf-8")


def _plan(match: Match, group: AlertGroup, alert: Any) -> None:
    plan, _refusal = make_plan(
        match,
        alert,
        {"labels": dict(group.group_labels), "receiver": group.receiver, "external_url": group.external_url},
        subject=subject_id(match.playbook.name, match.case.name, match.per_key, "fuzz"),
        rules=WIRING.playbooks,
        actions=REGISTRY,
    )
    packed = pack_plan(plan)
    _canonical(EventType.PLAN_MADE, {"plan": packed})
    assert unpack_plan(json.loads(json.dumps(packed))) == plan
    asked = {"rung.0": Question(asked_at=NOW, ask=("oncall",), expires=timedelta(minutes=30))}
    run = Run(plan=plan, n_events=0, created_at=NOW, questions=asked)
    for kind in MessageKind:
        title, body = message(kind, run, "rung.0" if kind is MessageKind.APPROVAL else "")
        assert title.isprintable()
        f"{title}{body}".encode()


def _canonical(kind: EventType, data: Any) -> None:
    canonical_body(1, "0" * 64, Event(type=kind, at=NOW, data=data))


def decode_seeds() -> Iterator[bytes]:
    """Bodies from real Alertmanagers, the odd ones of the tables, and each odd member in an envelope."""
    yield from {golden.name: golden.body for golden in recorded(VERSIONS[-1])}.values()
    table = _table("decode.yaml")
    yield from (
        row["body"].encode() if "body" in row else bytes.fromhex(row.get("hex", "")) for row in table["refuses"]
    )
    for section in ("alerts", "bad_alerts"):
        for row in table[section]:
            yield json.dumps({"version": "4", "receiver": "r", "alerts": [row["member"]]}).encode()
    yield json.dumps(
        {
            "version": "4",
            "groupLabels": {"alertname": "GPUHot"},
            "alerts": [
                {
                    "status": "firing",
                    "labels": {
                        "alertname": "GPUMemoryLeakSlope",
                        "hostname": "gpu-07",
                        "container_name": "trainer-0",
                        "severity": "critical",
                        "code": "7",
                        "signal": "SIGUSR1",
                    },
                    "annotations": {"summary": "a", "checkpoint_signal": "SIGUSR1"},
                    "startsAt": "2026-01-01T00:00:00.123456789Z",
                }
            ],
        }
    ).encode()


# --- playbooks ----------------------------------------------------------------------------------------------------

SAMPLES = json.dumps(
    {
        "version": "4",
        "alerts": [
            {"status": "firing", "labels": labels, "annotations": {"summary": "s"}}
            for labels in (
                {},
                {"alertname": "X", "hostname": "gpu-07", "container_name": "trainer-0", "pod": "p", "err_code": "79"},
                {"alertname": "GPUMemoryLeakSlope", "hostname": "gpu-07", "container_name": '"}{{ x }}\n'},
            )
        ],
    }
).encode()


def check_playbook(data: bytes) -> None:
    """Playbooks that can be shown, loaded again as shown, and tried; or problems, each with its place."""
    with _file("playbook.yaml", data) as file:
        loaded = load([file], context=CONTEXT)
    n_lines = len(re.split(rb"\r\n|[\r\n]|\xc2\x85|\xe2\x80[\xa8\xa9]", data))
    for problem in loaded.problems:
        assert problem.file == str(file)
        assert 1 <= problem.line <= n_lines + 1, f"line {problem.line} of {n_lines}: {problem}"
        assert problem.column >= 1
        _fit_for_people(str(problem))
        assert "Input should" not in str(problem), f"pydantic's own words: {problem}"
    if loaded.problems:
        return
    for playbook in loaded.playbook_set.playbooks:
        shown = effective(playbook)
        with _file("shown.yaml", shown.encode("utf-8")) as shown_file:
            again = load([shown_file], context=CONTEXT)
        assert again.problems == (), [str(problem) for problem in again.problems]
    lint(loaded, actions=REGISTRY, can_ask=False)
    wiring = Wiring(
        playbooks=loaded.playbook_set,
        actions=REGISTRY,
        clients=WIRING.clients,
        conditions=WIRING.conditions,
        fleets=WIRING.fleets,
        now=NOW,
        read=None,
        pause=WIRING.pause,
    )
    json.dumps(dry_run(SAMPLES, wiring), ensure_ascii=False).encode("utf-8")


def playbook_seeds() -> Iterator[bytes]:
    """What is shipped, and what people get wrong."""
    yield from (file.read_bytes() for file in sorted((ROOT / "playbooks").glob("*.yaml")))
    yield _EVERYTHING.encode()
    yield (DATA / "whole_format.yaml").read_bytes()
    yield from (text.encode() for text in _leaves(_table("playbook_errors.yaml"), "text"))


# --- matchers -----------------------------------------------------------------------------------------------------


def check_matcher(data: bytes) -> None:
    """A matcher that is read back from its own print; or a refusal in words."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        matcher = parse_matcher(text)
    except MatcherSyntaxError as error:
        _fit_for_people(str(error).encode("utf-8", "replace").decode())
        return
    assert matcher == parse_matcher(text)
    printed = str(matcher)
    again = parse_matcher(printed)
    assert (again, str(again)) == (matcher, printed)
    for value in ("", matcher.value, "x", "a\nb", "\0"):
        labels = {matcher.label: value}
        assert matcher.matches(labels) == again.matches(labels)
    assert matcher.matches({}) == matcher.matches({matcher.label: ""})
    opposite = parse_matcher(printed.replace(matcher.op, {"=": "!=", "!=": "=", "=~": "!~", "!~": "=~"}[matcher.op], 1))
    if opposite.label == matcher.label:
        assert opposite.matches({matcher.label: "x"}) != matcher.matches({matcher.label: "x"})


def matcher_seeds() -> Iterator[bytes]:
    yield from (text.encode("utf-8", "surrogatepass") for text in _leaves(_table("matchers.yaml"), "text"))


# --- durations, shares and the like -------------------------------------------------------------------------------


def check_units(data: bytes) -> None:
    """A value that is read back from its own print; or a refusal in words."""
    text = data.decode("utf-8", "surrogateescape")
    assert len(strip_port(text)) <= len(text)
    try:
        duration = parse_duration(text)
    except ValueError as error:
        _fit_for_people(str(error).encode("utf-8", "replace").decode())
    else:
        assert parse_duration(print_duration(duration)) == duration
        assert NOW + duration > NOW or not duration
    try:
        share = parse_percent(text)
    except ValueError as error:
        _fit_for_people(str(error).encode("utf-8", "replace").decode())
    else:
        assert 0 <= share <= 100


def units_seeds() -> Iterator[bytes]:
    yield from (text.encode() for text in _leaves(_table("durations.yaml"), "text"))


# --- settings -----------------------------------------------------------------------------------------------------


def check_settings(data: bytes) -> None:
    """Settings; or one line for each problem, with the file's name."""
    with _file("remediator.toml", data) as file:
        try:
            load_settings(file, environ={})
        except SettingsError as error:
            for line in str(error).split("\n"):
                _fit_for_people(line)
                assert line.startswith(str(file)), line


def settings_seeds() -> Iterator[bytes]:
    yield from (text.encode() for text in _leaves(_table("settings_errors.yaml"), "toml"))
    yield from (file.read_bytes() for file in sorted((ROOT / "deploy").rglob("remediator.toml")))


# --- templates ----------------------------------------------------------------------------------------------------

_HOSTILE = (
    '"', "'", "`", "\\", "\n", "\\\n#", '"} or vector(1) #', "{{ labels.a }}", "{% x %}", "\0", "\x1b[2J",
    "-1", "9" * 400, "x" * MAX_TEXT, "é" * 5000,
)  # fmt: skip


def _context(value: str) -> Context:
    # One stays a number, or nothing would come after it.
    values = {**dict.fromkeys(("a", "b", "pod", "host.name", "__class__", "items"), value), "n": "7"}
    return {
        "labels": values,
        "annotations": values,
        "subject": values,
        "alert": {"status": value, "fingerprint": value, "starts_at": value, "generator_url": value},
        "group": {"labels": values, "receiver": value, "external_url": value},
        "run": {"id": value, "url": value, "outcome": value, "reason": value, "summary": value},
        "playbook": value,
        "owner": value,
        "host": value,
        "cluster": value,
        "node": value,
        "vars": {"site": value, "racks": [value, value, 7], "is_lab": True, "n": 5, "map": {"k": value}},
        "steps": {"restart": {"outcome": value, "before": {"pid": 7, "x": value}, "after": {}}},
        "alerts": 3,
    }


HOSTILE = tuple(_context(value) for value in _HOSTILE)
TAME = _context("7")
# Closed or not: a string that is not makes no query.
_QUERY_STRING = re.compile(
    r""""(?:[^"\\\n]|\\.)*(?:"|(?=\n)|\\?\Z)|'(?:[^'\\\n]|\\.)*(?:'|(?=\n)|\\?\Z)|`[^`]*(?:`|\Z)|#[^\n]*""", re.DOTALL
)


def check_template(data: bytes) -> None:
    """A template whose cost and output are bounded, and in whose queries a label is never more than text."""
    text = data[1:].decode("utf-8", "surrogateescape")
    try:
        match (data[:1] or b"t")[0] % 3:
            case 0:
                expression = Expression.parse(text)
                for context in HOSTILE:
                    _tried(lambda context=context: expression.holds(context))
            case 1:
                template = ParamTemplate.parse({"x": [text]})
                for context in HOSTILE:
                    _rendered(template, context)
            case _:
                template = ParamTemplate.parse(text, kind=TemplateKind.QUERY)
                tame = _rendered(template, TAME)
                for context in HOSTILE:
                    _check_query(tame, _rendered(template, context))
    except TemplateError as error:
        _fit_for_people(str(error).encode("utf-8", "replace").decode())


def _tried(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except MissingValueError as error:
        _fit_for_people(str(error).encode("utf-8", "replace").decode())
    except TemplateError as error:
        _fit_for_people(str(error).encode("utf-8", "replace").decode())
    return None


def _rendered(template: ParamTemplate, context: Context) -> Any:
    output = _tried(lambda: template.render(context))
    if isinstance(output, dict):
        (output,) = output["x"]
    assert output is None or len(output) <= max(MAX_TEXT, len(str(template.source)))
    return output


def _check_query(tame: str | None, hostile: str | None) -> None:
    """Outside its quotes a query is the same whatever the labels say, but for numbers."""
    if tame is None or hostile is None:
        return
    assert _code(tame) == _code(hostile), f"{tame!r} became {hostile!r}"


def _code(query: str) -> str:
    # Of a number only its digits and its sign are a label's; where its author put it between others is the author's.
    return re.sub(r"[0-9+-]+", "0", _QUERY_STRING.sub("", query))


def template_seeds() -> Iterator[bytes]:
    yield from (b"1" + text.encode("utf-8", "surrogatepass") for text in _leaves(_table("templates.yaml"), "template"))
    yield from (
        b"0" + text.encode("utf-8", "surrogatepass") for text in _leaves(_table("expressions.yaml"), "expression")
    )
    yield from (
        b"2" + query.encode()
        for query in (
            'up{pod="{{ labels.pod }}"} > {{ vars.n | int }}',
            "x{a='{{ labels.a }}', b=~\"{{ labels.b | replace('a', 'b') }}.*\"} # {{ vars.n | int }}",
            "`a` or vector({{ labels.n | int }})",
        )
    )


# --- exports of the audit log -------------------------------------------------------------------------------------


def _export() -> list[bytes]:
    """A whole export of three events."""
    lines, previous = [], "0" * 64
    for seq, kind in enumerate((EventType.ENGINE_STARTED, EventType.PAUSED, EventType.RESUMED), start=1):
        body = canonical_body(seq, previous, Event(type=kind, at=NOW, actor="mia", data={"reason": "é\u2028"}))
        previous = chain_hash(previous, body)
        lines.append(export_line({"body": body.decode(), "hash": previous}))
    return lines


EXPORT = _export()


def check_export(data: bytes) -> None:
    """Only what was exported, or the beginning of it, is intact; of all else the first bad event is named."""
    lines = data.splitlines(keepends=True)
    found = verify(lines)
    if found.ok:
        told = [json.loads(line) for line in lines]
        assert told == [json.loads(line) for line in EXPORT[: len(lines)]], "something else is intact"
        return
    assert found.first_bad_seq is not None
    assert found.first_bad_seq <= found.n_events + 1
    _fit_for_people(found.problem)


# --- configurations of Alertmanagers ------------------------------------------------------------------------------


def check_sender(data: bytes) -> None:
    """What doctor says of any configuration, in words."""
    text = data.decode("utf-8", "replace")
    for finding in judge_sender("alertmanager", text, ("http://127.0.0.1:9095",), parse_duration("1h")):
        _fit_for_people(finding.text)


def sender_seeds() -> Iterator[bytes]:
    yield from (text.encode() for text in _leaves(_table("sender_config.yaml"), "config"))


DOORS = {
    door.name: door
    for door in (
        Door(name="decode", check=check_decode, seeds=decode_seeds, max_len=8192, bend=bend_json),
        Door(name="playbook", check=check_playbook, seeds=playbook_seeds, max_len=2048),
        Door(name="matcher", check=check_matcher, seeds=matcher_seeds, max_len=512),
        Door(name="units", check=check_units, seeds=units_seeds, max_len=256),
        Door(name="settings", check=check_settings, seeds=settings_seeds),
        Door(name="template", check=check_template, seeds=template_seeds, max_len=1024),
        Door(name="export", check=check_export, seeds=lambda: [b"".join(EXPORT), *EXPORT]),
        Door(name="sender", check=check_sender, seeds=sender_seeds, max_len=2048),
    )
}
"""By name."""
