"""promtool as something that answers: what rules make of given series, in simulated time.

Input series and questions of a rule test → what promtool says. It has no command that prints a value, but a test that
expects what is not so says what it got: whoever asks reads that.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"

GPU_RULES = tuple(DEPLOY / f"gpu-{name}.yml" for name in ("recording", "thresholds", "alerts"))
"""The shipped rules on GPUs, in the order in which they are evaluated: each reads what those before it have written."""


def ask(
    promtool: Path,
    file: Path,
    series: Sequence[tuple[str, str]],
    questions: Sequence[Mapping[str, Any]],
    *,
    scrape_s: int,
    evaluate_s: int,
    rule_files: Sequence[Path] = GPU_RULES,
) -> subprocess.CompletedProcess[str]:
    """Play rules over series.

    Args:
        file: where the test is written; it is gone afterwards.
        series: (series, values), a value each ``scrape_s``.
        questions: ``promql_expr_test``.
        evaluate_s: between two evaluations, of all groups.
        rule_files: in the order in which they are evaluated, as their groups are.

    Returns:
        What it said; it ends with 1 where it got something else than was expected.
    """
    test = {
        "interval": f"{scrape_s}s",
        "input_series": [{"series": name, "values": values} for name, values in series],
        "promql_expr_test": questions,
    }
    document = {
        "rule_files": [str(path) for path in rule_files],
        "group_eval_order": [group["name"] for path in rule_files for group in YAML(typ="safe").load(path)["groups"]],
        "evaluation_interval": f"{evaluate_s}s",
        "tests": [test],
    }
    file.write_text(json.dumps(document))
    # Most of what it allocates lives for one evaluation; collecting it four times as rarely saves a fifth of the time.
    environment = {**os.environ, "GOGC": "400"}
    command = [str(promtool), "test", "rules", str(file)]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    finally:
        file.unlink()
