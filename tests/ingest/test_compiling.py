import numba

from tracekit.ingest.compiling import COMPILING_MESSAGE, announce_compilation


def test_compiling_is_said_once_and_only_where_it_happens():
    def twice(x):
        return 2 * x

    told = []
    with announce_compilation(told.append):
        compiled = numba.njit(twice)
        assert told == []
        assert compiled(1) == 2
        assert compiled(1.0) == 2.0
    assert told == [COMPILING_MESSAGE]

    again = []
    with announce_compilation(again.append):
        compiled(1)
    numba.njit(twice)("x")
    assert again == []
