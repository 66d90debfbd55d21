"""The row of one kernel of one op."""

from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table


def kernel_of(op, kernel, dims, types=None, concrete=None, **launch):
    types = types or ["float"] * len(dims)
    builder = TraceBuilder().op(op, 0, 50, dims=dims, types=types, concrete=concrete)
    return build_kernel_table(builder.kernel(kernel, 60, 30, launch=10, **launch).load().rank()).row(0, named=True)


def only(row, *names):
    return tuple(row[name] for name in names)
