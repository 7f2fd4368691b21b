"""No rule, dashboard, playbook, threshold or page asks for a metric that nobody exports: silent for ever."""

from __future__ import annotations

import pytest

from metric_names import expressions, is_exported, names_in

EXPRESSIONS = expressions()


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_expression_when_it_asks_for_metrics_then_somebody_exports_each(expression: str) -> None:
    assert [name for name in sorted(names_in(expression)) if not is_exported(name)] == []


@pytest.mark.parametrize("kind", ["gpu-", "remediator-rules.yml", "remediator.json", "restart-on-leak.yaml"])
def test_expressions_when_collected_then_none_of_the_kinds_is_missed(kind: str) -> None:
    assert any(place.startswith(kind) for place in EXPRESSIONS)


@pytest.mark.parametrize(
    ("expression", "unknown"),
    [
        pytest.param("DCGM_FI_DEV_GPU_UTIL > 95", [], id="one that is exported"),
        pytest.param(
            "max by (UUID) (rate(DCGM_FI_DEV_FBUSED[5m])) > 0",
            ["DCGM_FI_DEV_FBUSED"],
            id="an invented one, deep inside",
        ),
        pytest.param("up / on (instance) group_left () gone_away_total", ["gone_away_total"], id="on the other side"),
        pytest.param("scalar(nope) * vector(1)", ["nope"], id="in a function"),
        pytest.param("quantile(scalar(nope), up)", ["nope"], id="as a parameter"),
        pytest.param("max_over_time(nope[10m:1m])", ["nope"], id="in a subquery"),
        pytest.param("nvidia_smi_fb_memory_used_percent", ["nvidia_smi_fb_memory_used_percent"], id="of no exporter"),
        pytest.param('{__name__="nope"}', ["nope"], id="named by a matcher"),
        pytest.param('{__name__=~"nope_.*"}', ["nope_.*"], id="a pattern that fits nothing"),
        pytest.param('{__name__=~"DCGM_FI_.*"}', [], id="a pattern that fits something"),
        pytest.param("vector(time()) > 0", [], id="none at all"),
    ],
)
def test_names_when_somebody_invents_one_then_it_is_found(expression: str, unknown: list[str]) -> None:
    assert [name for name in names_in(expression) if not is_exported(name)] == unknown
