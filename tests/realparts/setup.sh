#!/usr/bin/env bash
# Puts on this machine what the project's make targets need, and nothing that is there already.
#
#   setup.sh python   .venv with the project and its development tools, at the versions of constraints.txt
#   setup.sh parts    the real parts of the demo too: Docker engine, Prometheus, Alertmanager, busybox
#   setup.sh tests    what only the tests want, too: strace (is every answer synced?), haproxy (the Docker socket proxy), faketime
#                     (a clock that jumps), curl and sqlite3 (commands that the pages in docs/ show), and a C compiler (the GPU
#                     driver without a GPU)
#   setup.sh lock     constraints.txt anew: the newest versions that fit pyproject.toml, without index addresses
#
# As root on a Debian-like machine both install Debian packages where something is missing; anybody else is told what
# is missing and how to get it. No service is started, and none that was running is touched.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."

die() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

# The apt packages given, with nothing started: Debian starts a daemon as soon as it is unpacked, which here would take
# the ports of a Prometheus or a Docker engine that the user runs himself.
apt_install() {
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        die "missing: $*" "install them (Debian, Ubuntu: sudo apt-get install --no-install-recommends $*), then run make again"
    fi
    echo "setup: installing $*"
    local guard=/usr/sbin/policy-rc.d units_before
    if [ ! -e "$guard" ]; then
        # shellcheck disable=SC2064  # the path is meant as it is now
        trap "rm -f '$guard'" EXIT
        printf '#!/bin/sh\nexit 101\n' >"$guard"
        chmod 755 "$guard"
    elif ! grep -q 'exit 101' "$guard"; then
        die "$guard is there and may let packages start daemons" \
            "install them by yourself (apt-get install --no-install-recommends $*), then run make again"
    fi
    units_before=" $(known_units) "
    export DEBIAN_FRONTEND=noninteractive
    apt-get -q -o DPkg::Lock::Timeout=300 update
    apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@"
    # Nor at the next boot, where we brought the service in.
    local unit
    for unit in $(known_units); do
        case "$units_before" in *" $unit "*) continue ;; esac
        systemctl disable "$unit" 2>/dev/null || true
        echo "setup: $unit is installed but disabled; systemctl enable --now $unit starts it"
    done
}

known_units() {
    local unit
    for unit in docker.socket docker.service containerd.service prometheus.service prometheus-alertmanager.service \
        haproxy.service; do
        if command -v systemctl >/dev/null && [ -e "/lib/systemd/system/$unit" ]; then printf '%s ' "$unit"; fi
    done
}

# The first Python that is new enough and can make an environment. pyenv leaves shims that only fail, and Debian's
# python3 has no ensurepip without python3-venv: so each is asked.
find_python() {
    local python
    for python in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11; do
        if "$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            command -v "$python"
            return
        fi
    done
    return 1
}

# What .venv was made from. The folder is in it because an environment cannot be moved.
fingerprint() {
    printf '%s\n' "$PWD"
    sha256sum pyproject.toml constraints.txt
}

set_up_python() {
    local stamp=.venv/.made-from python
    # One at a time: two makes at once would both write into .venv.
    exec 9<pyproject.toml
    flock 9
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(fingerprint)" ]; then return; fi
    if ! .venv/bin/python -c 'import pip' >/dev/null 2>&1; then
        if ! python=$(find_python); then
            apt_install python3 python3-venv
            python=$(find_python) || die "no Python 3.11 or newer found; install one and run: make PYTHON=/path/to/python3"
        fi
        echo "setup: making .venv with $python"
        "$python" -m venv --clear .venv
    fi
    echo "setup: installing the project and its development tools into .venv"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
    fingerprint >"$stamp"
}

engine_answers() {
    local engine=${REMEDIATOR_TEST_DOCKER_HOST:-${DOCKER_HOST:-unix:///var/run/docker.sock}}
    DOCKER_HOST=$engine .venv/bin/python -c 'import docker; docker.from_env(timeout=5).ping()' >/dev/null 2>&1
}

# The image of the tests is one busybox without libraries.
static_busybox() {
    local busybox
    busybox=$(command -v busybox) && ! ldd "$busybox" >/dev/null 2>&1
}

# A compiler without the C library's headers compiles nothing: Debian's gcc only recommends them.
can_compile() {
    echo '#include <stdio.h>' | gcc -x c -fsyntax-only - >/dev/null 2>&1
}

set_up_parts() {
    local missing=() tool
    export PATH="$PATH:/usr/sbin:/sbin"
    # Root starts a Docker engine of its own; anybody else needs one that answers.
    if [ "$(id -u)" -eq 0 ]; then
        command -v dockerd >/dev/null || engine_answers || missing+=(docker.io)
    elif ! engine_answers; then
        die "no Docker engine answers here" "run make as root, which starts a private one; or name one that you may use:" \
            "DOCKER_HOST=unix:///… for make demo, REMEDIATOR_TEST_DOCKER_HOST=unix:///… for make test"
    fi
    static_busybox || missing+=(busybox-static)
    { command -v prometheus && command -v promtool; } >/dev/null || missing+=(prometheus)
    { command -v prometheus-alertmanager && command -v amtool; } >/dev/null || missing+=(prometheus-alertmanager)
    for tool in "$@"; do
        if [ "$tool" = gcc ]; then
            can_compile || missing+=(gcc libc6-dev)
        else
            command -v "$tool" >/dev/null || missing+=("$tool")
        fi
    done
    if [ ${#missing[@]} -gt 0 ]; then apt_install "${missing[@]}"; fi
}

lock() {
    local scratch python
    python=$(find_python) || die "no Python 3.11 or newer found"
    scratch=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "rm -rf '$scratch'" EXIT
    "$python" -m venv "$scratch/venv"
    "$scratch/venv/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[dev]'
    "$scratch/venv/bin/python" -m pip freeze --exclude-editable >"$scratch/constraints.txt"
    mv "$scratch/constraints.txt" constraints.txt
}

case "${1:-}" in
python) set_up_python ;;
parts)
    set_up_python
    set_up_parts
    ;;
tests)
    set_up_python
    set_up_parts strace haproxy faketime curl sqlite3 gcc
    ;;
lock) lock ;;
*) die "usage: setup.sh python|parts|tests|lock" ;;
esac
