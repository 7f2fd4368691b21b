"""Rule files: what alerts they can raise, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from remediator.loading.rules import Rules, read_rules

ROOT = Path(__file__).parents[3]
SHIPPED = ROOT / "deploy" / "prometheus"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(text: str, *patterns: str) -> Rules:
    Path("rules.yml").write_text(text, "utf-8")
    return read_rules(patterns or ("rules.yml",))


def labels(rules: Rules) -> dict[str, dict[str, list[str] | None]]:
    return {
        rule.name: {name: values if values is None else sorted(values) for name, values in rule.labels.known.items()}
        for rule in rules.alerts
    }


GROUP = "groups:\n  - name: g\n    rules:\n"
RULE = f"{GROUP}      - alert: A\n        expr: sum by (host) (up) == 0\n"
OBJECT = "kind: PrometheusRule\nspec:\n" + "".join(f"  {line}\n" for line in RULE.splitlines())


def test_read_rules_when_labels_are_static_or_templates_then_only_the_static_are_known() -> None:
    rules = read(
        f"{RULE}        labels: {{severity: warning, level: 3, team: '{{{{ $labels.team }}}}', host: \"\"}}\n"
        "    labels: {severity: info, site: north}\n"
    )
    assert (rules.problems, rules.not_understood) == ([], [])
    assert labels(rules) == {
        "A": {
            "alertname": ["A"],
            "severity": ["warning"],
            "site": ["north"],
            "level": ["3"],
            "team": None,
            "host": [""],
        }
    }
    (rule,) = rules.alerts
    assert (rule.place, rule.labels.is_open, rules.files) == ("rules.yml:4", False, [Path("rules.yml")])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param(RULE, ["A"], id="a rule file"),
        pytest.param(OBJECT, ["A"], id="an object of the operator"),
        pytest.param(f"{OBJECT}---\nkind: Service\nspec: {{}}\n", ["A"], id="beside other objects"),
        pytest.param(
            "kind: List\nitems:\n- kind: Service\n"
            "- kind: PrometheusRule\n  spec: {groups: [{name: g, rules: [{alert: B, expr: up}]}]}\n",
            ["B"],
            id="a list of objects",
        ),
        pytest.param(
            f"{GROUP}      - record: a:b\n        expr: up\n      - {{alert: C, expr: up}}\n", ["C"], id="records"
        ),
        pytest.param(
            f"x: &shared {{expr: up, labels: {{severity: page}}}}\n{GROUP}      - {{<<: *shared, alert: D}}\n",
            ["D"],
            id="a merge key",
        ),
        pytest.param(f"{GROUP}      - {{alert: E, expr: 1}}\n", ["E"], id="an expression that is a number"),
    ],
)
def test_read_rules_when_a_file_is_one_of_these_then_reads_its_alerts(text: str, names: list[str]) -> None:
    rules = read(text)
    assert [problem.located() for problem in rules.problems] == []
    assert [rule.name for rule in rules.alerts] == names


def test_read_rules_when_a_merge_key_brings_labels_then_they_count() -> None:
    rules = read(f"x: &s {{expr: sum(up), labels: {{a: b}}}}\n{GROUP}      - {{<<: *s, alert: D, labels: {{a: c}}}}\n")
    assert labels(rules) == {"D": {"a": ["c"], "alertname": ["D"]}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("groups: [a\n", "rules.yml:2:1: not YAML: ", id="no YAML"),
        pytest.param("[" * 600, "rules.yml:1:1: not YAML: nested too deep", id="nested too deep"),
        pytest.param(
            "{{- if .Values.rules }}\ngroups: []\n",
            "rules.yml:1:3: not YAML: expected the node content, but found '-'; a chart's templates are no rules yet",
            id="a chart's template",
        ),
        pytest.param("a: \x00\n", "rules.yml:1:1: not YAML: ", id="a character that is not allowed"),
        pytest.param("- a\n", "rules.yml:1:1: no rule file: it has neither `groups` nor", id="a list"),
        pytest.param("group: []\n", "rules.yml:1:1: no rule file: it has neither `groups` nor", id="a misspelt key"),
        pytest.param("groups: 1\n", "rules.yml:1:9: `groups` must be a list", id="groups that are no list"),
        pytest.param("groups: []\n", "rules.yml:1:1: holds no alerting rule", id="no groups"),
        pytest.param("groups:\n", "rules.yml:1:1: holds no alerting rule", id="groups without a value"),
        pytest.param("kind: Service\n", "rules.yml:1:1: holds no alerting rule", id="another object"),
        pytest.param("groups:\n  - rules: []\n", "rules.yml:2:5: a group needs a `name`", id="a group without a name"),
        pytest.param(
            f"{GROUP}      - expr: up\n", "rules.yml:4:9: a rule has either `alert` or `record`", id="neither"
        ),
        pytest.param(f"{GROUP}      - alert: A\n", "rules.yml:4:9: `expr` is missing", id="no expression"),
        pytest.param(f"{GROUP}      - up\n", "rules.yml:4:9: a rule has either `alert` or `record`", id="a text"),
        pytest.param(f"{GROUP}      - {{alert: '', expr: up}}\n", "rules.yml:4:9: `alert` needs a name", id="no name"),
        pytest.param(
            f"{RULE}        labels: [a]\n", "rules.yml:6:17: `labels` must be a map", id="labels that are no map"
        ),
        pytest.param(
            f"{RULE}        labels: {{a: [b]}}\n", "rules.yml:6:21: the label a must be text", id="a label that is none"
        ),
    ],
)
def test_read_rules_when_a_file_is_bad_then_says_where_and_what(text: str, expected: str) -> None:
    rules = read(text)
    assert [problem.located()[: len(expected)] for problem in rules.problems] == [expected]


def test_read_rules_when_a_file_is_bad_then_reads_the_others() -> None:
    Path("other.yml").write_text("groups: 1\n")
    rules = read(RULE, "other.yml", "rules.yml")
    assert ([rule.name for rule in rules.alerts], len(rules.problems)) == (["A"], 1)


def test_read_rules_when_an_expression_is_not_understood_then_its_own_labels_count_and_the_rest_is_open() -> None:
    rules = read(RULE.replace("== 0", "=== 0"))
    (told,) = rules.not_understood
    assert told.located().startswith("rules.yml:5:15: the expression of A is not understood: ")
    assert (labels(rules), rules.alerts[0].labels.is_open) == ({"A": {"alertname": ["A"]}}, True)


def test_read_rules_when_given_folders_and_patterns_then_passes_over_what_holds_no_rules() -> None:
    Path("rules").mkdir()
    Path("rules/a.yml").write_text(RULE)
    Path("rules/b.rules").write_text(RULE.replace("alert: A", "alert: B"))
    Path("rules/prometheus.yml").write_text("global: {}\n")
    Path("rules/notes.txt").write_text("{{{")
    for patterns in (["rules"], ["rules/*"], ["rules", "rules/a.yml"]):
        Path("rules/notes.txt").unlink(missing_ok=True)
        rules = read_rules(patterns)
        assert ([rule.name for rule in rules.alerts], rules.problems) == (["A", "B"], []), patterns


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        pytest.param("gone.yml", "gone.yml:1:1: cannot be read: there is no such file", id="a file"),
        pytest.param("gone/*.yml", "gone/*.yml:1:1: no rule file fits this", id="a pattern"),
        pytest.param("empty", "empty:1:1: no rule file fits this", id="an empty folder"),
        pytest.param("latin.yml", "latin.yml:2:1: not UTF-8", id="not UTF-8"),
    ],
)
def test_read_rules_when_there_is_nothing_to_read_then_says_so(pattern: str, expected: str) -> None:
    Path("empty").mkdir()
    Path("latin.yml").write_bytes(b"a: b\n# \xe9\n")
    assert [problem.located() for problem in read_rules([pattern]).problems] == [expected]


def test_shipped_rules_when_read_then_all_are_understood() -> None:
    rules = read_rules([str(SHIPPED)])
    assert (rules.problems, rules.not_understood) == ([], [])
    assert {"GPUHot", "GPUMemoryLeakSlope", "Watchdog"} <= {rule.name for rule in rules.alerts}
    (hot,) = [
        rule.labels
        for rule in rules.alerts
        if rule.name == "GPUHot" and rule.labels.values("severity") == frozenset({"critical"})
    ]
    assert (hot.values("UUID"), hot.values("container_name"), hot.values("instance")) == (None, None, frozenset({""}))
