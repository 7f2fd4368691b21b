"""The JSON Schemas: complete, true in what they show, and never stricter than the loader."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar

import pytest
import regress
from check_jsonschema import main as check_jsonschema
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from remediator.actions import REGISTRY
from remediator.actions.noop import Noop
from remediator.core.action import TargetKind, UndoWhen
from remediator.core.policy import Fleet, Policy
from remediator.loading import LoadContext, effective, load
from remediator.loading.scenarios import load_tests
from remediator.loading.schema import SchemaKind, json_schema
from remediator.loading.thresholds import load_thresholds
from remediator.settings import load_settings, table_problems

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"


class Limited(Noop):
    """Can be undone, and is by default."""

    name: ClassVar[str] = "test.limit"
    default_undo: ClassVar[UndoWhen | None] = UndoWhen.RESOLVED


class Cordon(Noop):
    """Can be undone, and stays by default."""

    name: ClassVar[str] = "test.cordon"
    default_undo: ClassVar[UndoWhen | None] = UndoWhen.NEVER


ACTIONS = {**REGISTRY, "test.limit": Limited(), "test.cordon": Cordon()}
SCHEMAS = {kind: json_schema(kind, ACTIONS) for kind in SchemaKind}
VALIDATORS = {kind: Draft202012Validator(schema) for kind, schema in SCHEMAS.items()}
CONTEXT = LoadContext(
    actions=ACTIONS,
    notify_targets=frozenset({"oncall", "ml-platform"}),
    fleets={name: Fleet(name=name, kind=TargetKind.GPU, size=64) for name in ("gpus", "kube_nodes")},
)


def read(text: str) -> list[Any]:
    """The documents of a YAML text."""
    return list(YAML(typ="safe", pure=True).load_all(text))


def kind_of(document: Any) -> SchemaKind:
    """Of a document in a folder of playbooks."""
    return SchemaKind.POLICY if isinstance(document, dict) and "policy" in document else SchemaKind.PLAYBOOK


def walk(node: object, at: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema in a schema, with the way to it."""
    if isinstance(node, dict):
        yield at, node
    for key, child in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from walk(child, f"{at}/{key}")


def keys_of(kind: SchemaKind) -> list[tuple[str, dict[str, Any]]]:
    """Every key that a file of this kind can have, with what the schema says of it."""
    schema = SCHEMAS[kind]
    tables = [(at, table) for at, table in walk(schema) if table.get("additionalProperties") is False]
    keys = [(f"{at}/{name}", key) for at, table in tables for name, key in table.get("properties", {}).items()]
    refs = {f"#/$defs/{name}": table for name, table in schema["$defs"].items()}
    return [(at, {**refs[key["$ref"]], **key} if "$ref" in key else key) for at, key in keys]


# -- complete ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SchemaKind)
def test_schema_when_checked_against_its_dialect_then_is_one_that_refuses_unknown_keys(kind: SchemaKind) -> None:
    Draft202012Validator.check_schema(SCHEMAS[kind])
    assert list(VALIDATORS[kind].iter_errors({"no_such_key": 1}))
    assert SCHEMAS[kind]["$id"] == f"urn:remediator:schema:{kind}"


@pytest.mark.parametrize("kind", SchemaKind)
def test_schema_when_read_then_every_table_refuses_what_it_does_not_know(kind: SchemaKind) -> None:
    named = [
        (at, table) for at, table in walk(SCHEMAS[kind]) if table.get("type") == "object" and "properties" in table
    ]
    assert [at for at, table in named if table["additionalProperties"] is not False] == []


@pytest.mark.parametrize(
    ("kind", "n_keys"), [("playbook", 100), ("policy", 13), ("test", 120), ("thresholds", 20), ("settings", 60)]
)
def test_schema_when_read_then_every_key_is_described(kind: str, n_keys: int) -> None:
    keys = keys_of(SchemaKind(kind))
    assert len(keys) >= n_keys
    assert [at for at, key in keys if not key.get("description", "").endswith((".", "?", "…", "}"))] == []


SHOWN = {"enum", "const", "pattern", "examples", "default"}


