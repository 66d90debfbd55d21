"""Names and parameters of the scanner's functions."""

from tracekit.compiled.units import BYTE_ARRAY, INT8_ARRAY, INT_ARRAY, INTEGER, Parameters

ENTRY_POINTS: Parameters = {
    "skip_value": (BYTE_ARRAY, INTEGER, INTEGER),
    "scan": (
        *(BYTE_ARRAY, INT_ARRAY),
        *(INT_ARRAY, INTEGER, INT_ARRAY, BYTE_ARRAY, INT_ARRAY),
        *(INT_ARRAY, INTEGER, INT_ARRAY, BYTE_ARRAY, INTEGER, INT_ARRAY),
        *(INT8_ARRAY, INT_ARRAY, INT_ARRAY, INT_ARRAY, INT_ARRAY, INT_ARRAY),
    ),
    "transposed": (INT_ARRAY, INTEGER, INT_ARRAY, INTEGER, INT_ARRAY, INTEGER, INT_ARRAY),
    "fill_slots": (INT_ARRAY, INTEGER, INT_ARRAY, BYTE_ARRAY, INTEGER, INTEGER),
}
"""Parameters of the functions in :mod:`entries`; an array is followed by its length where that is unknown."""
