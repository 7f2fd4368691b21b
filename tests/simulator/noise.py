"""Randomness that can be asked at any time: the same seed, name and tick give the same number, in any order.

A key and times → numbers. Nothing is drawn from a stream, so that a page served live and a history written in one go
agree.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.floating[Any]]
"""Seconds since the scenario's start."""

Values = NDArray[np.floating[Any]]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def key(*names: object) -> np.uint64:
    """A key of its own for each sequence of names."""
    text = "\0".join(str(name) for name in names)
    return np.uint64(int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big"))


def uniform(of: np.uint64, ticks: NDArray[np.int64] | Times) -> Values:
    """A number in [0, 1) for each whole tick. Source: splitmix64 (Steele, Lea, Flood 2014) of a counter."""
    z = np.atleast_1d(np.asarray(ticks)).astype(np.int64).view(np.uint64) * _GOLDEN + of
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53


def grain(of: np.uint64, times: Times, every_s: float) -> Values:
    """White noise in [-1, 1), new each ``every_s``."""
    return 2 * uniform(of, np.floor(times / every_s)) - 1


def drift(of: np.uint64, times: Times, every_s: float) -> Values:
    """Smooth noise in [-1, 1), which turns about each ``every_s``."""
    tick = np.floor(times / every_s)
    part = times / every_s - tick
    weight = part * part * (3 - 2 * part)
    before, after = uniform(of, tick), uniform(of, tick + 1)
    return 2 * (before + (after - before) * weight) - 1


def one(of: np.uint64) -> float:
    """One number in [0, 1) of this key."""
    return float(uniform(of, np.zeros(1))[0])
