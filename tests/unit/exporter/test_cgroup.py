"""Which container a process is in: every row of tests/data/cgroups.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from remediator.exporter.cgroup import Place, place_of

TABLE = YAML(typ="safe").load(Path(__file__).parents[2] / "data" / "cgroups.yaml")
UID = "2c48913c-b29f-41e7-9350-020968147796"
WORDS = {
    "{a63}": "a1" * 31 + "a",
    "{a}": "a1" * 32,
    "{b}": "b2" * 32,
    "{u_}": UID.replace("-", "_"),
    "{u}": UID,
}


def written_out(text: str) -> str:
    for short, long in WORDS.items():
        text = text.replace(short, long)
    return text


def rows() -> list[Any]:
    return [pytest.param(row, id=f"{part}: {row['id']}") for part, table in TABLE.items() for row in table]


@pytest.mark.parametrize("row", rows())
def test_place_of_when_the_kernel_says_so_then_is_this(row: dict[str, str]) -> None:
    container_id = written_out(row.get("container", ""))
    pod_uid = written_out(row.get("pod", ""))
    place = Place(container_id=container_id, pod_uid=pod_uid) if container_id else None
    assert place_of(written_out(row["cgroup"])) == place


PIECES = ["0::/", "/", "\n", " (deleted)", "a1" * 32, "docker-", ".scope", "default", "pod", UID, ".slice", "x", ":"]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_place_of_when_it_is_any_text_then_is_an_id_of_it_or_none(cgroups: str) -> None:
    place = place_of(cgroups)
    assert place is None or (place.container_id and place.container_id in cgroups)
