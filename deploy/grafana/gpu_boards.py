"""Makes gpu-cluster.json, gpu-node.json and gpu-job.json beside it: ``python deploy/grafana/gpu_boards.py``.

Grafana imports the JSON; nobody needs this file for that. It is here so that the three boards look and link alike: a
change of a panel is a change of a line here, and a test holds that the JSON is what this makes. Queries read the
canonical series of gpu-recording.yml and gpu-thresholds.yml, and `remediator exporter`'s where only it knows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Json = dict[str, Any]

DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24

OF_GPUS = 'cluster=~"$cluster",hostname=~"$hostname"'
"""Matchers of the cluster's board: series of a GPU."""
OF_CLUSTER = 'cluster=~"$cluster"'
"""Series of workloads, which may be on several hosts and then have no hostname."""
OF_HOST = 'cluster=~"$cluster",hostname="$hostname"'
OF_NODE = 'cluster=~"$cluster",hostname="$hostname",gpu=~"$gpu"'
OF_JOB = 'cluster=~"$cluster",workload="$workload"'
CRITICAL, WARNING = (f'{OF_CLUSTER},severity="{grade}"' for grade in ("critical", "warning"))
FAULT = 'severity!="info"'
"""Of alerts: information is to be seen, not to be mended, and comes with every GPU at full work."""

SAME_GPU = "on (cluster, UUID, GPU_I_ID)"
OWNER = "cluster, UUID, GPU_I_ID, exported_namespace, exported_pod, exported_container, container_name"
ON_CLUSTER = f"and {SAME_GPU} gpu:identity:info{{{OF_GPUS}}}"
ON_NODE = f"and {SAME_GPU} gpu:identity:info{{{OF_NODE}}}"
"""Our exporter may spell the host in its own way: the UUID tells whose values these are."""

GPU = "GPU {{gpu}} {{GPU_I_PROFILE}} {{GPU_I_ID}}"
HOST_GPU = "{{hostname}} {{gpu}} {{GPU_I_PROFILE}} {{GPU_I_ID}}"
PROCESS = "{{hostname}} {{gpu}} {{pid}}"

GROWTH = "remediator_gpu_process_memory_growth_bytes_per_second"
UNCERTAINTY = "remediator_gpu_process_memory_growth_uncertainty_bytes_per_second"
PER_HOUR = "3600 / 2^20"
"""Bytes per second to MiB per hour."""
MIB, MIB_PER_HOUR = "mbytes", "suffix: MiB/h"

NAMES = {
    "remediator": "Remediator",
    "remediator-gpu-cluster": "GPU cluster",
    "remediator-gpu-node": "GPU node",
    "remediator-gpu-job": "GPU job",
}
"""All boards: the uid, which is their address, and the title."""

WANTED = "failed|unknown|ineffective|unverified|refused|expired|stale"
"""Outcomes of a run that a person should look at."""


# -- parts of a board


def query(expr: str, legend: str = "", *, is_instant: bool = False, as_table: bool = False) -> Json:
    """One query of a panel."""
    found: Json = {"datasource": DATASOURCE, "expr": expr, "legendFormat": legend}
    if is_instant or as_table:
        found |= {"instant": True, "range": False}
    if as_table:
        found["format"] = "table"
    return found


def panel(
    kind: str,
    title: str,
    description: str,
    size: tuple[int, int],
    queries: list[Json],
    *,
    defaults: Json,
    options: Json,
    overrides: list[Json] | None = None,
    more: Json | None = None,
) -> Json:
    """Any panel; ``size`` is its width, of 24, and its height. Where it stands is found when the board is made."""
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "gridPos": {"w": size[0], "h": size[1]},
        "targets": [{"refId": chr(ord("A") + n), **one} for n, one in enumerate(queries)],
        "fieldConfig": {"defaults": defaults, "overrides": overrides or []},
        "options": options,
        **(more or {}),
    }


def steps(*beyond: tuple[float, str], below: str = "green") -> Json:
    """Colours of values: ``below`` the first number, then each from its number on."""
    found = [{"color": below, "value": None}, *({"color": color, "value": value} for value, color in beyond)]
    return {"mode": "absolute", "steps": found}


def stat(
    title: str,
    description: str,
    expr: str,
    *,
    width: int = 3,
    unit: str = "short",
    colors: Json | None = None,
    words: dict[str, tuple[str, str]] | None = None,
    no_value: str = "no data",
    decimals: int | None = None,
) -> Json:
    """One number; ``words`` are value → (text, colour)."""
    mappings = [
        {
            "type": "value",
            "options": {
                value: {"text": text, "color": color, "index": n}
                for n, (value, (text, color)) in enumerate((words or {}).items())
            },
        }
    ]
    defaults: Json = {
        "unit": unit,
        "thresholds": colors or steps(),
        "mappings": mappings if words else [],
        "noValue": no_value,
    }
    if decimals is not None:
        defaults["decimals"] = decimals
    options = {
        "colorMode": "background",
        "graphMode": "none",
        "textMode": "value",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }
    return panel("stat", title, description, (width, 4), [query(expr)], defaults=defaults, options=options)


def lines(
    title: str,
    description: str,
    queries: list[Json],
    *,
    width: int = 8,
    unit: str = "short",
    limits: str = "",
    goals: str = "",
    no_value: str = "no data",
    as_bars: bool = False,
    least: float | None = 0,
    most: float | None = None,
    links: list[Json] | None = None,
) -> Json:
    """Curves over time; queries whose letters are in ``limits`` are dashed and red, those in ``goals`` green."""
    custom = {
        "drawStyle": "bars" if as_bars else "line",
        "fillOpacity": 60 if as_bars else 0,
        "lineWidth": 1,
        "showPoints": "never",
        "stacking": {"mode": "normal" if as_bars else "none"},
    }
    defaults: Json = {"unit": unit, "custom": custom, "noValue": no_value}
    if least is not None:
        defaults["min"] = least
    if most is not None:
        defaults["max"] = most
    if links:
        defaults["links"] = links
    overrides = [
        {
            "matcher": {"id": "byFrameRefID", "options": letter},
            "properties": [
                {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}},
                {"id": "color", "value": {"mode": "fixed", "fixedColor": color}},
            ],
        }
        for letters, color in ((limits, "red"), (goals, "green"))
        for letter in letters
    ]
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return panel(
        "timeseries", title, description, (width, 8), queries, defaults=defaults, options=options, overrides=overrides
    )