@pytest.mark.parametrize("kind", SchemaKind)
def test_schema_when_a_key_takes_text_then_shows_what_it_looks_like(kind: SchemaKind) -> None:
    takes_text = [
        (at, key)
        for at, key in keys_of(kind)
        if any("string" in each.get("type", ()) for each in (key, *key.get("anyOf", ()), key.get("items", {})))
    ]
    assert len(takes_text) >= 3
    assert [at for at, key in takes_text if not any(SHOWN & {*each} for _, each in walk(key))] == []


def test_schema_when_a_step_has_an_action_then_knows_its_params() -> None:
    defs = SCHEMAS[SchemaKind.PLAYBOOK]["$defs"]
    assert {name: {*defs[name]["properties"]} for name in ACTIONS} == {
        name: {*action.params_model.model_fields} for name, action in ACTIONS.items()
    }


# -- true --------------------------------------------------------------------------------------------------------------

LEAST = """
playbook: x
match: [alertname = X]
steps:
  - {action: test.limit, retry: {budget: 5m}, undo: {}, verify: [{query: x, below: 1}], approval: {ask: [oncall]}}
verify: [{query: x, below: 1}]
"""
EFFECTIVE = {
    "": (),
    "GuardKeys": ("guard",),
    "VerifyKeys": ("verify", 0),
    "RetryKeys": ("steps", 0, "retry"),
    "ApprovalKeys": ("steps", 0, "approval"),
    "UndoKeys": ("steps", 0, "undo"),
}
"""Where the keys of a table stand in a playbook that is printed with all defaults."""


def test_schema_when_it_shows_a_default_then_that_is_what_an_absent_key_means(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(LEAST)
    (playbook,) = load([file], context=CONTEXT).playbook_set.playbooks
    (printed,) = read(effective(playbook))
    schema = SCHEMAS[SchemaKind.PLAYBOOK]
    shown, meant = {}, {}
    for name, path in EFFECTIVE.items():
        at: Any = printed
        for part in path:
            at = at[part]
        for key, field in (schema["$defs"][name] if name else schema)["properties"].items():
            if "default" in field:
                shown[name, key], meant[name, key] = field["default"], at[key]
    assert len(shown) >= 12
    assert shown == meant


def test_schema_when_a_key_has_a_default_then_its_table_is_one_of_those_compared() -> None:
    tables = {at for at, key in keys_of(SchemaKind.PLAYBOOK) if "default" in key and "." not in at}
    assert {at.split("/")[2] if at.startswith("/$defs") else "" for at in tables} == {*EFFECTIVE}


def test_policy_schema_when_it_shows_a_default_then_that_is_what_an_absent_key_means() -> None:
    shown = {at: key["default"] for at, key in keys_of(SchemaKind.POLICY) if "default" in key}
    assert shown == {
        "/max_concurrent_runs": Policy().max_concurrent_runs,
        "/mode": Policy().mode.value,
    }


@pytest.mark.parametrize("kind", SchemaKind)
def test_schema_when_it_shows_defaults_and_examples_then_they_are_allowed(kind: SchemaKind) -> None:
    shown = [
        (at, value)
        for at, key in keys_of(kind)
        for value in (*key.get("examples", ()), *([key["default"]] if "default" in key else []))
        if list(VALIDATORS[kind].evolve(schema={**key, "$defs": SCHEMAS[kind]["$defs"]}).iter_errors(value))
    ]
    assert shown == []


# -- what it catches ---------------------------------------------------------------------------------------------------


def rows(name: str) -> list[dict[str, Any]]:
    """A table of errors: those rows that are files."""
    return [row for row in read((DATA / name).read_text("utf-8"))[0] if "text" in row or "toml" in row]


def documents_of(table: str, row: Mapping[str, Any]) -> Iterator[tuple[SchemaKind, str, str]]:
    """Each document of a row: its kind, its ending, its text."""
    if table.startswith("test_file"):
        yield SchemaKind.TEST, "yaml", row["text"]
        return
    if table.startswith("threshold"):
        for text in row["text"].split("\n---\n"):
            yield SchemaKind.THRESHOLDS, "yaml", text
        return
    if "toml" in row:
        yield SchemaKind.SETTINGS, "toml", row["toml"]
        return
    for text in row["text"].split("\n---\n"):
        kind = SchemaKind.POLICY if text.startswith("policy") and "\nplaybook" not in text else SchemaKind.PLAYBOOK
        yield kind, "yaml", text


TABLES = ["playbook_errors.yaml", "settings_errors.yaml", "test_file_errors.yaml", "threshold_errors.yaml"]
ROWS = {(table, row["id"]): row for table in TABLES for row in rows(table)}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, str], str]:
    """What check-jsonschema makes of every row: refuses, takes or unreadable; the worst of its documents."""
    folder = tmp_path_factory.mktemp("rows")
    row_of: dict[str, tuple[str, str]] = {}
    files: dict[SchemaKind, list[str]] = {kind: [] for kind in SchemaKind}
    for key, row in ROWS.items():
        for kind, ending, text in documents_of(key[0], row):
            file = folder / f"{len(row_of)}.{ending}"
            file.write_text(text, "utf-8")
            row_of[str(file)] = key
            files[kind].append(str(file))
    found = dict.fromkeys(ROWS, "takes")
    for kind, names in files.items():
        if not names:
            continue
        schema = folder / f"{kind}.json"
        schema.write_text(json.dumps(SCHEMAS[kind]), "utf-8")
        answer = CliRunner().invoke(check_jsonschema, ["-o", "json", "--schemafile", str(schema), *names])
        told = json.loads(answer.stdout)
        found |= {row_of[each["filename"]]: "refuses" for each in told["errors"]}
        found |= {row_of[each["filename"]]: "unreadable" for each in told["parse_errors"]}
    return found


