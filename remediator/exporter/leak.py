"""Whether a process's GPU memory leaks: the slope of the lower envelope of what it uses, and how sure that is.

Takes samples of one process on one device → gives its ``Growth``. Pure: the time is given. It must never call healthy
what it cannot tell from a leak yet, nor the other way round: until it can tell, nothing leaks. It keeps a constant
amount per process, whatever the interval and the uptime.

How (docs/decisions/0024): time is cut into buckets, and of each the least and the most used is kept, in levels of
doubling width: 20 buckets of 30 s (10 minutes), of 60 s, … of 128 minutes (43 hours). The minima are the envelope:
what a batch takes and gives back within a bucket is not in it. Each level fits a line when one of its buckets is
full, and says whether it rose steadily. A level longer than the longest tooth (an hour) may call it a leak by itself.
A shorter one cannot tell a leak from the rise of a tooth, so it may only where that is ruled out: the memory is above
all that it took in the hour before, or it would be full before a tooth could end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

MIB = 1 << 20

_N_BUCKETS = 20
"""Of one level: enough for a line with an error, few enough to work out the slopes between all of them."""
_N_NEEDED = 13
"""Of them with a sample in: an exporter that was away, or samples too slowly for this width, cannot say."""
_FIRST_WIDTH_S = 30.0
"""Six samples at the usual 5 s: the least number whose minimum is an envelope."""
_N_LEVELS = 9
"""10 minutes to 43 hours: in a day and a half 0.05 GB/h shows above 100 MiB of noise."""

_LONGEST_TOOTH_S = 3600.0
"""The longest period of what is taken and given back that is not called a leak."""
_HISTORY_LEVEL = 4
"""Of 8-minute buckets: their 160 minutes hold the hour before a window of 40."""
_N_HISTORY = 9
"""Its buckets before a window that must be known: 72 minutes, the longest tooth and a bit."""
_FIRST_LONG_LEVEL = 3
"""Of 4-minute buckets: their 80 minutes are longer than the longest tooth."""
_FIRST_CALM_LEVEL = 1
"""20 minutes: an evaluation that builds up its memory for 10 is no leak."""
_URGENT_S = 30 * 60.0
"""Full sooner than this is called without waiting for an hour: 15 minutes for the alert to come, 15 to act on it."""

_LEAST_GAIN_BYTES = 64 * MIB
"""In one window. Three of the 20 MiB segments that caching allocators take: with fewer, one odd batch is a slope."""
_LEAST_GAIN_OF_TEETH = 0.03
"""And of the window's largest fall: where a sample hits the bottom of a tooth is chance, of about this share."""
_GRANULE_BYTES = 2 * MIB
"""What the driver hands out at a time: no slope is known better than one of them in a window."""
_SURENESS = 2.0
"""The slope must be so many times its uncertainty, which is two standard errors already: many windows are looked at."""
_LARGEST_STEP = 0.35
"""Of the gain: what one bucket may add. A step, or two or three of them, is no slope."""
_LEAST_QUARTER = 0.45
"""Of the largest quarter's gain: what each quarter of the window must gain. A tooth of up to an hour leaves the first
quarter of 80 minutes flat; what has ended leaves the last."""
_N_SUPPORTS = 6
"""Lows that the envelope rests on. Chance gives it 3 or 4 of 20, and a line through so few says nothing."""
_LEAST_LATE = 0.8
"""Slope of the later half over that of the earlier: what flattens below this is warming up."""
_STEADY = ("",)
_RISING = ("", "flattens", "uneven")
"""Shapes that are enough where it is urgent, from a long level: whatever takes an hour must fit, and this does not."""
_N_HELD = 3
"""Buckets for which a window must have been so, and for which it may then be otherwise: chance is over sooner."""
_BASE_LONG, _BASE_CALM, _BASE_URGENT = 0.5, 1.0, 7.0
"""Used at the window's start, over the gain: what multiplies within a window is being loaded. Even loads are told for
1.5 windows (2 hours) by the long levels, and where it is urgent for 8 (70 minutes and more)."""
_MOST_DIPS = 3
"""In a window: falls of one or two buckets, after which the memory is back where it was (an evaluation that gives back
its cache). More of them are teeth, or noise, and are no exceptions."""
_NEW_GROUND = 1.5
"""How far above its earlier maximum the memory must be, over the largest fall that it made before: teeth differ."""
_CALM = 0.9
"""The hour before a short window must have grown more slowly than this share of its slope: else it slows down (a
warm-up), or has gone on for so long that a long level knows."""
_EASE = 0.7
"""What is called a leak stays one while it meets this share of what it took to become one: or it would come and go."""
_STOPPED = 0.5
"""A slope that even at its upper end is below this share of a longer level's says: that was so, and has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How the memory of a process grows.

    Attributes:
        bytes_per_second: slope of the lower envelope, negative when it shrinks. Of the shortest window that says leak;
            where none does, of 80 minutes, or as long as it has been seen.
        uncertainty_bytes_per_second: half the width of its 95 % confidence interval.
        is_leaking: it grew significantly, steadily, by enough and for long enough.
        seconds_until_full: until what is free at the tops of its teeth is used up, at the upper end of the interval
            (rather too early than too late); None while it does not leak, or nobody knows what is free.
    """

    bytes_per_second: float
    uncertainty_bytes_per_second: float
    is_leaking: bool
    seconds_until_full: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trend:
    """The line through one level's window.

    Attributes:
        bytes_per_s, uncertainty: as in ``Growth``.
        shape: "" = it rose as a leak does; else why it did not, for tests and people.
        late_bytes_per_s: of its later half, or of its last quarter if that is less.
        first_bytes, last_bytes: of the envelope.
    """

    bytes_per_s: float
    uncertainty: float
    shape: str
    late_bytes_per_s: float
    first_bytes: int
    last_bytes: int

    @property
    def base(self) -> float:
        """What was used at the start, over the gain; 0 without one."""
        gain = self.last_bytes - self.first_bytes
        return self.first_bytes / gain if gain else 0.0