def history(
    title: str,
    description: str,
    queries: list[Json],
    *,
    width: int = WIDTH,
    height: int = 8,
    unit: str = "short",
    colors: Json | None = None,
    words: dict[str, tuple[str, str]] | None = None,
    links: list[Json] | None = None,
    no_value: str = "no data",
) -> Json:
    """A heat map: a row for each series, a coloured cell for each time. Without ``colors`` from 0 to 100."""
    defaults: Json = {
        "unit": unit,
        "color": {"mode": "thresholds" if colors else "continuous-BlYlRd"},
        "custom": {"fillOpacity": 80, "lineWidth": 0},
        "noValue": no_value,
    }
    if colors:
        defaults["thresholds"] = colors
    else:
        defaults |= {"min": 0, "max": 100}
    if words:
        texts = {
            value: {"text": text, "color": color, "index": n} for n, (value, (text, color)) in enumerate(words.items())
        }
        defaults["mappings"] = [{"type": "value", "options": texts}]
    if links:
        defaults["links"] = links
    options = {
        "showValue": "never",
        "rowHeight": 0.9,
        "colWidth": 0.95,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": bool(words)},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    # More points than this do not fit, and Grafana then shows none.
    more = {"maxDataPoints": 120}
    return panel(
        "status-history", title, description, (width, height), queries, defaults=defaults, options=options, more=more
    )


def bars(
    title: str,
    description: str,
    queries: list[Json],
    *,
    width: int = 8,
    unit: str = "short",
    colors: Json,
    no_value: str = "no data",
    is_gauge: bool = False,
    height: int = 8,
    least: float | None = 0,
    most: float | None = None,
) -> Json:
    """A bar, or a gauge, for each series: its value now."""
    defaults: Json = {"unit": unit, "thresholds": colors, "color": {"mode": "thresholds"}, "noValue": no_value}
    if least is not None:
        defaults["min"] = least
    if most is not None:
        defaults["max"] = most
    reduced = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    if is_gauge:
        options: Json = {"reduceOptions": reduced, "showThresholdLabels": False, "showThresholdMarkers": True}
    else:
        options = {"reduceOptions": reduced, "orientation": "horizontal", "displayMode": "basic", "showUnfilled": True}
    kind = "gauge" if is_gauge else "bargauge"
    return panel(kind, title, description, (width, height), queries, defaults=defaults, options=options)


def table(
    title: str,
    description: str,
    expr: str,
    *,
    width: int = 12,
    value: str = "",
    unit: str = "short",
    hide: tuple[str, ...] = (),
    no_value: str = "no data",
    links: list[Json] | None = None,
) -> Json:
    """A row for each series now: its labels, and its value as the column ``value`` where one is named."""
    gone = ["Time", "__name__", "GPU_I_ID", *hide, *([] if value else ["Value"])]
    defaults: Json = {"unit": unit, "custom": {"align": "auto", "filterable": True}, "noValue": no_value}
    if links:
        defaults["links"] = links
    organize = {
        "id": "organize",
        "options": {
            "excludeByName": dict.fromkeys(gone, True),
            "indexByName": {},
            "renameByName": {"Value": value} if value else {},
        },
    }
    return panel(
        "table",
        title,
        description,
        (width, 8),
        [query(expr, as_table=True)],
        defaults=defaults,
        options={"showHeader": True, "cellHeight": "sm", "footer": {"show": False}},
        more={"transformations": [organize]},
    )


def variable(name: str, label: str, of: str, *, has_all: bool) -> Json:
    """A choice from the values of a label: ``of`` is ``metric{…}, label``."""
    found: Json = {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": f"label_values({of})", "refId": name},
        "refresh": 2,
        "sort": 3 if name == "gpu" else 1,
        "hide": 0,
        "multi": has_all,
        "includeAll": has_all,
    }
    if has_all:
        found |= {"allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    return found


CLUSTER = variable("cluster", "Cluster", "gpu:identity:info, cluster", has_all=True)
PLAYBOOK = variable("playbook", "Runs of playbook", "remediator_runs_total, playbook", has_all=True)


def ended(outcomes: str) -> str:
    """Runs that ended lately: a counter that went up, or came to be while its engine was watched.

    Looked at each minute, over 90 seconds: with 60, what happens between the last scrape of one and the first of the
    next is in neither.
    """
    runs = f'remediator_runs_total{{playbook=~"$playbook",outcome{outcomes}}}'
    return (
        f"sum by (playbook, outcome) (increase({runs}[90s]) > 0 or"
        f" ({runs} unless {runs} offset 90s) and on (instance) remediator_build_info offset 90s)"
    )


def annotation(name: str, color: str, expr: str) -> Json:
    """Marks in all graphs of a board."""
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": color,
        "expr": expr,
        "step": "60s",
        "titleFormat": "{{playbook}}",
        "textFormat": "The engine's run ended: {{outcome}}",
        "tagKeys": "playbook,outcome",
        "useValueForTime": False,
    }


def to_board(uid: str, title: str) -> Json:
    """From the top of a board to another one. Hosts are left to choose there: not each board takes several."""
    variables = "${datasource:queryparam}" + ("" if uid == "remediator" else "&${cluster:queryparam}")
    return {
        "type": "link",
        "title": title,
        "url": f"/d/{uid}?{variables}",
        "icon": "dashboard",
        "tags": [],
        "tooltip": "",
        "asDropdown": False,
        "includeVars": False,
        "keepTime": True,
        "targetBlank": False,
    }


def to_node() -> list[Json]:
    """From a series of a GPU to its host; in the clusters chosen here, as a label that a site has not is no choice."""
    url = (
        "/d/remediator-gpu-node?var-hostname=${__field.labels.hostname}&var-gpu=${__field.labels.gpu}"
        "&${cluster:queryparam}&${datasource:queryparam}&${__url_time_range}"
    )
    return [{"title": "This GPU", "url": url}]


def to_job() -> list[Json]:
    """From a series of a workload to its board."""
    url = (
        "/d/remediator-gpu-job?var-workload=${__field.labels.workload:percentencode}"
        "&${cluster:queryparam}&${datasource:queryparam}&${__url_time_range}"
    )
    return [{"title": "This job", "url": url}]


def board(uid: str, description: str, variables: list[Json], rows: list[tuple[str, list[Json]]]) -> Json:
    """A dashboard; its panels stand from left to right in the order given, in rows with a title."""
    panels: list[Json] = []
    y = 0
    for heading, members in rows:
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": heading,
                "collapsed": False,
                "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1},
                "panels": [],
            }
        )
        y += 1
        x, highest = 0, 0
        for member in members:
            width, height = member["gridPos"]["w"], member["gridPos"]["h"]
            if x + width > WIDTH:
                x, y, highest = 0, y + highest, 0
            panels.append({"id": len(panels) + 1, **member, "gridPos": {"x": x, "y": y, "w": width, "h": height}})
            x, highest = x + width, max(highest, height)
        y += highest
    return {
        "title": NAMES[uid],
        "uid": uid,
        "description": description,
        "tags": ["remediator"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "timezone": "browser",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Prometheus",
                    "type": "datasource",
                    "query": "prometheus",
                    "refresh": 1,
                    "hide": 0,
                },
                *variables,
                PLAYBOOK,
            ]
        },
        "annotations": {
            "list": [
                annotation("Runs that ended well", "green", ended(f'!~"{WANTED}"')),
                annotation("Runs for a person to look at", "red", ended(f'=~"{WANTED}"')),
            ]
        },
        "links": [to_board(other, words) for other, words in NAMES.items() if other != uid],
        "panels": panels,
    }