@pytest.mark.parametrize("key", ROWS, ids=lambda key: key[1])
def test_schema_when_a_file_is_wrong_then_does_what_the_table_says(
    key: tuple[str, str], said: Mapping[tuple[str, str], str]
) -> None:
    assert said[key] == ROWS[key].get("schema")


# -- patterns ----------------------------------------------------------------------------------------------------------

PLAYBOOK = SCHEMAS[SchemaKind.PLAYBOOK]
TEXTS = {
    "durations": PLAYBOOK["properties"]["hold"]["anyOf"][0],
    "percents": PLAYBOOK["$defs"]["RetryKeys"]["properties"]["jitter"],
    "matchers": PLAYBOOK["properties"]["match"]["items"],
    "expressions": PLAYBOOK["$defs"]["StepKeys"]["properties"]["if"],
}
UNSEEN = {
    "durations": {"one millisecond too long", "more digits than 64 bits hold", "more digits than Python reads"},
    "percents": set(),
    "matchers": {
        *("an empty label in quotes", "a single backslash in quotes", "an escaped single quote", "half a byte"),
        *("an octal escape above a byte", "half a surrogate pair", "a code point that does not exist"),
        *("a code point beyond 32 bits with a sign", "bytes that are no UTF-8", "a line break inside quotes"),
        *("a regex that is not closed", "a look-ahead", "a back-reference", "a regex that would escape its anchors"),
        "a regex too large",
    },
    "expressions": {
        *("text", "a number", "one equals sign", "two expressions", "a label compared with a number", "not of text"),
        *("a label compared with false", "a number in text"),
    },
}
"""What is refused for more than its shape."""


def rows_of(table: str, *, are_read: bool) -> dict[str, str]:
    """What the parser's own table says that it reads, or refuses, by the row's sentence."""
    (found,) = read((DATA / f"{table.replace('percents', 'durations')}.yaml").read_text("utf-8"))
    match table, are_read:
        case "expressions", _:
            return {row["id"]: row["expression"] for row in found if ("refused" in row) is not are_read}
        case "percents", _:
            part = "percents" if are_read else "not_percents"
        case _, True:
            part = "reads" if "reads" in found else "parses"
        case _:
            part = "refuses"
    return {row["id"]: row["text"].replace("{zeros}", "0" * 5000).replace("{nines}", "9" * 5000) for row in found[part]}


def fits_python(schema: Mapping[str, Any], text: str) -> bool:
    """As a validator in Python sees it."""
    return len(text) >= schema.get("minLength", 0) and re.search(schema["pattern"], text) is not None


def fits_ecmascript(schema: Mapping[str, Any], text: str) -> bool:
    """As an editor sees it."""
    return len(text) >= schema.get("minLength", 0) and regress.Regex(schema["pattern"], "u").find(text) is not None


