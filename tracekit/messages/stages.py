"""What is being done, shown while it is."""

from tracekit.messages.model import name_templates, note

WAITING_FOR_WORKER = note("waiting")
READING_TRACE = note("read trace")
READING_FILE = note("read file {number} of {files}")
READING_CAPTURE = note("read capture {name}")
READING_SIDE = note("read {place}")
COMPILING_LOOPS = note("compile the inner loops, once per installation: 5 to 20 s")
CLASSIFYING_KERNELS = note("classify kernels")
LINKING_DEPENDENCIES = note("link dependencies")
REPLAYING = note("replay")
EXAMINING = note("examine")
CAPTURING = note("capture the program on tensors without data")
MEASURING_HOST = note("measure this machine's CPU: a quarter of a minute")
PREDICTING = note("predict")
PREDICTING_TARGET = note("predict {target}, {number} of {targets}")
BUILDING_REPORT = note("put the report together")
PREDICTING_LAYOUTS = note("predict layouts")
PLANNING_SHARDS = note("plan for {cluster}")
CHECKING_FILES = note("check the files")
WRITING_FORM = note("write {form}")
REDACTING = note("redact the trace")
STORING_REPORTS = note("keep the reports")

name_templates(globals())
