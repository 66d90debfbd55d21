"""Models: their configurations, their embedding tables, and programs that are captured."""

from tracekit.messages.model import error, name_templates, note, warning

CONFIG_UNREADABLE = error("{path} can't be read: {reason}.", "Give the config.json of a model.")
CONFIG_NOT_JSON = error(
    "{path} is no model configuration: it isn't a JSON object.", "Give the config.json of the model's checkpoint."
)
CONFIG_KEY_MISSING = error("{path} has no {key}.", "Give the config.json of the model's checkpoint.")
CONFIG_SIZE = error("{path} has an impossible {key}: {value!s:.40}.", "Give the config.json of the model's checkpoint.")
CONFIG_LAYERS = error(
    "{path} describes {architecture}, which has layers of {layers}. Known are layers of attention, "
    "latent attention, the gated delta rule and Mamba-2, with an MLP or experts.",
    "Record the model once without CUDA graphs and with shapes, or the capture of its graphs.",
)
CONFIG_NOT_UNIQUE = error(
    "Several model configurations were given: {paths:list}.", "Give the one of the model that the trace ran."
)
CONFIG_TOO_LARGE = error("{path} holds more than {limit_bytes}.", "Give the config.json of a model.")
CONFIG_SKIPPED = warning("The model configuration was left out. {error}")
CONFIG_WITHOUT_FIT = warning(
    "{path} fits none of the trace's batches: {difference}.", "Give the config.json of the model that the trace ran."
)
FIT_WITHOUT_BATCHES = note("no serving engine marks any")
FIT_LAYERS_DIFFER = note("most of them run attention in {seen:count layer}, and the model has {layers}")
FIT_GEMMS_DIFFER = note(
    "they run attention in as many layers as the model has, {layers}, but from one layer's to the next's most have "
    "{seen:count GEMM}, and the model {expected:list} (with {ranks:count rank} sharing a layer)"
)
FIT_ENDS_DIFFER = note(
    "they have as many layers as the model, {layers}, and as many GEMMs in most, {seen}, but others before the first "
    "or behind the last attention"
)


DLRM_KEY_UNKNOWN = error("{path}: {key!r} is no key of {part}.", "Known are {known:list}.")
DLRM_VALUE = error("{path}: {key} can't be {value!s:.60}.", "Give {expected}.")
DLRM_TABLE = error(
    "{path}: {place}: {reason}",
    'Write such as {{"rows": 1000000, "width": 128, "pooling": 20, "alpha": 1.05, "count": 26}}.',
)
DLRM_WITHOUT_TABLES = error(
    "{path} has no embedding tables.",
    'Write such as "tables": [{{"rows": 1000000, "width": 128, "pooling": 20, "count": 26}}].',
)
DLRM_TABLES_TOO_MANY = error("{path} has {tables} embedding tables.", "Give at most {most}.")
DLRM_WIDTHS_DIFFER = error(
    "{path}: dot products need rows of one width, also at the bottom MLP's end, and there are {widths:list}.",
    'Give all tables one width and end {--bottom-mlp} with it, or choose the interaction "cat" or "dcn".',
)
DLRM_TABLE_OPTIMIZER = error(
    "{path}: {lookup} has no table_optimizer {optimizer!r}.",
    "It has {known:list}; with dense gradients {--optimizer} counts.",
)
DLRM_WITHOUT_TOKENS = error("A DLRM has no sequences of tokens.", "Leave out {--seq}.")
DLRM_LONGEST = error("A DLRM has no sequences of tokens.", "Leave out {--longest}.")
DLRM_OPTIONS = error(
    "{--table}, {--bottom-mlp} and {--top-mlp} change a DLRM's configuration, and {program} is none.",
    'Give a JSON with "model_type": "dlrm".',
)
MLP_MALFORMED = error("{widths!r} is no MLP.", "Give the widths of its layers, such as 512,256,128.")


TABLE_MALFORMED = error(
    "{table!r} is no embedding table.",
    "Write [COUNT*]ROWSxWIDTH[:POOLING[:ALPHA]], such as 40Mx128 or 26*1000000x128:20:1.05.",
)
TABLE_BEYOND_BOUNDS = error(
    "An embedding table can't have {value:,.15g} as its {name}.", "Give {least:,.15g} to {most:,.15g}."
)