def fires(matchers: str) -> str:
    """The GPU alerts that fire, of those with these labels."""
    return f'ALERTS{{alertname=~"GPU.+",alertstate="firing",{matchers}}}'


def by_workload(series: str, matchers: str = 'workload!=""') -> str:
    """A series of GPUs with what each works for.

    After a restart of Prometheus a GPU may show two workloads for some minutes: one is taken, or all would fail.
    """
    info = f"topk by (cluster, UUID, GPU_I_ID) (1, gpu:workload:info{{{matchers}}})"
    return f"{series} * {SAME_GPU} group_left (workload) {info}"


def of_workload(series: str) -> str:
    """A series of GPUs for those that work for the job of the board."""
    return by_workload(series, OF_JOB)


def of_process(series: str) -> str:
    """A series of processes for those of the job of the board."""
    return f"{series} * on ({OWNER}) group_left (workload) gpu:workload_seen:info{{{OF_JOB}}}"


# -- the boards


def cluster_board() -> Json:
    """All GPUs: what is wrong, and where."""
    now = [
        stat(
            "GPUs",
            "That exporters show: whole ones and MIG instances. Fewer than you have: see the row Exporters.",
            f"count(gpu:identity:info{{{OF_GPUS}}})",
        ),
        stat(
            "Lost",
            "Were there, and their exporter sees them no more. The host mostly needs a reboot: see GPULost below.",
            f"sum(gpu:lost:bool{{{OF_GPUS}}})",
            colors=steps((1, "red")),
        ),
        stat(
            "Critical alerts",
            "GPU alerts that fire. Begin with these; the table below names them.",
            f"count({fires(CRITICAL)}) or 0 * count(gpu:identity:info{{{OF_CLUSTER}}})",
            colors=steps((1, "red")),
        ),
        stat(
            "Warnings",
            "GPU alerts that fire. Look today.",
            f"count({fires(WARNING)}) or 0 * count(gpu:identity:info{{{OF_CLUSTER}}})",
            colors=steps((1, "orange")),
        ),
        stat(
            "Leaks now",
            "Workloads on a GPU whose memory grows and is not given back. Who: Leaks now, below.",
            f"sum(workload:gpu_memory_leaking:bool{{{OF_GPUS}}})",
            colors=steps((1, "orange")),
        ),
        stat(
            "Silent exporters",
            "By host and exporter, that do not answer. What only they know of their GPUs is missing here.",
            f"count(gpu:exporter:up{{{OF_GPUS}}} == 0) or 0 * count(gpu:exporter:up{{{OF_GPUS}}})",
            colors=steps((1, "red")),
        ),
        stat(
            "Mean utilisation",
            "Share of time in which a kernel runs, over all GPUs. Low: GPUs that nobody uses, or that wait;"
            " see Utilisation.",
            f"avg(gpu:utilization:percent{{{OF_GPUS}}})",
            unit="percent",
            decimals=0,
        ),
        stat(
            "Power drawn",
            "That all GPUs draw now. Compare it with what the racks can feed and cool.",
            f"sum(gpu:power:watts{{{OF_GPUS}}})",
            unit="watt",
        ),
    ]
    firing = [
        table(
            "GPU alerts that fire",
            "Warnings and critical ones. Each has a page that says what to do (runbook_url in the alert)."
            " Empty when all is"
            " well.",
            fires(f"{OF_CLUSTER},{FAULT}"),
            width=16,
            hide=("alertstate", "exported_container", "modelName", "threshold"),
            no_value="none",
        ),
        lines(
            "GPU alerts over time",
            "How many fire, by name, information too. Many at once have one cause: a hall too warm, a host,"
            " an exporter.",
            [query(f"count by (alertname, severity) ({fires(OF_CLUSTER)})", "{{alertname}} {{severity}}")],
            as_bars=True,
            no_value="none",
        ),
    ]
    work = [
        history(
            "Utilisation by GPU",
            "A row for each GPU: blue idles, red is busy. One pale row among red ones keeps a job waiting; choose hosts"
            " above where there are too many rows. Click for the GPU's own board.",
            [query(f"gpu:utilization:percent{{{OF_GPUS}}}", HOST_GPU)],
            height=12,
            unit="percent",
            links=to_node(),
        ),
        lines(
            "Utilisation by workload",
            "Mean over its GPUs. Falls to nothing: it has stopped, or hangs in a collective call.",
            [
                query(
                    f"avg by (cluster, workload) ({by_workload(f'gpu:utilization:percent{{{OF_GPUS}}}')})",
                    "{{workload}}",
                )
            ],
            width=12,
            unit="percent",
            most=100,
            links=to_job(),
        ),
        lines(
            "Imbalance: utilisation, busiest less idlest GPU of a workload",
            "Points, means of five minutes. Below 5 is the goal; GPUImbalance comes at 20. Open the job to"
            " see which rank it is.",
            [
                query(f"workload:gpu_utilization_spread:percent{{{OF_CLUSTER}}}", "{{workload}}"),
                query('max(threshold:gpu_utilization_spread:percent{severity="warning"})', "alert"),
                query('max(threshold:gpu_utilization_spread:percent{severity="goal"})', "goal"),
            ],
            width=12,
            unit="percent",
            limits="B",
            goals="C",
            links=to_job(),
        ),
    ]
    memory = [
        lines(
            "Memory in use by workload, with the limit in force",
            "Of its fullest GPU. The dashed limit follows how far the training is: GPUMemoryHigh comes above"
            " it. The next larger"
            " batch may end the job: take a smaller one, or save a checkpoint.",
            [
                query(f'workload:gpu_memory_used:percent{{{OF_CLUSTER},workload!=""}}', "{{workload}}"),
                query(
                    "max by (cluster, workload)"
                    f' (threshold:gpu_memory_used:percent{{{OF_CLUSTER},workload!="",severity="warning"}})',
                    "limit of {{workload}}",
                ),
            ],
            width=12,
            unit="percent",
            limits="B",
            most=100,
            links=to_job(),
        ),
        lines(
            "Memory in use, GPUs of nobody known",
            "No workload was seen, or several: shared GPUs. Full and idle: somebody's process was left behind.",
            [query(f'workload:gpu_memory_used:percent{{{OF_CLUSTER},workload=""}}', HOST_GPU)],
            width=6,
            unit="percent",
            most=100,
            no_value="none",
        ),
        bars(
            "Predicted time to full",
            "Of GPUs whose memory grows, at the pace of now. Below 25 minutes: save a checkpoint and"
            " restart. Empty when all is well.",
            [
                query(
                    f"sort(min by (cluster, hostname, gpu, GPU_I_ID, workload)"
                    f" (workload:gpu_memory_until_full:seconds{{{OF_GPUS}}}))",
                    "{{workload}} on {{hostname}} {{gpu}}",
                    is_instant=True,
                )
            ],
            width=6,
            unit="s",
            colors=steps((1500, "orange"), (14400, "green"), below="red"),
            no_value="nothing grows",
        ),
        lines(
            "Leaks now: growth",
            "Of workloads that leak: what their memory grows by in an hour and is not given back. Empty when"
            " all is well.",
            [
                query(
                    f"workload:gpu_memory_growth:mib_per_hour{{{OF_GPUS}}}"
                    f" and on ({OWNER}) workload:gpu_memory_leaking:bool == 1",
                    "{{workload}} on {{hostname}} {{gpu}}",
                )
            ],
            width=12,
            unit=MIB_PER_HOUR,
            no_value="no leak",
            links=to_job(),
        ),
        lines(
            "Processes that leak, by host",
            "As `remediator exporter` counts them: it sees processes, where DCGM sees a GPU.",
            [query(f"sum by (cluster, hostname) (nvidia_custom_leak_count {ON_CLUSTER})", "{{hostname}}")],
            width=12,
        ),
    ]
    heat = [
        bars(
            "Hottest GPUs",
            "Six of them, now. What is too hot differs by ten degrees between models: the margin beside it decides.",
            [query(f"topk(6, gpu:temperature:celsius{{{OF_GPUS}}})", HOST_GPU, is_instant=True)],
            width=12,
            unit="celsius",
            colors=steps((80, "orange"), (85, "red")),
            is_gauge=True,
            most=110,
        ),
        bars(
            "Smallest margins to slowdown",
            "Degrees left until the hardware slows itself down. Below 6: fans, air, a neighbour; less power"
            " cools at once.",
            [query(f"bottomk(6, gpu:temperature_margin:celsius{{{OF_GPUS}}})", HOST_GPU, is_instant=True)],
            width=6,
            unit="celsius",
            colors=steps((6, "orange"), (15, "green"), below="red"),
            least=None,
        ),
        lines(
            "Hottest GPU of each host",
            "All hosts together: the hall. One host: its fans. One GPU: its heat sink.",
            [query(f"max by (cluster, hostname) (gpu:temperature:celsius{{{OF_GPUS}}})", "{{hostname}}")],
            width=6,
            unit="celsius",
            least=None,
        ),
        lines(
            "Power",
            "What all GPUs draw, may draw, and may draw by default. The first dashed line below the second:"
            " somebody has capped some.",
            [
                query(f"sum(gpu:power:watts{{{OF_GPUS}}})", "drawn"),
                query(f"sum(gpu:power_limit:watts{{{OF_GPUS}}})", "limits in force"),
                query(f"sum(gpu:power_default_limit:watts{{{OF_GPUS}}})", "limits by default"),
            ],
            width=12,
            unit="watt",
            limits="B",
            goals="C",
        ),
        table(
            "Capped GPUs",
            "That may draw less than by default: by the engine (`remediator leases`), a person, or the"
            " host's power management."
            " They are slower than their peers. Empty when none is.",
            f"gpu:power_limit:watts{{{OF_GPUS}}} and {SAME_GPU} gpu:power_capped:bool == 1",
            width=6,
            value="watts",
            unit="watt",
            hide=("UUID",),
            no_value="none",
        ),
        history(
            "Slowed down by heat",
            "GPUs whose hardware has cut its clock. All ranks of their job wait. Empty when none is.",
            [query(f"gpu:thermal_slowdown:bool{{{OF_GPUS}}} == 1", HOST_GPU)],
            width=6,
            colors=steps((1, "red")),
            words={"1": ("slow", "red")},
            links=to_node(),
            no_value="none",
        ),
    ]
    links_and_errors = [
        lines(
            "NVLink against peers",
            "The ten lowest: traffic as a share of the median of the GPUs of the same workload, while they compute."
            " Below 30: a link is down or errs; `nvidia-smi nvlink -s` on the host.",
            [
                query(f"bottomk(10, gpu:nvlink:percent_of_peers{{{OF_GPUS}}})", HOST_GPU),
                query("max(threshold:gpu_nvlink:percent_of_peers)", "alert"),
            ],
            width=12,
            unit="percent",
            limits="B",
            links=to_node(),
        ),
        lines(
            "NVLink by workload",
            "Both directions, over its GPUs. Nothing moves while a job runs: it hangs, or does not use its links.",
            [
                query(
                    f"sum by (cluster, workload) ({by_workload(f'gpu:nvlink:bytes_per_second{{{OF_GPUS}}}')})",
                    "{{workload}}",
                )
            ],
            width=12,
            unit="Bps",
            links=to_job(),
        ),
        lines(
            "Mended memory errors within an hour",
            "ECC, single bits. Above the line on one GPU, again and again: replace it at a good time. Empty"
            " when there is none.",
            [
                query(f"gpu:ecc_correctable:increase1h{{{OF_GPUS}}} > 0", HOST_GPU),
                query("max(threshold:gpu_ecc_correctable:increase1h)", "alert"),
            ],
            width=12,
            limits="B",
            links=to_node(),
        ),
        lines(
            "Xids",
            "New errors that the driver reports, by code, within five minutes. What each means:"
            " docs/gpu/xid.md. Empty when there is none.",
            [query(f"gpu:xid:count{{{OF_GPUS}}}", "Xid {{err_code}}: {{hostname}} {{gpu}}")],
            width=12,
            as_bars=True,
            no_value="none",
            links=to_node(),
        ),
        stat(
            "Memory errors not mended",
            "Within ten minutes. Data was lost: drain the GPU and reset it.",
            f"sum(gpu:ecc_uncorrectable:increase10m{{{OF_GPUS}}})",
            width=6,
            colors=steps((1, "red")),
        ),
        stat(
            "Wait for a row remap",
            "GPUs: drain and reset each at the next chance.",
            f"sum(gpu:row_remap_pending:bool{{{OF_GPUS}}})",
            width=6,
            colors=steps((1, "orange")),
        ),
        stat(
            "Row remap failed",
            "GPUs: the maker's criterion for a replacement.",
            f"sum(gpu:row_remap_failure:bool{{{OF_GPUS}}})",
            width=6,
            colors=steps((1, "red")),
        ),
        stat(
            "The driver wants an action",
            "GPUs that want a reset, or their host a reboot: see GPURecoveryAction in the table above.",
            f"count(gpu:recovery_action:number{{{OF_GPUS}}} > 0) or 0 * count(gpu:recovery_action:number{{{OF_GPUS}}})",
            width=6,
            colors=steps((1, "red")),
        ),
    ]
    exporters = [
        history(
            "Exporters",
            "By host. Red: it does not answer, and alerts on what only it knows are silent.",
            [query(f"gpu:exporter:up{{{OF_GPUS}}}", "{{hostname}} {{exporter}}")],
            width=12,
            colors=steps((1, "green"), below="red"),
            words={"1": ("answers", "green"), "0": ("silent", "red")},
        ),
        lines(
            "GPUs by exporter",
            "That each kind shows now. Falls: a host, a GPU or an exporter is gone.",
            [query(f"count by (exporter) (gpu:present:info{{{OF_GPUS}}})", "{{exporter}}")],
            width=6,
        ),
        lines(
            "Oldest sample of each host",
            "As `remediator exporter` says. Above a few seconds a driver call hangs; above a minute"
            " GPUMetricsFrozen comes.",
            [query(f"max by (cluster, hostname) (remediator_gpu_sample_age_seconds {ON_CLUSTER})", "{{hostname}}")],
            width=6,
            unit="s",
        ),
    ]
    return board(
        "remediator-gpu-cluster",
        "All GPUs: what is wrong, and where. The boards of a node and of a job say more. See docs/gpu/.",
        [CLUSTER, variable("hostname", "Host", f"gpu:identity:info{{{OF_CLUSTER}}}, hostname", has_all=True)],
        [
            ("Now", now),
            ("What fires", firing),
            ("Work", work),
            ("Memory", memory),
            ("Heat and power", heat),
            ("Links and errors", links_and_errors),
            ("Exporters", exporters),
            ("What the engine does", engine_row()),
        ],
    )


