"""Which container a process is in, by its control groups.

``/proc/PID/cgroup`` → the container's id, and the pod's uid where the path tells it. Pure. Never a guess: a path that
looks like no container's is none's.

Of containers within containers (Docker in Docker, kind, systemd in a container) the outermost counts: it is the one
that this host's engine knows by name and can restart. A pod is named above its container in the path, so what stands
below the first container belongs to an engine inside of it and is not looked at.

Source: cgroups(7), "/proc/[pid]/cgroup"; how kubelet names its groups (pkg/kubelet/cm, cgroupfs and systemd driver) and
each engine its scopes (Docker, containerd's CRI plugin and ctr, CRI-O, Podman, nerdctl).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_CONTAINER: Final = re.compile(r"(?:([a-z][a-z-]*)-)?([0-9a-f]{64})(?:\.scope)?")
"""``<id>``, ``docker-<id>.scope``, ``crio-<id>``: whatever engine, its ids are 64 hex digits."""

_POD: Final = re.compile(
    r"(?:[a-z][a-z-]*-)?pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?"
)
"""A slice cannot have a dash in a uid, so kubelet writes ``_``. A static pod's uid is a hash without either."""

_CTR_TASK: Final = re.compile(r"/default/([A-Za-z0-9][A-Za-z0-9_.-]{0,75})(?:/.*)?")
"""Plain ``ctr run``: containerd's namespace and an id that a person chose. Of its other namespaces only ids of 64 hex
digits are taken: ``/<word>/<word>`` may be anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a process runs.

    Attributes:
        container_id: 64 hex digits; of a plain ``ctr`` task the name that a person gave.
        pod_uid: with dashes, as the API server writes it (a static pod's: 32 hex digits); "" = the path tells none.
    """

    container_id: str
    pod_uid: str = ""


def place_of(cgroups: str) -> Place | None:
    """The container that a process is in.

    Args:
        cgroups: content of its ``/proc/PID/cgroup``: one line (version 2), one per hierarchy (version 1), or both.

    Returns:
        None for a process of the host, and where the hierarchies name different containers.
    """
    paths = (line.split(":", 2)[2] for line in cgroups.splitlines() if line.count(":") >= 2)
    # That a hierarchy names none is normal: with version 1 an engine need not use them all.
    places = {place for place in map(_place, paths) if place is not None}
    if len({place.container_id for place in places}) != 1:
        return None
    return max(places, key=lambda place: place.pod_uid)


def _place(path: str) -> Place | None:
    path = path.removesuffix(" (deleted)")
    if task := _CTR_TASK.fullmatch(path):
        return Place(container_id=task[1])
    pod_uid = above = ""
    # A colon parts slice, engine and id where an engine was given systemd's names and made folders of them.
    for part in re.split("[/:]", path):
        if pod := _POD.fullmatch(part):
            pod_uid = pod[1].replace("_", "-")
        elif container := _CONTAINER.fullmatch(part):
            engine, container_id = container.groups("")
            # A container's monitor is no part of it. Podman without systemd: a group of 64 digits for its own pods.
            if engine.endswith("conmon") or (above == "libpod_parent" and not engine):
                above = part
                continue
            return Place(container_id=container_id, pod_uid=pod_uid)
        above = part
    return None