INDICES_UNREADABLE = error(
    "{path} can't be read: {reason}.",
    "Give indices as .npy, .npz or .pt, counts as .csv with the columns draws and rows, or a locality_stats.txt.",
)
INDICES_EMPTY = error(
    "{path} has no look-ups: {found}.",
    "Give whole numbers, 0 or more: an array for each table, or indices, offsets and lengths.",
)
INDICES_NEED_TORCH = error(
    "{path} holds tensors, which PyTorch reads; it isn't installed.", "Install it: pip install torch."
)
INDICES_TOO_LARGE = error("{path} holds more than {limit_bytes}.", "Give the indices of fewer batches.")
INDICES_GIVEN_TWICE = error(
    "Both an exponent and a file tell how skewed look-ups are.", "Leave out {--zipf} or {--indices}."
)


CAPTURE_NEEDS_TORCH = error(
    "PyTorch isn't installed here.", "Its CPU build is enough: pip install torch, where tracekit runs."
)
CAPTURE_NEEDS_TRANSFORMERS = error(
    "Hugging Face's transformers isn't installed here.", "Run pip install transformers, where tracekit runs."
)
CAPTURE_NEEDS_TIMM = error("timm isn't installed here.", "Run pip install timm.")
TIMM_MODEL_UNKNOWN = error("timm has no model {model!r}.", "It has {close:list}.")
PACKAGE_UNUSABLE = error("{package} is installed here, but can't be imported: {error}.", "Install what it lacks.")
CAPTURE_FAILED = error(
    "{program} doesn't run on tensors without data: {error}.",
    "Where it asks for a value (.item(), a mask's contents, sizes of data), give it a fixed one.",
)
VALUES_UNKNOWN = error(
    "The program reads back values that its data decide ({op}), and a capture has no data.",
    "Give it fixed ones there (.item(), a mask's contents, sizes of data), or record a trace of it.",
)
RECURRENCE_UNKNOWN = error(
    "The recording has recurrent layers as a CPU runs them; cuDNN has kernels of its own.",
    "Record it on a GPU, or capture its code.",
)
RECORDING_WITHOUT_VALUES = error(
    "{path} holds no GPU activity, and of its ops only shapes: strides and paddings of convolutions are missing.",
    "Record it with PyTorch 2.1 or later, or on a GPU.",
)
MEASURED_BY_CAPTURE = error("{path} was captured itself: nothing in it is measured.", "Give a recording.")
MEASURED_BY_UNKNOWN_GPU = error(
    "{path} doesn't tell which GPU it was recorded on.", "Record it with a PyTorch that does, from 1.12 on."
)
MEASURED_WITHOUT_SHAPES = error(
    "The ops of {path} have no shapes, so they can't be matched to the program's.", "Record it with record_shapes=True."
)
CONFIG_ATTENTION = error(
    "The config computes attention by {attention:list}, which can't be captured.",
    "Give {--attention} eager, sdpa or flash in its place.",
)
CONFIG_QUANTIZATION = error(
    "The config's weights are quantized by a method that can't be captured: {method}.",
    "Take quantization_config out of it to predict the model in {--dtype}.",
)
CONFIG_QUANTIZED_EXPERTS = error(
    "The config's weights are quantized ({method}), and its experts' products can't be captured so.",
    "Take quantization_config out of it to predict the model in {--dtype}.",
)
CONFIG_QUANTIZED_TRAINING = error(
    "The config's weights are quantized ({method}): such a model isn't trained.",
    "Leave {--train} out, or take quantization_config out of the config.",
)
ATTENTION_UNKNOWN = error("{--attention} {attention!r} is unknown.", "Known are {known:list}.")
ATTENTION_NOT_FUSED = error(
    "transformers computes this model's attention by plain products alone.", "Leave {--attention} out, or give eager."
)
ATTENTION_NOT_FLASH = error(
    "FlashAttention takes fp16 or bf16, heads of equal widths up to {width}, and no mask: this program's attention "
    "differs.",
    "Give {--attention} sdpa or eager, or {--dtype} bf16.",
)
ATTENTION_NOT_CALLED = error(
    "The program doesn't call scaled_dot_product_attention, so {--attention} changes nothing.",
    "Leave it out, and change the program.",
)
CAPTURE_EMPTY = error("{program} launches no kernels.", "Return what a step computes.")
OPTIMIZER_UNKNOWN = error("{--optimizer} {optimizer!r} is unknown.", "Known are {known:list}.")
OPTIMIZER_WITHOUT_TRAINING = error("{--optimizer} goes with {--train}.", "Give both, or none.")
MUON_NEEDS_TORCH = error("This PyTorch has no torch.optim.Muon.", "Install PyTorch 2.9 or later: pip install -U torch.")
MUON_WITHOUT_MATRICES = error(
    "The model trains no weight matrix beside embeddings and output head, so Muon has nothing to update.",
    "Give {--optimizer} adamw.",
)
RECOMPUTE_UNKNOWN = error("{--recompute} {recompute!r} is unknown.", "Known are {known:list}.")
RECOMPUTE_WITHOUT_TRAINING = error("{--recompute} goes with {--train}.", "Give both, or none.")
RECOMPUTE_WITHOUT_LAYERS = error(
    "The model has no layers to recompute: no modules of one class in a ModuleList or Sequential.",
    "Call torch.utils.checkpoint in its code, and leave {--recompute} out.",
)
LORA_WITHOUT_TRAINING = error("{--lora} goes with {--train}.", "Give both, or none.")
LORA_WITHOUT_LAYERS = error(
    "The model has no linear layers that repeat, which adapters could go beside.", "Leave {--lora} out."
)
MICRO_BATCHES_WITHOUT_TRAINING = error(
    "{--micro-batches} of a program without {--pp} are passes whose gradients add up.", "Give {--train}, too."
)
MICRO_BATCHES_MANY = error(
    "{passes} micro-batches of {kernels} kernels each are too many for one trace.",
    "Give {--micro-batches} up to {most}: beyond, a step takes longer in proportion.",
)
AUTOCAST_UNKNOWN = error("{--autocast} {autocast!r} is unknown.", "Known are bf16 and fp16.")
DTYPE_UNKNOWN = error("{--dtype} {dtype!r} is unknown.", "Known are {known:list}.")
PROGRAM_MALFORMED = error(
    "{program!r} names no program.",
    "Give FILE.py:FUNCTION, a function that returns a model and its inputs, timm:MODEL, a model's config.json, or the "
    "TOML of a torchtitan job.",
)
PROGRAM_UNREADABLE = error("{path} can't be read as a program: {error}.", "Check the file.")
FUNCTION_MISSING = error("{path} has no function {function}.", "It has {functions:list}.")
INPUTS_MISSING = error(
    "{function} returned {found}, not a model and its inputs.",
    "Return such as (model, tokens) or (model, tokens, mask).",
)
CONFIG_MODEL_UNKNOWN = error(
    "transformers can't build a model from {path}: {error}.", "Check its model_type and the version of transformers."
)
TORCHTITAN_MODEL_UNKNOWN = error(
    "{path} trains {model}, whose sizes aren't known here.", "Known are {known:list}; or give the model's config.json."
)
TORCHTITAN_FLAVOUR_UNKNOWN = error(
    "{path}: flavour {flavour!r} of {model} isn't known.", "Known are {known:list}; or give the model's config.json."
)
TORCHTITAN_RANKS = error(
    "{path} wants {ranks:count GPU}, and the cluster has {gpus}.",
    "Give such a cluster, or set data_parallel_shard_degree to -1.",
)
TORCHTITAN_VALUE = error(
    "{path}: no option says {key} = {value!r}.", "Change it in the file, or give config.json and options."
)
TORCHTITAN_OPTION = error("{path} asks for {option}, which isn't known yet.", "Take it out of the file.")
LONGEST_OF_CONFIG = error(
    "{--longest} needs a config and a batch that is a number.", "Give a config.json, and {--batch} 1 or another number."
)
SEQUENCE_WITHOUT_IMAGE = error(
    "A sequence of {tokens:count token} has no room for an image, which the config gives {image:count token}.",
    "Give more with {--seq}.",
)
SEQ_MALFORMED = error("{--seq} {seq!r} is no number of tokens.", "Give 1 to {most}, or max.")
SEQ_MAX_OF_CONFIG = error(
    "{--seq} max needs the config.json of a language model, targets, and a batch that is a number of sequences.",
    "Give {--gpu} or {--cluster}, or a number of tokens.",
)
SEQ_MAX_UNKNOWN = error("Which sequences fit on {gpu} isn't known: {reason}.", "Give a number of tokens with {--seq}.")
SEQUENCE_FITS_NOWHERE = error(
    "Not even the shortest sequence fits into {gpu}: its tensors take {least_bytes} at once.",
    "Give a smaller {--batch}, or a GPU with more memory.",
)
BATCH_MALFORMED = error("{--batch} {batch!r} is no batch.", "Give a number of samples, or max.")
BATCH_OF_FUNCTION = error(
    "The function chooses its batch itself.", "Give it an argument batch, or leave {--batch} out."
)
OPTIONS_OF_PROGRAMS = error(
    "{--train}, {--micro-batches}, {--recompute}, {--lora}, {--optimizer}, {--autocast}, {--tf32}, {--compile}, "
    "{--cuda-graph}, {--seq}, {--dtype}, {--attention}, {--bottom-mlp}, {--top-mlp}, {--decode}, {--prefill} and "
    "{--measured} are for programs that are captured, not for traces.",
    "Leave them out, or give FILE.py:FUNCTION or a model's config.json.",
)
DECODE_AND_PREFILL = error("{--decode} and {--prefill} are two steps.", "Give one of them.")
CACHE_TYPE_WITHOUT_ENGINE = error(
    "{--cache-type} is that of a serving engine's step.", "Add {--decode} or {--prefill}."
)
BACKEND_WITHOUT_ENGINE = error(
    "{--all2all-backend} is that of a serving engine's step.", "Add {--decode} or {--prefill}."
)
PRECISION_UNKNOWN = error("{precision!r} is no format of products.", "Known are {known:list}.")
STACK_NAME_UNKNOWN = error("{stack!r} is no known stack of training.", "Known are {known:list}.")
PRECISION_TWICE = error(
    "{--precision} {precision} is said by {--autocast} or {--tf32} as well.", "Leave one of them out."
)
PRECISION_WITHOUT_LAYERS = error(
    "The program has no linear layer whose products could run in {precision}.",
    "Give a module of nn.Linear, or leave {--precision} out.",
)
ENGINE_OPTIONS = error(
    "{--train}, {--micro-batches}, {--autocast}, {--tf32}, {--compile} and {--measured} don't go with a serving "
    "engine's step.",
    "Leave them out, or leave {--decode} and {--prefill} out.",
)
ENGINE_OF_CONFIG = error(
    "A serving engine's step is built from a model's config.json, not from {program}.", "Give one."
)
TABLES_OF_PROGRAMS = error(
    "Here {--table} is for programs that are captured, not for traces.", "Leave it out, or give a DLRM's configuration."
)
BATCH_FITS_NOWHERE = error(
    "One sample needs {least_bytes} of memory, more than a {gpu} has.",
    "Give fewer tokens with {--seq}, or leave that GPU out.",
)
SEARCH_OF_CONFIG = error("Only keys of a model's config.json can be varied, and {path} is none.", "Give a config.json.")
VARY_MALFORMED = error(
    "{given!r} doesn't say what a key is varied over.",
    "Give each key once with its values: {--vary} num_hidden_layers=12,24,48 {--vary} hidden_size=1024:4096:512.",
)
VARY_KEY_UNKNOWN = error("{key} leads into what the config doesn't hold.", "It holds {known:list}.")
NOTHING_VARIED = error("No key is varied.", "Give one or more: {--vary} num_hidden_layers=12,24,48.")
VARIANTS_MANY = error("There are {variants} variants.", "Give values for 1 to {most} combinations.")
VARIANT_FAILS = error("{reason}")
FASTEST_VARIANT = note("Of {variants:count variant} the fastest is {values:list}: {step} a step on {gpu}.")
VARIANTS_FAIL = error("None of {variants} variants can be predicted. {reason}")
DEPTHS_DIFFER = error("Its layers aren't those that the same model has at another depth.", "Predict it alone.")
CAPTURING_VARIANT = note("capture variant {number} of {variants}")
PREDICTING_VARIANT = note("predict variant {number} of {variants}")
CAPTURE_TARGET_NEEDED = error("No GPU is given.", "Give one or more: {--gpu} h100-sxm.")


name_templates(globals())