@dataclass(frozen=True, slots=True)
class Bucket:
    """The least and the most used in one bucket, the ``index``th since the watch began."""

    index: int
    least: int
    most: int


class _Held:
    """What holds once it was so for some buckets running, until it was not so for as many.

    Attributes:
        trend: the newest that was so; None = it does not hold.
    """

    __slots__ = ("_strength", "trend")

    def __init__(self) -> None:
        self._strength = 0
        self.trend: _Trend | None = None

    def look(self, trend: _Trend | None, shapes: Sequence[str]) -> None:
        """Take in the newest trend, which is so if it has one of these shapes."""
        if trend is not None and trend.shape in shapes:
            self._strength = min(self._strength + 1, _N_HELD)
            if self._strength == _N_HELD:
                self.trend = trend
        elif self.trend is None or self._strength == 1:
            self._strength, self.trend = 0, None
        else:
            self._strength -= 1


class _Level:
    """Buckets of one width: the full ones of a window, the one that is being filled, and what the window says."""

    __slots__ = (
        "filling",
        "full",
        "is_long",
        "is_new_ground",
        "rising",
        "steady",
        "trend",
        "uppers",
        "was_calm",
        "width_s",
        "window_s",
    )

    def __init__(self, width_s: float) -> None:
        self.width_s = width_s
        self.window_s = width_s * _N_BUCKETS
        self.is_long = self.window_s > _LONGEST_TOOTH_S
        self.full: deque[Bucket] = deque(maxlen=_N_BUCKETS)
        self.filling: Bucket | None = None
        self.trend: _Trend | None = None
        self.steady, self.rising = _Held(), _Held()
        self.uppers: deque[float] = deque(maxlen=_N_HELD)
        self.is_new_ground = self.was_calm = False

    def put(self, bucket: Bucket) -> Bucket | None:
        """Take in a bucket of this width, or a part of one; give the one before it if that is full now."""
        before = self.filling
        if before is not None and before.index == bucket.index:
            self.filling = Bucket(bucket.index, min(before.least, bucket.least), max(before.most, bucket.most))
            return None
        self.filling = bucket
        return self._close(before)

    def end(self, index: int) -> Bucket | None:
        """The bucket of this index if it is the one being filled: nothing more will come into it."""
        if self.filling is None or self.filling.index != index:
            return None
        before, self.filling = self.filling, None
        return self._close(before)

    def _close(self, bucket: Bucket | None) -> Bucket | None:
        if bucket is not None:
            self.full.append(bucket)
        return bucket

    def window(self) -> list[Bucket]:
        """The full buckets of the last window; those that a gap has made older are out."""
        newest = self.full[-1].index
        return [bucket for bucket in self.full if bucket.index > newest - _N_BUCKETS]

    def judge(self, history: _Level) -> None:
        """Fit the line anew."""
        window = self.window()
        self.trend = fit(window, self.width_s, _EASE if self.steady.trend else 1.0)
        self.is_new_ground = self.was_calm = False
        if self.trend is not None:
            self.uppers.append(self.trend.bytes_per_s + self.trend.uncertainty)
        self.steady.look(self.trend, _STEADY)
        self.rising.look(self.trend, _RISING)
        if self.trend is not None and not self.is_long:
            self._compare(self.trend, history)

    def _compare(self, trend: _Trend, history: _Level) -> None:
        """Whether all that was used in the hour before the window, tops of teeth included, is left behind."""
        start_s = (self.full[-1].index + 1) * self.width_s - self.window_s
        last = int(start_s // history.width_s)
        before = [bucket for bucket in history.full if last - _N_HISTORY <= bucket.index < last]
        most = max((bucket.most for bucket in before), default=0)
        rose = min(trend.last_bytes - most, trend.bytes_per_s * self.window_s)  # by the line: a step is no rise
        self.is_new_ground = rose >= max(_LEAST_GAIN_BYTES, _NEW_GROUND * _largest_fall(before))
        if len(before) == _N_HISTORY:
            grew = (before[-1].least - before[0].least) / (history.width_s * (_N_HISTORY - 1))
            self.was_calm = grew < _CALM * trend.bytes_per_s


class GrowthWatch:
    """Watches the memory of one process on one device. A process that starts anew gets a new watch."""

    __slots__ = ("_levels", "_newest_bytes", "_newest_s", "_origin_s")

    def __init__(self) -> None:
        self._levels = tuple(_Level(_FIRST_WIDTH_S * 2**n) for n in range(_N_LEVELS))
        self._origin_s: float | None = None
        self._newest_s = 0.0
        self._newest_bytes = 0

    def add(self, at_s: float, used_bytes: int) -> None:
        """Take in one sample.

        Args:
            at_s: of a clock that never goes back; what lies before an earlier sample is left out.
            used_bytes: by this process on this device.
        """
        if self._origin_s is None:
            self._origin_s = self._newest_s = at_s
        if at_s < self._newest_s:
            return
        self._newest_s, self._newest_bytes = at_s, used_bytes
        index = int((at_s - self._origin_s) // _FIRST_WIDTH_S)
        filled = self._levels[0].put(Bucket(index, used_bytes, used_bytes))
        if filled is not None:
            self._carry(filled)

    def _carry(self, filled: Bucket) -> None:
        """A bucket of the first level is full: take it into the wider ones, and judge each level where it fills one."""
        history = self._levels[_HISTORY_LEVEL]
        to_judge = [self._levels[0]]
        carried = [filled]
        for level in self._levels[1:]:
            done: list[Bucket] = []
            for part in carried:
                index = part.index // 2
                done += [b for b in (level.put(Bucket(index, part.least, part.most)),) if b is not None]
                if part.index % 2:  # its second half: what comes next is the next one's
                    done += [b for b in (level.end(index),) if b is not None]
            if not done:
                break
            to_judge.append(level)
            carried = done
        for level in to_judge:
            level.judge(history)

    def growth(self, at_s: float, free_bytes: int | None) -> Growth | None:
        """How it grows now; None: seen too shortly to say, or not seen for a whole first window.

        Args:
            at_s: now, of the same clock.
            free_bytes: of the device, at the newest sample; None where nobody knows.
        """
        if at_s - self._newest_s > self._levels[0].window_s:
            return None
        if free_bytes is not None:
            free_bytes -= self._most() - self._newest_bytes
        leaking = next((trend for level in self._levels if (trend := self._leak(level, free_bytes))), None)
        trend = leaking or self._usual_trend()
        if trend is None:
            return None
        full_in_s = None
        if leaking and free_bytes is not None:
            full_in_s = max(0, free_bytes) / (leaking.bytes_per_s + leaking.uncertainty)
        return Growth(
            bytes_per_second=trend.bytes_per_s,
            uncertainty_bytes_per_second=trend.uncertainty,
            is_leaking=leaking is not None,
            seconds_until_full=full_in_s,
        )

    def _most(self) -> int:
        """Used within 80 minutes: memory is full when the tops of the teeth, or an evaluation, meet its end."""
        recent = self._levels[: _FIRST_LONG_LEVEL + 1]
        buckets = (bucket for level in recent for bucket in (*level.full, level.filling) if bucket is not None)
        return max((bucket.most for bucket in buckets), default=self._newest_bytes)

    def _leak(self, level: _Level, free_bytes: int | None) -> _Trend | None:
        """The trend by which this level calls it a leak."""
        rising, steady = level.rising.trend, level.steady.trend
        is_urgent = bool(rising and free_bytes is not None and free_bytes < rising.late_bytes_per_s * _URGENT_S)
        if level.is_long:
            if rising and is_urgent and rising.base >= _BASE_LONG:
                return rising
            return steady if steady and not self._has_stopped(level, steady) else None
        if steady is None or not level.is_new_ground:
            return None
        is_after_calm = level.was_calm and level.width_s >= self._levels[_FIRST_CALM_LEVEL].width_s
        if (is_urgent and steady.base >= _BASE_URGENT) or (is_after_calm and steady.base >= _BASE_CALM):
            return steady
        return None

    def _has_stopped(self, level: _Level, trend: _Trend) -> bool:
        """Whether a shorter level, long enough for all teeth, has said for some buckets that the growth has ended."""
        return any(
            len(shorter.uppers) == _N_HELD and max(shorter.uppers) < _STOPPED * trend.bytes_per_s
            for shorter in self._levels
            if shorter.is_long and shorter.width_s < level.width_s
        )

    def _usual_trend(self) -> _Trend | None:
        """Of the shortest long level, or of the longest that has one."""
        found = None
        for level in self._levels:
            if level.trend is not None:
                found = level.trend
                if level.is_long:
                    break
        return found


def fit(window: Sequence[Bucket], width_s: float, ease: float = 1.0) -> _Trend | None:
    """The line through the lower envelope: Theil and Sen's slope, which a few odd buckets do not move.

    The uncertainty is two standard errors of a least squares slope with the residuals about that line, widened by
    their autocorrelation: neighbouring buckets share segments and teeth, and are fewer observations than they look.

    Args:
        window: its buckets, by index; some may be missing.
        width_s: of a bucket.
        ease: 1 to become a leak, less to stay one.

    Returns:
        None where too few buckets, or too short a part of the window, were seen.
    """
    if len(window) < _N_NEEDED or window[-1].index - window[0].index < _N_BUCKETS - 2:
        return None
    at, used, n_supports = _envelope(_without_dips([(bucket.index, bucket.least) for bucket in window]))
    slope = _median_slope(at, used)
    residuals = [least - used[0] - slope * (when - at[0]) for when, least in zip(at, used, strict=True)]
    centre = sum(residuals) / len(residuals)
    residuals = [residual - centre for residual in residuals]
    squares = sum(residual * residual for residual in residuals)
    mean_at = sum(at) / len(at)
    spread = sum((when - mean_at) ** 2 for when in at)
    lag = sum(a * b for a, b in pairwise(residuals)) / squares if squares else 0.0
    lag = min(max(lag, 0.0), 0.8)  # beyond that so few points cannot tell it from a trend
    error = 2 * (squares / (len(at) - 2) / spread * (1 + lag) / (1 - lag)) ** 0.5
    uncertainty = max(error, _GRANULE_BYTES / _N_BUCKETS)
    least_gain = max(_LEAST_GAIN_BYTES, _LEAST_GAIN_OF_TEETH * _largest_fall(window))
    half, late = len(at) // 2, 0.0
    if used[-1] - used[0] < ease * least_gain:
        why = "too little"
    elif slope < ease * _SURENESS * uncertainty or n_supports < ease * _N_SUPPORTS:
        why = "not sure"
    else:
        late = _median_slope(at[half:], used[half:])
        flattens = late < ease * _LEAST_LATE * _median_slope(at[:half], used[:half])
        why = "flattens" if flattens else _why_uneven(used, ease)
    return _Trend(
        bytes_per_s=slope / width_s,
        uncertainty=uncertainty / width_s,
        shape=why,
        late_bytes_per_s=min(late, (used[-1] - used[-1 - half // 2]) / (at[-1] - at[-1 - half // 2])) / width_s,
        first_bytes=used[0],
        last_bytes=used[-1],
    )


def _envelope(lows: Sequence[tuple[int, int]]) -> tuple[list[int], list[int], int]:
    """When, what the process never went below from then on (what it does not give back), and how many lows are that.

    Teeth, dips and pauses of any length are below it, but for the last: while that one still rises, its rise is kept
    by nothing yet. So the envelope ends at the last low, where there is one in the last third of the window.
    """
    for end in range(len(lows) - 1, _N_NEEDED - 1, -1):
        if lows[end][1] < lows[end - 1][1]:
            lows = lows[: end + 1]
            break
    at, used = [index for index, _ in lows], [least for _, least in lows]
    for i in range(len(used) - 2, -1, -1):
        used[i] = min(used[i], used[i + 1])
    return at, used, sum(envelope == least for envelope, (_, least) in zip(used, lows, strict=True))


def _without_dips(lows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Without short falls after which all is as it was, where they are few."""
    dips: list[int] = []
    n_dips = 0
    i = 1
    while i < len(lows) - 1:
        before = lows[i - 1][1]
        ends = next((end for end in (i + 1, i + 2) if end < len(lows) and lows[end][1] >= before), None)
        if lows[i][1] < before and ends is not None:
            n_dips += 1
            dips += range(i, ends)
            i = ends
        i += 1
    return lows if n_dips > _MOST_DIPS else [low for i, low in enumerate(lows) if i not in dips]


def _why_uneven(used: list[int], ease: float) -> str:
    """Say "" when an envelope rose evenly, from the first to the last, and from what was held before."""
    gain = used[-1] - used[0]
    if ease * max(after - before for before, after in pairwise(used)) > _LARGEST_STEP * gain:
        return "a step"
    marks = [used[round(n * (len(used) - 1) / 4)] for n in range(5)]
    quarters = [after - before for before, after in pairwise(marks)]
    if min(quarters) < ease * _LEAST_QUARTER * max(quarters):
        return "uneven"
    if used[0] < _BASE_LONG * gain:
        return "is being loaded"
    return ""


def _largest_fall(buckets: Sequence[Bucket]) -> int:
    """From the most used in any bucket to the least in a later one: how tall its teeth are."""
    most = buckets[0].most if buckets else 0
    fall = 0
    for bucket in buckets[1:]:  # within one, nobody knows which came first
        fall = max(fall, most - bucket.least)
        most = max(most, bucket.most)
    return fall


def _median_slope(at: Sequence[int], used: Sequence[int]) -> float:
    """Theil and Sen's: the median of the slopes between all pairs; of what never falls."""
    if used[0] == used[-1]:  # it never falls, so it is flat; most are
        return 0.0
    return median((used[j] - used[i]) / (at[j] - at[i]) for i in range(len(at)) for j in range(i + 1, len(at)))
