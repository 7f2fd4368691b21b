"""Playbooks and rules as text → what lint says of them, for tests."""

from __future__ import annotations

from pathlib import Path

from remediator.actions import REGISTRY
from remediator.core.playbook import LabelMap
from remediator.engine.lint import Advice, lint
from remediator.loading import LoadContext, load
from remediator.loading.rules import read_rules

CONTEXT = LoadContext(
    actions=REGISTRY,
    notify_targets=frozenset({"oncall"}),
    label_map=LabelMap(prometheus=("site",)),
    ignore_labels=frozenset({"replica"}),
)


def advise(folder: Path, text: str, rules: str = "", *, context: LoadContext = CONTEXT, added: str = "") -> Advice:
    """What lint says of playbooks, with everything there is to ask.

    Args:
        text: of one file, ``x.yaml``.
        rules: of one rule file, ``rules.yml``; "" = none is given.
        added: a label that Prometheus adds.
    """
    file = folder / "x.yaml"
    file.write_text(text, "utf-8")
    loaded = load([file], context=context)
    assert [problem.located() for problem in loaded.problems] == []
    found = None
    if rules:
        (folder / "rules.yml").write_text(rules, "utf-8")
        found = read_rules([str(folder / "rules.yml")])
        assert [problem.located() for problem in found.problems] == []
    labels = frozenset({added} - {""})
    return lint(loaded, actions=REGISTRY, can_ask=True, rules=found, added_labels=labels)


def placed(advice: Advice) -> list[str]:
    """Line and code of each: ``3 no-escalation``."""
    return [f"{found.line} {found.code}" for found in advice.lints]
