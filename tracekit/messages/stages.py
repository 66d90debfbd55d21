"""What is being done, shown while it is."""

from tracekit.messages.model import Severity, Template

WAITING_FOR_WORKER = Template("waiting-for-worker", Severity.NOTE, "waiting")
READING_TRACE = Template("reading-trace", Severity.NOTE, "read trace")
READING_FILE = Template("reading-file", Severity.NOTE, "read file {number} of {files}")
READING_CAPTURE = Template("reading-capture", Severity.NOTE, "read capture {name}")
READING_SIDE = Template("reading-side", Severity.NOTE, "read {place}")
COMPILING_LOOPS = Template(
    "compiling-loops", Severity.NOTE, "compile the inner loops, once per installation: 5 to 20 s"
)
CLASSIFYING_KERNELS = Template("classifying-kernels", Severity.NOTE, "classify kernels")
LINKING_DEPENDENCIES = Template("linking-dependencies", Severity.NOTE, "link dependencies")
REPLAYING = Template("replaying", Severity.NOTE, "replay")
EXAMINING = Template("examining", Severity.NOTE, "examine")
CAPTURING = Template("capturing", Severity.NOTE, "capture the program on tensors without data")
MEASURING_HOST = Template("measuring-host", Severity.NOTE, "measure this machine's CPU: a quarter of a minute")
PREDICTING = Template("predicting", Severity.NOTE, "predict")
PREDICTING_TARGET = Template("predicting-target", Severity.NOTE, "predict {target}, {number} of {targets}")
BUILDING_REPORT = Template("building-report", Severity.NOTE, "put the report together")
PREDICTING_LAYOUTS = Template("predicting-layouts", Severity.NOTE, "predict layouts")
PLANNING_SHARDS = Template("planning-shards", Severity.NOTE, "plan for {cluster}")
CHECKING_FILES = Template("checking-files", Severity.NOTE, "check the files")
WRITING_FORM = Template("writing-form", Severity.NOTE, "write {form}")
REDACTING = Template("redacting", Severity.NOTE, "redact the trace")
STORING_REPORTS = Template("storing-reports", Severity.NOTE, "keep the reports")
