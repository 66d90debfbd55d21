"""Files of other tools than PyTorch's profiler that are read."""

from tracekit.messages.model import Severity, Template

FORMAT_DAMAGED = Template(
    "format-damaged",
    Severity.ERROR,
    "{path} is no {form} that can be read ({reason:.200}).",
    "Copy or export the file again.",
)
FORMAT_NEEDS_PACKAGE = Template(
    "format-needs-package",
    Severity.ERROR,
    "{path}: reading {form} needs another package.",
    "`pip install 'tracekit-gpu[formats]'`",
)
DATABASE_OF_OTHER_TOOL = Template(
    "database-of-other-tool",
    Severity.ERROR,
    "{path} is an SQLite database, but none of Nsight Systems (it has no table StringIds) and none of rocprofv3.",
    "Export one: `nsys export --type sqlite report.nsys-rep`.",
)
NSIGHT_WITHOUT_CUDA = Template(
    "nsight-without-cuda",
    Severity.ERROR,
    "{path} holds no kernels, copies or memsets.",
    "Record with `nsys profile --trace=cuda,nvtx`, with `--cuda-graph-trace=node` where CUDA graphs run.",
)
ROCPROF_WITHOUT_KERNELS = Template(
    "rocprof-without-kernels",
    Severity.ERROR,
    "{path} holds no kernels and no copies.",
    "Record with `rocprofv3 --kernel-trace --hip-trace --memory-copy-trace`.",
)
XPLANE_WITHOUT_KERNELS = Template(
    "xplane-without-kernels",
    Severity.ERROR,
    "{path} holds no kernels of a GPU.",
    "Profiles of TPUs aren't read; of GPUs, profile with jax.profiler.trace.",
)
CHAKRA_WITHOUT_KERNELS = Template(
    "chakra-without-kernels",
    Severity.ERROR,
    "{path} has no node that a GPU runs.",
    "Link the trace of the host with that of the device first: `chakra_trace_link`.",
)
CHAKRA_CIRCULAR = Template(
    "chakra-circular",
    Severity.ERROR,
    "{path} is no trace: {nodes:count node} wait for one another in a circle.",
)
TORCH_PERFETTO_WITHOUT_KERNELS = Template(
    "torch-perfetto-without-kernels",
    Severity.ERROR,
    "{path} holds no kernels, copies or memsets of a GPU.",
    "Record with ProfilerActivity.CUDA.",
)
PERFETTO_WITHOUT_KERNELS = Template(
    "perfetto-without-kernels",
    Severity.ERROR,
    "{path} holds no kernels and no copies as rocprofv3 or PyTorch's profiler write them.",
    "Of other programs, give the JSON.",
)
FORMAT_LACKS = Template(
    "format-lacks",
    Severity.WARNING,
    "Read as a trace of {tool}, which has no: {lacks:list}.",
    "A trace of torch.profiler has them.",
)
FORMAT_WITHOUT_OPS = Template(
    "format-without-ops",
    Severity.WARNING,
    "No ops were recorded: kernels can't be told apart by op or shape.",
    "{advice}",
)
FORMAT_WITHOUT_SHAPES = Template(
    "format-without-shapes",
    Severity.WARNING,
    "Shapes were not recorded: kernels are scaled by class, not modelled.",
    "{advice}",
)