@pytest.mark.parametrize("fits", [fits_python, fits_ecmascript])
@pytest.mark.parametrize("table", TEXTS)
def test_pattern_when_the_parser_reads_a_text_then_fits_it(
    table: str, fits: Callable[[Mapping[str, Any], str], bool]
) -> None:
    rows = rows_of(table, are_read=True)
    assert len(rows) >= 3
    assert [name for name, text in rows.items() if not fits(TEXTS[table], text)] == []


@pytest.mark.parametrize("table", TEXTS)
def test_pattern_when_the_parser_refuses_a_text_then_sees_its_shape(table: str) -> None:
    rows = rows_of(table, are_read=False)
    assert {name for name, text in rows.items() if fits_ecmascript(TEXTS[table], text)} == UNSEEN[table]


# -- never stricter than the loader ------------------------------------------------------------------------------------

EVERY_PARAM = {
    "playbook": "x",
    "match": ["alertname = X"],
    "steps": [
        {"action": "docker.limit", "params": {"container": "a", "host": "h", "cpus": 1.5}},
        {"action": "docker.restart", "params": {"container": "a", "stop_timeout": "90s"}},
        {"action": "docker.signal", "params": {"container": "a", "signal": "USR1"}},
        {"action": "alertmanager.silence", "params": {"duration": "2h", "labels": {"a": "b"}, "run": "x"}},
        {"action": "notify.send", "params": {"to": ["oncall"], "title": "a", "body": "b"}},
        {"action": "noop", "params": {"note": "a"}},
        {"action": "test.cordon", "undo": {"when": "resolved", "at_most": "1h"}},
    ],
    "resolved": [{"action": "noop"}],
}
WHOLE = [*read((DATA / "whole_format.yaml").read_text("utf-8")), EVERY_PARAM]
EVERY_SETTING = {
    "store_url": "sqlite:///x.db",
    "listen": "127.0.0.1:9095",
    "public_url": "https://remediator.example",
    "playbooks": ["a", "b"],
    "watch_playbooks": True,
    "auth": {
        "tokens": [{"name": "am", "roles": ["deliver"], "file": "t"}],
        "basic": [{"username": "am", "roles": "view,operate", "password_file": "p"}],
    },
    "tls_cert": "c",
    "tls_key": "k",
    "tls_client_ca": "ca",
    "label_map": {"host": ["hostname"], "cluster": "cluster", "node": ["node"]},
    "docker": {
        "hosts": {
            "a": {"url": "unix:///var/run/docker.sock"},
            "b": {"url": "tcp://b:2376", "tls_ca": "ca", "tls_cert": "c", "tls_key": "k"},
            "c": {"url": "ssh://me@c"},
        }
    },
    "alertmanager": {"urls": ["http://am:9093"], "receiver": "remediator", "username": "me", "password_file": "p"},
    "reconcile": {"starts": True},
    "prometheus": {"servers": {"a": {"url": "http://p:9090", "token_file": "t", "tls_ca": "ca"}}},
    "fleets": {"gpus": {"kind": "gpu", "size": 8}, "nodes": {"kind": "node", "query": "count(up)"}},
    "notify": {"oncall": {"urls": ["json://localhost"], "urls_file": "f", "urls_env": "ONCALL"}},
    "report_to": ["oncall"],
    "escalate_to": "oncall",
    "ignore_labels": ["replica"],
    "vars": {"a": 1, "b": [True, {"c": "d"}]},
    "max_body": "16MiB",
    "workers": 16,
    "shutdown_grace": "30s",
    "expire_after": "9h",
    "pause_file": "PAUSE",
    "log_level": "info",
    "log_format": "json",
}
EVERY_THRESHOLD = {
    "stages": {"middle_from": 0.3, "late_from": 0.7, "back_by": 0, "stale_after": "10m"},
    "signals": [
        {
            "signal": "x",
            "unit": "percent",
            "series": "x",
            "by": ["cluster", "workload"],
            "alert": "X",
            "grades": {
                "info": {"above": {"early": 90, "middle": 80.5, "late": 70, "unknown": 80}, "clears": 5, "for": "2m"},
                "warning": {"above": 91, "for": 0},
                "critical": {"above": 92},
            },
            "goal": 5,
            "unless": "y",
            "annotations": {"summary": "s", "description": "d"},
        },
        {"signal": "y", "unit": "ratio", "series": "gpu:y:ratio", "goal": 0.5},
    ],
}
EVERY_VERB = {
    "playbooks": ["x.yaml"],
    "policies": ["x.yaml"],
    "settings": {
        "vars": {"a": 1},
        "alertmanager": {"urls": ["http://am:9093"]},
        "docker": {"hosts": {"h": {"url": "unix:///x"}}},
    },
    "begins": "2026-03-01T12:00:00Z",
    "group": {"labels": {"a": "b"}, "receiver": "r", "external_url": "u"},
    "alerts": {
        "a": {"labels": {"alertname": "A"}, "annotations": {"x": "y"}, "generator_url": "u"},
        "b": {"labels": {"alertname": "B"}},
    },
    "world": {
        "docker": {"h": {"c": {"status": "running", "labels": {"a": "b"}, "stop_timeout": "5m", "cpus": 1.5}}},
        "alertmanager": {"a": "active"},
    },
    "scenarios": [
        {
            "name": "s",
            "world": {"docker": {"h": {"d": {}}}},
            "story": [
                {"at": "0s", "fires": ["a", "b"], "copies": 2, "truncated": 3, "sees": {"x": 1, "y": [1.5, 2]}},
                {"at": "1m", "repeats": "a", "late": "30s"},
                {"at": "2m", "sees": {"x": "nothing", "a": {"y": "away"}}},
                {"at": "3m", "fails": "docker.restart", "with": "transient", "times": 2},
                {"at": "4m", "approves": "alice", "reason": "r", "playbook": "x", "alert": "a"},
                {"at": "5m", "settles": "alice", "as": "happened"},
                {"at": "6m", "resets": "alice", "breaker": "p"},
                {"at": "7m", "changes": {"docker": {"h": {"c": "gone"}}, "alertmanager": "away"}},
                {"at": "8m", "pauses": "alice"},
                {"at": "9m", "resolves": ["a"]},
                {"at": "10m", "restarts": "engine", "down": "5m", "during": "docker.restart"},
            ],
            "expect": [
                {
                    "at": "1m",
                    "does": "docker.restart",
                    "target": "docker:h/c",
                    "params": {"container": "c"},
                    "attempts": 2,
                    "outcome": "failed",
                },
                {"at": "2m", "undoes": ["docker.limit"], "playbook": "x", "case": "c", "alert": "a"},
                {"at": "3m", "waits": "cooldown"},
                {"at": "4m", "refuses": "protected", "says": "s"},
                {"at": "5m", "asks": "oncall"},
                {"at": "6m", "tells": ["oncall"], "says": "s", "about": "report"},
                {"at": "7m", "ends": "succeeded"},
                {"at": "8m", "rung": 2},
            ],
            "never": ["docker.stop"],
        }
    ],
}