def engine_row() -> list[Json]:
    """What the engine does about it; its own board says more."""
    return [
        lines(
            "Runs that ended, by playbook",
            "unknown: settle it. failed, ineffective: look at the run. The marks in the graphs above are these.",
            [
                query(
                    "sum by (playbook, outcome)"
                    ' (increase(remediator_runs_total{playbook=~"$playbook"}[$__rate_interval]))',
                    "{{playbook}}: {{outcome}}",
                )
            ],
            width=12,
            as_bars=True,
            no_value="none",
        ),
        lines(
            "Open runs",
            "By phase. One that does not go on waits for a person or for its turn: `remediator runs`.",
            [query("sum by (phase) (remediator_open_runs)", "{{phase}}")],
            width=6,
        ),
        lines(
            "Changes to be taken back",
            "Power limits and other leases that the engine holds, by state: `remediator leases`.",
            [query("sum by (state) (remediator_leases)", "{{state}}")],
            width=6,
        ),
    ]


def node_board() -> Json:
    """One host: every signal of each of its GPUs, and who is on them."""
    now = [
        stat(
            "Alerts that fire here",
            "Warnings and critical ones, on this host or its GPUs; the table below names them.",
            f"count({fires(f'{OF_HOST},{FAULT}')}) or 0 * count(gpu:identity:info{{{OF_NODE}}})",
            width=4,
            colors=steps((1, "orange")),
        ),
        stat(
            "Lost GPUs",
            "Were there, and their exporter sees them no more. Mostly a reboot.",
            f"sum(gpu:lost:bool{{{OF_NODE}}})",
            width=4,
            colors=steps((1, "red")),
        ),
        stat(
            "GPU driver",
            "As `remediator exporter` on this host says. away: `nvidia-smi` there says why.",
            f"min(remediator_gpu_driver_up and on (instance) (remediator_gpu_up {ON_NODE})"
            ' or remediator_gpu_driver_up{cluster=~"$cluster",hostname="$hostname"})',
            width=4,
            words={"1": ("answers", "green"), "0": ("away", "red")},
        ),
        stat(
            "Exporters that answer",
            "Of those that have shown this host's GPUs. no data: none did.",
            'min(gpu:exporter:up{cluster=~"$cluster",hostname="$hostname"})',
            width=4,
            words={"1": ("all", "green"), "0": ("not all", "red")},
        ),
        stat(
            "Oldest sample",
            "Of `remediator exporter`. More than a few seconds: a call to the driver hangs.",
            f"max(remediator_gpu_sample_age_seconds {ON_NODE})",
            width=4,
            unit="s",
            colors=steps((10, "orange"), (60, "red")),
        ),
        stat(
            "Power drawn",
            "That the chosen GPUs draw.",
            f"sum(gpu:power:watts{{{OF_NODE}}})",
            width=4,
            unit="watt",
        ),
        table(
            "GPU alerts that fire here",
            "Each has a page that says what to do (runbook_url in the alert). Severity info: to be seen, not"
            " to be mended.",
            fires(OF_HOST),
            hide=("alertstate", "hostname", "cluster", "exported_container", "threshold", "modelName"),
            no_value="none",
        ),
        table(
            "What each GPU works for",
            "Without a workload: nobody is known, or several share it. A process that the exporters cannot"
            " place: see below.",
            f"gpu:workload:info{{{OF_NODE}}}",
            hide=("hostname", "cluster", "exported_container"),
        ),
    ]
    work = [
        lines(
            "Utilisation",
            "Share of time in which a kernel runs. One below its peers keeps their job waiting.",
            [query(f"gpu:utilization:percent{{{OF_NODE}}}", GPU)],
            unit="percent",
            most=100,
        ),
        lines(
            "Multiprocessors at work",
            "SM activity: busy at 100 % and low here is a GPU that waits in a kernel, or work that is too small for it."
            " Needs DCGM's profiling fields.",
            [query(f"gpu:sm_active:percent{{{OF_NODE}}}", GPU)],
            unit="percent",
            most=100,
        ),
        lines(
            "NVLink",
            "Both directions. One below its peers: `nvidia-smi nvlink -s`.",
            [query(f"gpu:nvlink:bytes_per_second{{{OF_NODE}}}", GPU)],
            unit="Bps",
        ),
        lines(
            "NVLink against peers",
            "Of the median of the GPUs of the same workload, while they compute. Below 30: a link is down or errs.",
            [
                query(f"gpu:nvlink:percent_of_peers{{{OF_NODE}}}", GPU),
                query("max(threshold:gpu_nvlink:percent_of_peers)", "alert"),
            ],
            width=12,
            unit="percent",
            limits="B",
        ),
        lines(
            "Imbalance within a job on this host",
            "As `remediator exporter` sees it, in points: below 5 is the goal, 20 is too much. See the job's board.",
            [
                query(
                    "100 * remediator_gpu_job_utilization_spread_ratio"
                    f" and on (instance) (remediator_gpu_up {ON_NODE})",
                    "{{exported_pod}}{{container_name}}",
                )
            ],
            width=12,
            unit="percent",
        ),
    ]
    memory = [
        lines(
            "Memory in use",
            "Of what can be used. Full for hours without growth is a framework that keeps what it took.",
            [query(f"gpu:memory_used:percent{{{OF_NODE}}}", GPU)],
            unit="percent",
            most=100,
        ),
        lines(
            "Memory free",
            "What the next larger batch can take.",
            [query(f"gpu:memory_free:mib{{{OF_NODE}}}", GPU)],
            unit=MIB,
        ),
        lines(
            "Memory by process",
            "Each process on these GPUs, with its container or pod. One that nobody knows was left behind:"
            " its pid is here.",
            [
                query(
                    f"remediator_gpu_process_memory_used_bytes {ON_NODE}",
                    "GPU {{gpu}} {{exported_pod}}{{container_name}} {{pid}}",
                )
            ],
            unit="bytes",
        ),
        lines(
            "Growth by process",
            "What its memory grows by and is not given back. Around 0 is healthy; a leak is steady, for hours.",
            [
                query(
                    f"{GROWTH} * {PER_HOUR} {ON_NODE}",
                    "GPU {{gpu}} {{exported_pod}}{{container_name}} {{pid}}",
                )
            ],
            unit=MIB_PER_HOUR,
            least=None,
        ),
        table(
            "Processes and containers",
            "On these GPUs now, and what each holds. The pid is the host's.",
            f"remediator_gpu_process_memory_used_bytes {ON_NODE}",
            width=16,
            value="memory",
            unit="bytes",
            hide=("UUID", "cluster", "hostname", "instance", "job", "model_name", "container_id"),
        ),
        table(
            "Processes that leak",
            "With the seconds until their GPU is full, at the pace of now. Save a checkpoint, then restart."
            " Empty when none does.",
            f"remediator_gpu_process_memory_seconds_until_full {ON_NODE}",
            width=16,
            value="until full",
            unit="s",
            hide=("UUID", "cluster", "hostname", "instance", "job", "model_name", "container_id"),
            no_value="none",
        ),
        lines(
            "Predicted time to full",
            "By workload, from any exporter. Below 25 minutes: GPUMemoryOOMSoon. Empty when nothing grows.",
            [query(f"workload:gpu_memory_until_full:seconds{{{OF_NODE}}}", "GPU {{gpu}} {{workload}}")],
            unit="s",
            no_value="nothing grows",
        ),
    ]
    heat = [
        bars(
            "Temperature",
            "Now. What is too hot differs by ten degrees between models: see the margin.",
            [query(f"gpu:temperature:celsius{{{OF_NODE}}}", GPU, is_instant=True)],
            width=16,
            unit="celsius",
            colors=steps((80, "orange"), (85, "red")),
            is_gauge=True,
            most=110,
        ),
        lines(
            "Temperature over time",
            "One above its peers at the same work: its heat sink or fan. All of them: the air.",
            [query(f"gpu:temperature:celsius{{{OF_NODE}}}", GPU)],
            unit="celsius",
            least=None,
        ),
        lines(
            "Margin to slowdown",
            "Degrees left until the hardware slows itself down. GPUHot comes below the line.",
            [
                query(f"gpu:temperature_margin:celsius{{{OF_NODE}}}", GPU),
                query("max(threshold:gpu_temperature_margin:celsius)", "alert"),
            ],
            unit="celsius",
            limits="B",
            least=None,
        ),
        lines(
            "Temperature of the memory",
            "HBM errs more above some 95 °C, and slows down.",
            [query(f"gpu:memory_temperature:celsius{{{OF_NODE}}}", GPU)],
            unit="celsius",
            least=None,
        ),
        history(
            "Why clocks are held down",
            "Reasons that the driver gives; idling left out. hw_thermal_slowdown: heat. sw_power_cap: it is"
            " at its power limit,"
            " which is normal at full work. hw_power_brake: the power supply. Empty when none holds.",
            [query(f'remediator_gpu_clocks_throttled{{reason!="gpu_idle"}} == 1 {ON_NODE}', "GPU {{gpu}} {{reason}}")],
            width=8,
            colors=steps((1, "orange")),
            words={"1": ("held down", "orange")},
            no_value="none",
        ),
        lines(
            "Power",
            "The dashed line is the limit in force: nobody gets above it.",
            [
                query(f"gpu:power:watts{{{OF_NODE}}}", GPU),
                query(f"gpu:power_limit:watts{{{OF_NODE}}}", f"limit of {GPU}"),
            ],
            width=12,
            unit="watt",
            limits="B",
        ),
        lines(
            "Power against the default limit",
            "Above the line for long is a GPU at full work. It matters where the rack is short of power or air.",
            [
                query(f"gpu:power:percent_of_default{{{OF_NODE}}}", GPU),
                query("max(threshold:gpu_power:percent_of_default)", "info"),
            ],
            width=12,
            unit="percent",
            limits="B",
        ),
        table(
            "Power limits",
            "requested is what was set, enforced what holds. Below default, somebody has capped it.",
            f"remediator_gpu_power_limit_watts {ON_NODE}",
            width=12,
            value="watts",
            unit="watt",
            hide=("UUID", "cluster", "hostname", "instance", "job", "model_name"),
        ),
        table(
            "Who set the power limit",
            "default: nobody. host: the engine (`remediator leases`) or a person, here. out_of_band: the BMC"
            " or the rack.",
            f"remediator_gpu_power_limit_origin == 1 {ON_NODE}",
            width=12,
            hide=("UUID", "cluster", "hostname", "instance", "job"),
        ),
    ]
    errors = [
        lines(
            "Mended memory errors within an hour",
            "ECC, single bits. Some are normal; many, again and again, are how it begins.",
            [
                query(f"gpu:ecc_correctable:increase1h{{{OF_NODE}}}", GPU),
                query("max(threshold:gpu_ecc_correctable:increase1h)", "alert"),
            ],
            limits="B",
        ),
        lines(
            "Memory errors not mended, within ten minutes",
            "Each lost data. Drain the GPU and reset it; collect the counters before: a reset clears them.",
            [query(f"gpu:ecc_uncorrectable:increase10m{{{OF_NODE}}}", GPU)],
        ),
        lines(
            "Memory errors since the driver was loaded",
            "By kind, as `remediator exporter` counts them.",
            [query(f"remediator_gpu_ecc_errors_total {ON_NODE}", "GPU {{gpu}} {{type}}")],
        ),
        history(
            "Rows of memory",
            "One waits for a reset to be remapped; one could not be remapped: replace the GPU.",
            [
                query(f"gpu:row_remap_pending:bool{{{OF_NODE}}}", f"{GPU} waits"),
                query(f"2 * gpu:row_remap_failure:bool{{{OF_NODE}}}", f"{GPU} failed"),
            ],
            width=8,
            colors=steps((1, "orange"), (2, "red")),
            words={"0": ("no", "green"), "1": ("waits", "orange"), "2": ("failed", "red")},
        ),
        lines(
            "Rows remapped in the GPU's life",
            "Few are normal. Rising: it wears out.",
            [query(f"remediator_gpu_remapped_rows {ON_NODE}", "GPU {{gpu}} {{type}}")],
        ),
        lines(
            "Xids",
            "New errors that the driver reports, by code, within five minutes: docs/gpu/xid.md. Empty when"
            " there is none.",
            [query(f"gpu:xid:count{{{OF_NODE}}}", "Xid {{err_code}}: GPU {{gpu}}")],
            as_bars=True,
            no_value="none",
        ),
        history(
            "What the driver wants done",
            "Its own verdict outweighs any table of Xids. Drain the GPU first.",
            [query(f"gpu:recovery_action:number{{{OF_NODE}}}", GPU)],
            width=12,
            colors=steps((1, "orange"), (2, "red")),
            words={
                "0": ("nothing", "green"),
                "1": ("reset", "orange"),
                "2": ("reboot", "red"),
                "3": ("drain P2P", "orange"),
                "4": ("drain and reset", "orange"),
            },
        ),
        history(
            "Exporters",
            "Red: it does not answer, and alerts on what only it knows are silent.",
            [query('gpu:exporter:up{cluster=~"$cluster",hostname="$hostname"}', "{{exporter}}")],
            width=6,
            colors=steps((1, "green"), below="red"),
            words={"1": ("answers", "green"), "0": ("silent", "red")},
        ),
        lines(
            "Age of samples",
            "Of `remediator exporter`. One GPU's rises: a call to the driver hangs.",
            [query(f"remediator_gpu_sample_age_seconds {ON_NODE}", GPU)],
            width=6,
            unit="s",
        ),
    ]
    return board(
        "remediator-gpu-node",
        "One host: every signal of each of its GPUs, and who is on them. See docs/gpu/.",
        [
            CLUSTER,
            variable("hostname", "Host", f"gpu:identity:info{{{OF_CLUSTER}}}, hostname", has_all=False),
            variable("gpu", "GPU", 'gpu:identity:info{cluster=~"$cluster",hostname="$hostname"}, gpu', has_all=True),
        ],
        [
            ("Now", now),
            ("Work", work),
            ("Memory and processes", memory),
            ("Heat and power", heat),
            ("Errors and exporters", errors),
            ("What the engine does", engine_row()),
        ],
    )


