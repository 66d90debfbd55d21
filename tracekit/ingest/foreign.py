"""Detect Chrome traces of other tools, and files that are not traces, to refuse them by name."""

import re

from tracekit.messages import Template, traces

# Enough for top-level keys before the events and for some hundred events.
HEAD_BYTES = 1 << 18

ROCPROF = "rocprof"
_TOOL_MARKS = {
    "Chakra or PyTorch's ExecutionTraceObserver (give it together with its Kineto trace)": (
        rb'^\s*\{\s*"schema"\s*:\s*"[0-9.]+[^"]*"(?s:.{0,2000}?)"nodes"\s*:',
    ),
    "Chrome's or Node's own tracing": (
        rb'"cat"\s*:\s*"(?:devtools\.timeline|blink|v8|cc|toplevel|disabled-by-default|node\.)',
    ),
    "VizTracer": (rb'"viztracer_metadata"', rb'"cat"\s*:\s*"FEE"'),
    "TensorFlow, JAX or XLA": (rb'"/device:(?:GPU|TPU|CPU)', rb'"hlo_(?:op|module)"', rb'"run_id"\s*:\s*"'),
    "ONNX Runtime": (rb'"name"\s*:\s*"model_loading_(?:uri|array|from)', rb'"cat"\s*:\s*"Session"'),
    "clang -ftime-trace": (rb'"beginningOfTime"', rb'"name"\s*:\s*"Total ExecuteCompiler"'),
    "Bazel": (rb'"bazel_version"', rb'"build_id"\s*:'),
    ROCPROF: (
        *(rb'"ROCProfiler', rb'"otherData"\s*:\s*\{\s*"sys.os', rb'"BeginNs"\s*:(?s:.{0,300}?)"EndNs"\s*:'),
        rb'\A"?Index"?,"?KernelName"?,',
    ),
    "Nsight Systems": (rb'"NsysVersion"', rb'"(?:CudaEvent|TraceProcessEvent)"'),
    "Nsight Compute": (rb'\A(?:==PROF==.*\n)*"ID","Process ID"', rb"\ANVR\0"),
    "pickle (PyTorch's checkpoints and memory snapshots)": (rb"\A\x80[\x02-\x05]",),
    "speedscope": (rb"speedscope\.app/file-format",),
    "Android's systrace or atrace": (rb'"systemTraceEvents"', rb'"controllerTraceDataKey"'),
}
# File names of binary formats, whose content has no readable marks.
_TOOL_FILE_NAMES = {
    "Nsight Systems": r"\.(?:nsys-rep|qdrep|qdstrm)$",
    "Nsight Compute": r"\.ncu-rep$",
    "Windows' event tracing": r"\.etl$",
    "TensorBoard": r"(?:^|[/.])tfevents\.",
}
_KINETO_MARKS = re.compile(
    rb'"(?:deviceProperties|cupti_version|roctracer_version|baseTimeNanoseconds|distributedInfo|record_shapes)"\s*:'
    rb'|"cat"\s*:\s*"(?:cpu_op|kernel|cuda_runtime|cuda_driver|gpu_memcpy|ac2g|user_annotation|Operator|Kernel|Runtime)"'
)
_UNREAD_FORMATS = (
    (rb"\A\Z", traces.FILE_EMPTY_UNPACKED),
    (rb"\A(?:\xff\xfe|\xfe\xff)", traces.FILE_IN_UTF16),
    (rb"\A(?s:.{257})ustar", traces.FILE_IS_TAR),
    (rb"\A(?:\x1f\x8b|\x28\xb5\x2f\xfd|PK\x03\x04)", traces.FILE_COMPRESSED_TWICE),
    (rb"\A(?:\xfd7zXZ|BZh\d|7z\xbc\xaf|Rar!)", traces.COMPRESSION_UNKNOWN),
    (rb"\APAR1", traces.FILE_IS_PARQUET),
    (rb"\A\s*<(?i:!doctype|html|head|\?xml)", traces.FILE_IS_WEB_PAGE),
    (rb"\Aversion https://git-lfs", traces.FILE_IS_LFS_POINTER),
)
JSON_START = re.compile(rb"\s*[\[{]")


def identify_unread_format(head: bytes) -> Template | None:
    """Return the error for a file with this head; ``None`` if it may be a trace."""
    return next((template for mark, template in _UNREAD_FORMATS if re.search(mark, head)), None)


def identify_tool(head: bytes, source: str) -> str | None:
    """Return the tool that wrote a file; ``None`` for PyTorch's profiler and unknown tools."""
    head = head[:HEAD_BYTES]
    if _KINETO_MARKS.search(head):
        return None
    # Compiled here rather than on import: few files get as far as this.
    by_mark = next((name for name, marks in _TOOL_MARKS.items() if re.search(b"|".join(marks), head)), None)
    if by_mark or JSON_START.match(head):
        return by_mark
    return next((name for name, pattern in _TOOL_FILE_NAMES.items() if re.search(pattern, source)), None)
