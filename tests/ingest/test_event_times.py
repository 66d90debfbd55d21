import msgspec
import numpy as np
import pytest

from tracekit.ingest.event_decoder import convert_to_ns
from tracekit.ingest.fields import NULL

NS_OF_TIME = {
    b"0": 0,
    b"12": 12_000,
    b"12.5": 12_500,
    b"1700000000123456.789": 1_700_000_000_123_456_789,
    b"0.0004999": 0,
    b"0.0005": 0,  # half of a nanosecond goes to the even one
    b"0.0015": 2,
    b"0.0025": 2,
    b"0.000500001": 1,
    b"0.0005000000000001": 1,
    b"2.9999999": 3_000,
    b"-1.5": -1_500,
    b"1e3": 1_000_000,
    b"1.5E-3": 2,
    b'"7.25"': 7_250,
    b"9007199254740991": 9_007_199_254_740_991_000,
    b"9007199254740992": NULL,
    b"99999999999999999999": NULL,
    b"1e400": NULL,
    b"null": NULL,
    b"": NULL,
}


@pytest.mark.parametrize("copies", [1, 100])
def test_times_are_converted_exactly(copies):
    times, expected = list(NS_OF_TIME) * copies, list(NS_OF_TIME.values()) * copies
    assert convert_to_ns(times).tolist() == expected


def test_many_times_are_converted_like_single_ones():
    draw = np.random.default_rng(0)
    digits = draw.integers(0, 10**9, 2000)
    times = [b"%d.%s" % (draw.integers(0, 10**15), (b"%09d" % d)[: 1 + d % 9]) for d in digits]
    assert convert_to_ns(times).tolist() == [int(convert_to_ns([time])[0]) for time in times]


@pytest.mark.parametrize("copies", [1, 100])
@pytest.mark.parametrize("time", [b"true", b'"soon"', b"{}", b"[1]", b'"\xff"'])
def test_what_is_no_time_is_refused(time, copies):
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        convert_to_ns([b"1"] * copies + [time])
