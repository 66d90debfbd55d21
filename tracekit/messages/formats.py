"""Files of other tools than PyTorch's profiler that are read."""

from tracekit.messages.model import error, name_templates, warning

FORMAT_DAMAGED = error("{path} is no {form} that can be read ({reason:.200}).", "Copy or export the file again.")
FORMAT_NEEDS_PACKAGE = error("{path}: reading {form} needs another package.", "`pip install 'tracekit-gpu[formats]'`")
DATABASE_OF_OTHER_TOOL = error(
    "{path} is an SQLite database, but none of Nsight Systems (it has no table StringIds) and none of rocprofv3.",
    "Export one: `nsys export --type sqlite report.nsys-rep`.",
)
NSIGHT_WITHOUT_CUDA = error(
    "{path} holds no kernels, copies or memsets.",
    "Record with `nsys profile --trace=cuda,nvtx`, with `--cuda-graph-trace=node` where CUDA graphs run.",
)
ROCPROF_WITHOUT_KERNELS = error(
    "{path} holds no kernels and no copies.", "Record with `rocprofv3 --kernel-trace --hip-trace --memory-copy-trace`."
)
XPLANE_WITHOUT_KERNELS = error(
    "{path} holds no kernels of a GPU.", "Profiles of TPUs aren't read; of GPUs, profile with jax.profiler.trace."
)
CHAKRA_WITHOUT_KERNELS = error(
    "{path} has no node that a GPU runs.",
    "Link the trace of the host with that of the device first: `chakra_trace_link`.",
)
CHAKRA_CIRCULAR = error("{path} is no trace: {nodes:count node} wait for one another in a circle.")
TORCH_PERFETTO_WITHOUT_KERNELS = error(
    "{path} holds no kernels, copies or memsets of a GPU.", "Record with ProfilerActivity.CUDA."
)
PERFETTO_WITHOUT_KERNELS = error(
    "{path} holds no kernels and no copies as rocprofv3 or PyTorch's profiler write them.",
    "Of other programs, give the JSON.",
)
FORMAT_LACKS = warning("Read as a trace of {tool}, which has no: {lacks:list}.", "A trace of torch.profiler has them.")
FORMAT_WITHOUT_OPS = warning("No ops were recorded: kernels can't be told apart by op or shape.", "{advice}")
FORMAT_WITHOUT_SHAPES = warning("Shapes were not recorded: kernels are scaled by class, not modelled.", "{advice}")

name_templates(globals())
