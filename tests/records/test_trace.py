import math

from clew.records.place import Place
from clew.records.trace import Event, HeldTrace, Series, Trace


def test_a_held_trace_is_a_trace() -> None:
    loss = Series("loss", (0, 1, 2), (2.3, math.nan, 2.1))
    norm = Series("grad_norm", (0,), (1.0,), of="head.weight")
    step = Event(0, "step", Place(file="t.py", line=9))
    trace: Trace = HeldTrace("run-1", [loss, norm], [Event(0, "backward"), step])
    assert isinstance(trace, Trace)
    assert trace.names() == ("loss", "grad_norm")
    assert trace.parts("grad_norm") == ("head.weight",)
    assert trace.series("loss") == loss
    assert trace.series("accuracy") is None
    assert list(trace.events("step")) == [step]
    assert len(list(trace.events())) == 2


def test_equal_series_have_equal_digests() -> None:
    one = Series("loss", (0, 1), (math.nan, 1.0))
    assert one.digest == Series("loss", (0, 1), (math.nan, 1.0)).digest
    assert one.digest != Series("loss", (0, 1), (math.inf, 1.0)).digest
