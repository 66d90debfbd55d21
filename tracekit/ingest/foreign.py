"""Chrome traces that other tools write, and files that are no traces: told by their marks, to be refused by name."""

import re

HINT = "tracekit reads traces of torch.profiler: export_chrome_trace or tensorboard_trace_handler."

# Far enough for top-level keys in front of the events and for some hundred events.
HEAD_BYTES = 1 << 18

_MARKS = {
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
    "rocprof": (rb'"ROCProfiler', rb'"otherData"\s*:\s*\{\s*"sys.os'),
    "Nsight Systems": (rb'"NsysVersion"', rb'"(?:CudaEvent|TraceProcessEvent)"'),
    "Nsight Systems or rocprof (an SQLite database)": (rb"\ASQLite format 3\0",),
    "Nsight Compute": (rb'\A(?:==PROF==.*\n)*"ID","Process ID"', rb"\ANVR\0"),
    "pickle (PyTorch's checkpoints and memory snapshots)": (rb"\A\x80[\x02-\x05]",),
    "speedscope": (rb"speedscope\.app/file-format",),
    "Android's systrace or atrace": (rb'"systemTraceEvents"', rb'"controllerTraceDataKey"'),
}
# Of binary files, whose text says nothing.
_NAMES = {
    "Nsight Systems": r"\.(?:nsys-rep|qdrep|qdstrm)$",
    "Nsight Compute": r"\.ncu-rep$",
    "Windows' event tracing": r"\.etl$",
    "TensorBoard": r"(?:^|[/.])tfevents\.",
    "TensorFlow or JAX": r"\.xplane\.pb$",
    "Perfetto": r"\.(?:pftrace|perfetto-trace)$",
}
_KINETO = re.compile(
    rb'"(?:deviceProperties|cupti_version|roctracer_version|baseTimeNanoseconds|distributedInfo|record_shapes)"\s*:'
    rb'|"cat"\s*:\s*"(?:cpu_op|kernel|cuda_runtime|cuda_driver|gpu_memcpy|ac2g|user_annotation|Operator|Kernel|Runtime)"'
)
_FORMATS = (
    (rb"\A\Z", "empty once unpacked", "Was the profiler stopped before the job ended?"),
    (rb"\A(?:\xff\xfe|\xfe\xff)", "UTF-16 text, and JSON is UTF-8", "Convert it: iconv -f UTF-16 -t UTF-8."),
    (rb"\A(?s:.{257})ustar", "a tar archive", "Unpack it first; zip archives are read as they are."),
    (rb"\A(?:\x1f\x8b|\x28\xb5\x2f\xfd|PK\x03\x04)", "compressed twice", "Unpack it once."),
    (
        rb"\A(?:\xfd7zXZ|BZh\d|7z\xbc\xaf|Rar!)",
        "compressed in a way that isn't read",
        "Unpack it first; .gz, .zst and .zip are read as they are.",
    ),
    (
        rb"\A\s*<(?i:!doctype|html|head|\?xml)",
        "a web page",
        "Was a login's or an error's page saved in its place? Download the trace anew.",
    ),
    (rb"\Aversion https://git-lfs", "Git LFS's pointer to a file", "Fetch the file itself: git lfs pull."),
)
_PATTERNS = {tool: re.compile(b"|".join(marks)) for tool, marks in _MARKS.items()}
_JSON = re.compile(rb"\s*[\[{]")


def no_trace(head: bytes) -> tuple[str, str] | None:
    """What a file is that begins like this, and what to do; ``None`` if it may be a trace."""
    return next(((what, advice) for mark, what, advice in _FORMATS if re.search(mark, head)), None)


def tool(head: bytes, source: str) -> str | None:
    """The tool that wrote a file; ``None`` for PyTorch's profiler and for unknown ones.

    Args:
        head: How the file begins.
        source: Its name.
    """
    head = head[:HEAD_BYTES]
    if _KINETO.search(head):
        return None
    by_mark = next((name for name, pattern in _PATTERNS.items() if pattern.search(head)), None)
    if by_mark or _JSON.match(head):
        return by_mark
    return next((name for name, pattern in _NAMES.items() if re.search(pattern, source)), None)