SEEDS = {
    SchemaKind.PLAYBOOK: [document for document in WHOLE if "playbook" in document],
    SchemaKind.POLICY: [document for document in WHOLE if "policy" in document],
    SchemaKind.TEST: [EVERY_VERB],
    SchemaKind.THRESHOLDS: [EVERY_THRESHOLD],
    SchemaKind.SETTINGS: [EVERY_SETTING],
}
# No 2.0: to JSON Schema it is the number 2, and where text is wanted a file's 2.0 is text and its 2 is not.
ODD = [
    *(0, 1, 7, 120, -1, 1.5, True, False, "", "a", "A b", "a_b", "10m", "0s", "0", "1h30m", "90", "20%", "120%", "a\n"),
    *("{{ labels.x }}", "{% x %}", "a = b", "'a", 'x{a="b"}', 'labels.a != ""', "\u00a0= x", "x\u00a0=\u00a0y"),
    *([], ["a"], ["a", "a"], ["{{ labels.x }}"], [1], {}, {"a": 1}, {"a": "b"}, {"a": 1, "b": "{{ labels.x }}"}),
    *(
        "resolved",
        "never",
        "oncall",
        ["oncall"],
        "docker.restart",
        "noop",
        "alice",
        "true",
        "16",
        "2026-03-01T12:00:00+01:00",
    ),
    *("HTTP://x", "http://x/?", "unix:////x", "tcp://x:1/", "[::1]:0", ":0", "sqlite:///a:b"),
]