def job_board() -> Json:
    """One workload: how far it is, and what holds it back."""
    progress = f"workload:training_progress:ratio{{{OF_JOB}}}"
    now = [
        bars(
            "Progress",
            "Of the training, as the trainer says it. no data: it exports no training_progress_ratio.",
            [query(f"100 * max({progress})", "progress")],
            width=3,
            height=4,
            unit="percent",
            colors=steps(below="blue"),
            is_gauge=True,
            most=100,
            no_value="not told",
        ),
        stat(
            "Stage",
            "Limits follow it. not told: the limits of an unknown stage hold.",
            f"max(workload:training_stage:number{{{OF_JOB}}})",
            width=3,
            words={"1": ("early", "blue"), "2": ("middle", "blue"), "3": ("late", "purple")},
            no_value="not told",
        ),
        stat(
            "Memory limit now",
            "GPUMemoryHigh comes above it.",
            f'max(threshold:gpu_memory_used:percent{{{OF_JOB},severity="warning"}})',
            width=3,
            unit="percent",
            colors=steps(below="blue"),
        ),
        stat(
            "Memory of its fullest GPU",
            "Near the limit: a smaller batch, or a checkpoint before the next large one.",
            f"max(workload:gpu_memory_used:percent{{{OF_JOB}}})",
            width=3,
            unit="percent",
            decimals=1,
            colors=steps((85, "orange"), (95, "red")),
        ),
        stat(
            "Time to full",
            "Of its GPU that is full first, at the pace of now. Below 25 minutes: save a checkpoint and restart.",
            f"min(workload:gpu_memory_until_full:seconds{{{OF_JOB}}})",
            width=3,
            unit="s",
            colors=steps((1500, "orange"), (14400, "green"), below="red"),
            no_value="nothing grows",
        ),
        stat(
            "Imbalance now",
            "Busiest less idlest GPU, points of utilisation, means of five minutes. Below 5 is the goal. no"
            " data: one GPU.",
            f"max(workload:gpu_utilization_spread:percent{{{OF_JOB}}})",
            width=3,
            unit="percent",
            decimals=1,
            colors=steps((5, "orange"), (20, "red")),
        ),
        stat(
            "GPUs",
            "That work for it alone.",
            f"count(gpu:workload:info{{{OF_JOB}}})",
            width=3,
            colors=steps(below="blue"),
        ),
        stat(
            "Alerts that fire",
            "Warnings and critical ones that name this workload; the table below has them.",
            f"count({fires(f'{OF_JOB},{FAULT}')}) or 0 * count(gpu:workload:info{{{OF_JOB}}})",
            width=3,
            colors=steps((1, "orange")),
        ),
        table(
            "Its GPUs",
            "Where it runs: by host, pod and container.",
            f"gpu:workload:info{{{OF_JOB}}}",
            width=12,
            hide=("cluster", "workload", "training_job", "UUID"),
        ),
        table(
            "GPU alerts that fire",
            "Each has a page that says what to do (runbook_url in the alert). Severity info: to be seen, not"
            " to be mended.",
            fires(OF_JOB),
            width=12,
            hide=("alertstate", "cluster", "workload", "training_job", "exported_container", "threshold", "modelName"),
            no_value="none",
        ),
    ]
    work = [
        lines(
            "Progress over time",
            "A straight line. A step back: it was restarted from its last checkpoint. Flat: it hangs or evaluates.",
            [query(f"100 * {progress}", "progress")],
            unit="percent",
            most=100,
            no_value="not told",
        ),
        lines(
            "Utilisation by rank",
            "Each GPU. One lower than the others: they wait for it. All low: data, or the network.",
            [query(of_workload("gpu:utilization:percent"), HOST_GPU)],
            unit="percent",
            most=100,
            links=to_node(),
        ),
        lines(
            "Imbalance",
            "Busiest less idlest GPU, points, means of five minutes. Below 5 is the goal; GPUImbalance comes at 20.",
            [
                query(f"workload:gpu_utilization_spread:percent{{{OF_JOB}}}", "spread"),
                query('max(threshold:gpu_utilization_spread:percent{severity="warning"})', "alert"),
                query('max(threshold:gpu_utilization_spread:percent{severity="goal"})', "goal"),
            ],
            unit="percent",
            limits="B",
            goals="C",
        ),
        lines(
            "Multiprocessors at work, by rank",
            "A rank that spins in a kernel while it waits is busy and low here: the slow one is the one that is high.",
            [query(of_workload("gpu:sm_active:percent"), HOST_GPU)],
            unit="percent",
            most=100,
            links=to_node(),
        ),
        lines(
            "NVLink by rank",
            "Both directions. Nothing while it runs: it hangs, or does not use its links.",
            [query(of_workload("gpu:nvlink:bytes_per_second"), HOST_GPU)],
            unit="Bps",
            links=to_node(),
        ),
        lines(
            "NVLink against peers",
            "Of the median of its GPUs, while they compute. Below 30: a link is down or errs. no data: one"
            " GPU, or no NVLink.",
            [
                query(of_workload("gpu:nvlink:percent_of_peers"), HOST_GPU),
                query("max(threshold:gpu_nvlink:percent_of_peers)", "alert"),
            ],
            unit="percent",
            limits="B",
            links=to_node(),
        ),
    ]
    memory = [
        lines(
            "Memory in use by GPU, with the limit in force",
            "The limit follows the stage of the training: GPUMemoryHigh comes above it.",
            [
                query(of_workload("gpu:memory_used:percent"), HOST_GPU),
                query(f'max(threshold:gpu_memory_used:percent{{{OF_JOB},severity="warning"}})', "limit"),
            ],
            unit="percent",
            limits="B",
            most=100,
            links=to_node(),
        ),
        lines(
            "Memory growth by GPU",
            "What it grows by and does not give back. A leak is steady: find the rank, then what it keeps.",
            [query(f"workload:gpu_memory_growth:mib_per_hour{{{OF_JOB}}}", HOST_GPU)],
            unit=MIB_PER_HOUR,
            least=None,
            links=to_node(),
        ),
        lines(
            "Growth by process, and how sure it is",
            "From `remediator exporter`: growth, and the two ends of its 95 % interval. It leaks when the"
            " lower end is well above 0.",
            [
                query(of_process(f"{GROWTH} * {PER_HOUR}"), PROCESS),
                query(of_process(f"({GROWTH} + {UNCERTAINTY}) * {PER_HOUR}"), f"{PROCESS} at most"),
                query(of_process(f"({GROWTH} - {UNCERTAINTY}) * {PER_HOUR}"), f"{PROCESS} at least"),
            ],
            unit=MIB_PER_HOUR,
            limits="BC",
            least=None,
        ),
        lines(
            "Time to full by GPU",
            "At the pace of now. Below 25 minutes: GPUMemoryOOMSoon. Empty when nothing grows.",
            [query(f"workload:gpu_memory_until_full:seconds{{{OF_JOB}}}", HOST_GPU)],
            width=12,
            unit="s",
            no_value="nothing grows",
            links=to_node(),
        ),
        lines(
            "Memory by process",
            "Each process of it. Two on one GPU: one was left behind.",
            [query(of_process("remediator_gpu_process_memory_used_bytes"), PROCESS)],
            width=12,
            unit="bytes",
        ),
    ]
    heat = [
        lines(
            "Temperature by GPU",
            "One above its peers slows all of them once it is throttled.",
            [query(of_workload("gpu:temperature:celsius"), HOST_GPU)],
            unit="celsius",
            least=None,
            links=to_node(),
        ),
        lines(
            "Margin to slowdown",
            "Degrees left until the hardware slows itself down. GPUHot comes below the line.",
            [
                query(of_workload("gpu:temperature_margin:celsius"), HOST_GPU),
                query("max(threshold:gpu_temperature_margin:celsius)", "alert"),
            ],
            unit="celsius",
            limits="B",
            least=None,
            links=to_node(),
        ),
        lines(
            "Power by GPU",
            "One capped below the others keeps them waiting: its dashed limit is lower.",
            [
                query(of_workload("gpu:power:watts"), HOST_GPU),
                query(of_workload("gpu:power_limit:watts"), f"limit of {HOST_GPU}"),
            ],
            unit="watt",
            limits="B",
            links=to_node(),
        ),
    ]
    return board(
        "remediator-gpu-job",
        "One workload: how far it is, and what holds it back. See docs/gpu/.",
        [
            CLUSTER,
            variable("workload", "Job", f'gpu:workload:info{{{OF_CLUSTER},workload!=""}}, workload', has_all=False),
        ],
        [
            ("Now", now),
            ("Work", work),
            ("Memory", memory),
            ("Heat and power", heat),
            ("What the engine does", engine_row()),
        ],
    )


BOARDS = {"gpu-cluster.json": cluster_board, "gpu-node.json": node_board, "gpu-job.json": job_board}


def text(node: Any, indent: str = "") -> str:
    """JSON with what is short on one line, so that a change of a panel is a change of few lines."""
    line = json.dumps(node, ensure_ascii=False)
    if not isinstance(node, dict | list) or len(indent) + len(line) <= 140:
        return line
    inner = indent + "  "
    if isinstance(node, list):
        return "[\n" + ",\n".join(inner + text(one, inner) for one in node) + f"\n{indent}]"
    pairs = (f"{inner}{json.dumps(key)}: {text(value, inner)}" for key, value in node.items())
    return "{\n" + ",\n".join(pairs) + f"\n{indent}}}"


def main() -> None:
    """Write the three files."""
    for name, make in BOARDS.items():
        (Path(__file__).parent / name).write_text(text(make()) + "\n", "utf-8")


if __name__ == "__main__":
    main()
