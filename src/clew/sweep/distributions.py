"""Student's t without scipy: tail, quantile, and the power of a paired test.

scipy takes a third of a second to import, and these three functions are all that a sweep needs of it. The tests hold
them against scipy.
"""

import math
from functools import lru_cache
from statistics import NormalDist

NORMAL = NormalDist()
_TINY = 1e-300


def beta_inc(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _fraction(a, b, x) / a
    return 1.0 - front * _fraction(b, a, 1.0 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > _TINY else _TINY)
    made = d
    for m in range(1, 500):
        for top in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1.0 + top * d, 1.0 + top / c
            d = 1.0 / (d if abs(d) > _TINY else _TINY)
            c = c if abs(c) > _TINY else _TINY
            made *= d * c
        if abs(d * c - 1.0) < 1e-16:
            break
    return made


def t_two_sided(t: float, df: float) -> float:
    """The chance of a t at least this far from zero."""
    if math.isnan(t) or df <= 0:
        return math.nan
    if math.isinf(t):
        return 0.0
    return beta_inc(df / 2.0, 0.5, df / (df + t * t))


@lru_cache(maxsize=4096)
def t_quantile(p: float, df: float) -> float:
    """The value that a t stays below with probability p."""
    if not 0.0 < p < 1.0 or df <= 0:
        return math.nan
    if p < 0.5:
        return -t_quantile(1.0 - p, df)
    wanted = 2.0 * (1.0 - p)
    low, high = 0.0, 1.0
    while t_two_sided(high, df) > wanted and high < 1e12:
        high *= 2.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        if t_two_sided(middle, df) > wanted:
            low = middle
        else:
            high = middle
        if high - low <= 1e-14 * high:
            break
    return 0.5 * (low + high)


def paired_power(effect: float, n: int, alpha: float = 0.05) -> float:
    """The chance that a two-sided paired t test over n seeds sees an effect of this many standard deviations.

    The effect is in units of the standard deviation of the differences between two values in one seed.
    """
    if n < 2:
        return 0.0
    df, shift = n - 1, abs(effect) * math.sqrt(n)
    critical = t_quantile(1.0 - alpha / 2.0, df)
    # Given the observed spread s, the mean is normal; s^2 df follows chi-squared. Simpson's rule over s.
    constant = math.log(2.0) + (df / 2.0) * math.log(df / 2.0) - math.lgamma(df / 2.0)
    top = 1.0 + 12.0 / math.sqrt(2.0 * df)
    # With two seeds a spread of zero has a density of its own; with more it has none.
    steps, total = 2000, math.exp(constant) if df == 1 else 0.0
    for index in range(1, steps):
        s = top * index / steps
        density = math.exp(constant + (df - 1) * math.log(s) - df * s * s / 2.0)
        seen = NORMAL.cdf(shift - critical * s) + NORMAL.cdf(-shift - critical * s)
        total += (4.0 if index % 2 else 2.0) * density * seen
    return min(1.0, total * top / steps / 3.0)


def smallest_effect(n: int, power: float = 0.8, alpha: float = 0.05) -> float:
    """The smallest effect, in standard deviations of the paired differences, that n seeds show with this power."""
    if n < 2:
        return math.inf
    low, high = 0.0, 1.0
    while paired_power(high, n, alpha) < power:
        high *= 2.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if paired_power(middle, n, alpha) < power else (low, middle)
    return high


def seeds_needed(effect: float, power: float = 0.8, alpha: float = 0.05, most: int = 10_000) -> int | None:
    """The fewest seeds that show this effect with this power; None when it takes more than `most`."""
    if not effect > 0.0:
        return None
    low, high = 2, 2
    while paired_power(effect, high, alpha) < power:
        low, high = high, high * 2
        if high > 2 * most:
            return None
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if paired_power(effect, middle, alpha) < power else (low, middle)
    return low if low <= most else None


def f_cdf(f: float, d1: int, d2: int, shift: float = 0.0) -> float:
    """The chance that an F stays below; `shift` is its noncentrality. A Poisson mixture of beta functions."""
    if f <= 0.0:
        return 0.0
    x, half = d1 * f / (d1 * f + d2), shift / 2.0
    middle = int(half)
    reach = int(6.0 * math.sqrt(half + 1.0)) + 12
    if half <= 0.0:
        return beta_inc(d1 / 2.0, d2 / 2.0, x)
    first, b, total = max(0, middle - reach), d2 / 2.0, 0.0
    a = d1 / 2.0 + first
    held = beta_inc(a, b, x)
    # From one term to the next: what x^a (1 - x)^b / (a B(a, b)) takes away.
    step = math.exp(a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a + 1.0) - math.lgamma(b))
    for index in range(first, middle + reach + 1):
        total += math.exp(index * math.log(half) - half - math.lgamma(index + 1)) * max(0.0, held)
        held -= step
        step *= x * (a + b) / (a + 1.0)
        a += 1.0
    return min(1.0, total)