def paths_in(node: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to everything in a document."""
    if path:
        yield path
    for key, child in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from paths_in(child, (*path, key))


PLACES = {
    kind: [(n, path) for n, document in enumerate(documents) for path in paths_in(document)]
    for kind, documents in SEEDS.items()
}


def loads(kind: SchemaKind, document: Any, folder: Path) -> bool:
    """Whether the loader finds nothing wrong."""
    if kind is SchemaKind.SETTINGS:
        return table_problems(document) == []
    file = folder / "x.test.yaml"
    file.write_text(json.dumps(document), "utf-8")
    if kind is SchemaKind.TEST:
        return load_tests([file], actions=ACTIONS).problems == ()
    if kind is SchemaKind.THRESHOLDS:
        return load_thresholds(file).problems == ()
    return load([file], context=CONTEXT).problems == ()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where documents are written, beside a playbook for tests to name."""
    folder = tmp_path_factory.mktemp("documents")
    (folder / "x.yaml").write_text("playbook: x\nmatch: [alertname = X]\nsteps: [{action: noop}]\n")
    return folder


@pytest.mark.parametrize("kind", SchemaKind)
def test_schema_when_a_file_has_every_key_then_takes_it_as_the_loader_does(kind: SchemaKind, folder: Path) -> None:
    for document in SEEDS[kind]:
        assert loads(kind, document, folder)
        assert [error.message for error in VALIDATORS[kind].iter_errors(document)] == []


@pytest.mark.parametrize("kind", SchemaKind)
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_schema_when_the_loader_takes_a_file_then_takes_it_too(
    kind: SchemaKind, folder: Path, data: st.DataObject
) -> None:
    n, path = data.draw(st.sampled_from(PLACES[kind]))
    document = deepcopy(SEEDS[kind][n])
    *parents, last = path
    at: Any = document
    for part in parents:
        at = at[part]
    if data.draw(st.booleans()):
        at[last] = deepcopy(data.draw(st.sampled_from(ODD)))
    else:
        del at[last]
    if loads(kind, document, folder):
        assert [error.message for error in VALIDATORS[kind].iter_errors(document)] == []


STEPS = {step["action"]: step for step in EVERY_PARAM["steps"]}


@pytest.mark.parametrize("name", sorted({*REGISTRY} & {*STEPS}))
def test_schema_when_the_loader_takes_a_param_then_takes_it_too(name: str, folder: Path) -> None:
    params = STEPS[name]["params"]
    validator = VALIDATORS[SchemaKind.PLAYBOOK].evolve(
        schema={"$ref": f"#/$defs/{name}", "$defs": SCHEMAS[SchemaKind.PLAYBOOK]["$defs"]}
    )
    taken, wrong = 0, []
    for param in params:
        for value in (*ODD, "1.5"):
            changed = {**params, param: value}
            document = {"playbook": "x", "match": ["a = b"], "steps": [{"action": name, "params": changed}]}
            if loads(SchemaKind.PLAYBOOK, document, folder):
                taken += 1
                wrong += [(param, value)] if list(validator.iter_errors(changed)) else []
    assert (taken >= 10, wrong) == (True, [])


def test_params_when_listed_then_every_action_with_params_is_tried() -> None:
    assert {name for name, action in REGISTRY.items() if action.params_model.model_fields} - {*STEPS} == ALIKE


ALIKE = {"docker.start", "docker.stop"}
"""Their params are those of docker.restart."""


def test_settings_schema_when_variables_complete_a_file_then_takes_it(tmp_path: Path) -> None:
    file = tmp_path / "remediator.toml"
    file.write_text(
        '[docker.hosts.a]\ntls_ca = "ca.pem"\n[prometheus.servers.p]\ntoken_file = "t"\n[fleets.f]\nsize = 3\n'
    )
    variables = {
        "REMEDIATOR_DOCKER__HOSTS__A__URL": "tcp://a:2376",
        "REMEDIATOR_PROMETHEUS__SERVERS__P__URL": "http://p:9090",
        "REMEDIATOR_FLEETS__F__KIND": "gpu",
    }
    assert load_settings(file, variables).docker.hosts["a"].url == "tcp://a:2376"
    assert list(VALIDATORS[SchemaKind.SETTINGS].iter_errors(tomllib.loads(file.read_text()))) == []
