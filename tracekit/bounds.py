"""Name every limit on what is given from outside, with its reason; what is longer, more or larger is refused or cut.

The command line and the web page have the same ones. The reference page of limits is made from this file and
:mod:`predictors.given_files`: a constant's ending gives its unit, the text below it the reason.
"""

MAX_TRACES = 8192
"""Ranks that one command or job reads, of which thousands take minutes. Of more, `--ranks` names one."""
MAX_FILES = 10_000
"""Files of a directory, a glob or an archive: the traces that are read, with what lies beside them."""
MAX_RANKS = 1 << 20
"""Several times the GPUs of the largest machine: numbers beyond are no ranks."""
MAX_MERGED_RANKS = 1_000
"""More processes than any merged file holds, while matching them all is quick."""
MAX_DEVICES = 64
"""Several times the GPUs of a machine: process ids of activities below are numbers of GPUs."""
MAX_ARCHIVE_TABLE_BYTES = 4 << 20
"""Table of contents of an archive of that many files."""
MAX_UNPACK_RATIO = 200
"""Traces compress by a factor of 10 to 30, one repeated byte by 1000 and more."""
MIN_UNPACKED_BYTES = 64 << 20
"""Up to this size, a file may unpack to any multiple of what it is."""
MAX_TEXT_BYTES = 64 << 30
"""Text of one file, unpacked: several times the largest known trace. An endless input ends here."""
MAX_BLANK_BYTES = 64 << 20
"""Blanks between two values; writers indent by some hundred."""
MAX_TRAILING_BYTES = 1 << 30
"""What follows a trace is counted up to here, and at most this much of it is read."""
MAX_UNREADABLE_BYTES = 1 << 30
"""Text within the list of events in which none begins."""
MAX_VALUE_BYTES = 256 << 20
"""Text of one value beside the events, such as the metadata."""
MAX_EVENT_BYTES = 16 << 20
"""Text of one event, which takes a few hundred bytes; with shapes, ranks and stacks some thousand."""
MAX_NAME_BYTES = 4096
"""How far the end of a name with unescaped quotes is looked for."""
MAX_DISTINCT_NAMES = 500_000
"""Distinct names of kernels, copies and memsets: a hundred times those of the largest jobs. Each is classified."""
MAX_NAME_DIGITS = 9
"""Digits of a number in a kernel's name: tiles and sizes have five."""
MAX_INT_DIGITS = len(str(-(2**63)))
"""Digits of a whole number that is given as text: those of 64 bits."""
MAX_OP_ELEMENTS = 1 << 44
"""Elements of a tensor: more than a rack of GPUs holds, so that counts of bytes and operations fit into 64 bits."""
MAX_EXECUTION_TRACE_BYTES = 1 << 30
"""An execution trace, which is read at once."""
MAX_INDEX_FILE_BYTES = 8 << 30
"""A file of indices into embedding tables: those of dlrm_datasets unpack to 7 GB."""
MAX_COUNTS_FILE_BYTES = 64 << 20
"""Counts of embedding tables' rows as text, which take some thousand bytes."""
MAX_MODEL_CONFIG_BYTES = 4 << 20
"""A model's `config.json`, which takes a few thousand bytes."""
MAX_MODEL_LAYERS = 10_000
"""Layers of a model: many times those of the models in use."""
MAX_MODEL_SIZE = (1 << 31) - 1
"""A size in a model's `config.json`: those of 32 bits."""
MAX_TABLES = 10_000
"""Embedding tables of a recommender: several times those of the largest known."""
MAX_TABLE_ROWS = 1 << 40
"""Rows of an embedding table: a hundred times those of the largest known."""
MAX_TABLE_WIDTH = 1 << 16
"""Values of a row of an embedding table, which has up to 1,024."""
MAX_POOLING = 1_000_000
"""Look-ups of a sample in an embedding table; histories of users have up to some ten thousand."""
MAX_ZIPF_ALPHA = 5
"""Exponent of Zipf's law; beyond, all look-ups draw one row."""
MAX_METADATA_BYTES = 4096
"""A value of the metadata that is kept."""
MAX_EVENT_KINDS = 256
"""Kinds of events counted apart; those first seen later are counted together."""
MAX_REMEMBERED_NAMES = 1 << 14
"""Names of kernels and ops whose families are remembered; a trace has a few hundred."""
MAX_CATEGORY_CHARS = 80
"""Name of a category of events; PyTorch's have up to 20."""
MAX_REASON_CHARS = 300
"""What a file system or a library says, in a message."""
MAX_REDACTED_BYTES = 2 * 10**9
"""A trace that `tracekit redact` reads, which is in memory as a whole, and three times while it is written."""
MAX_CACHE_BYTES = 10 << 30
"""Decoded traces kept on this machine; those not used for longest are removed."""
MAX_CALIBRATION_BYTES = 64 << 20
"""A result of the bench script, or a calibration that is kept; they take up to 2 MB."""
MAX_SCOREBOARD_BYTES = 64 << 20
"""Outcomes that are kept on this machine, of a few hundred bytes each; what is behind them isn't read."""
MAX_LENGTHS_BYTES = 64 << 20
"""Lengths of a million requests, in a CSV."""
MAX_PROGRAM_BYTES = 16 << 20
"""A Python file to capture, as text."""
MAX_REPORT_BYTES = 256 << 20
"""A saved prediction that `tracekit compare` reads."""
MIN_ADDRESS_SPACE_BYTES = 1280 << 20
"""What the libraries need to start on two cores; below, they end in lines of their own."""
MIN_THREAD_SPACE_BYTES = 64 << 20
"""What each core more than two adds to that."""
MAX_COUNT = 1 << 20
"""Ranks or micro-batches that an option may ask for."""
MAX_CLUSTER_GPUS = 1_000_000
"""GPUs of a cluster: several times the largest ones."""
MAX_DRAWN_KERNELS = 200_000
"""Kernels drawn on all timelines of the page together: 300 MB of text, which takes seconds to write and to read."""
MAX_SHEET_ROWS = 1_000_000
"""Rows of a sheet; Excel's limit is 1,048,576."""
MAX_CELL_CHARS = 32_767
"""Characters of a spreadsheet's cell: Excel's limit."""
MAX_CONNECTIONS = 4096
"""Connections to the web page, or fewer where the system allows less than twice as many open files."""
MAX_CLIENT_WAIT_S = 30
"""Seconds in which a client of the web page must send a whole header, or make progress with a body or an answer."""
MIN_PROGRESS_BYTES = 16 << 10
"""What counts as progress: slower than any line that traces are sent over."""
MAX_BODY_BYTES = 1 << 20
"""A request to the web page other than an upload."""
MAX_WRONG_TOKENS_PER_MINUTE = 10
"""Wrong tokens of one address; people mistype some."""
MAX_UPLOAD_METADATA_CHARS = 4096
"""What a tus client may say about an upload, its name above all."""
MAX_VARIANTS = 20_000
"""Of a config that are predicted in one search."""
