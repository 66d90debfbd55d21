"""Hostile option values: what-if edits, prices, steps, ranks, layouts, names of GPUs and clusters, sizes and times.

Hypothesis puts them together from the pieces that the options' grammars know and from any text: random bytes would
seldom pass the first check.
"""

import json
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.command import check_command
from tests.fuzz.documents import BASES, dump_case
from tests.fuzz.promises import check_numbers, check_prediction, read_json
from tests.fuzz.target import Target
from tracekit.whatif.registry import EDITS

NUMBERS = [
    *(
        "0",
        "1",
        "2",
        "-1",
        "0.5",
        "1.5",
        "4",
        "8",
        "16",
        "3",
        "7",
        "1000",
        "1048576",
        "1048577",
        "1e6",
        "1e-6",
        "1e300",
        "1e-300",
    ),
    *(
        "1e308",
        "inf",
        "-inf",
        "nan",
        "NaN",
        "9" * 18,
        "9" * 19,
        "9" * 300,
        "9" * 400,
        "9" * 5000,
        "٣",
        "１",
        "1_0",
        "0x10",
    ),
    *("+1", " 1 ", "1,2", "", "-0", "01", "1e", ".5", "5.", "½", "²"),
]
TEXTS = [
    "",
    " ",
    "x",
    "=",
    "==",
    ",",
    ":",
    "(",
    ")",
    "'",
    '"',
    "\x1b[31m",
    "é",
    "\udc80",
    "../x",
    "[a-z",
    "(?P<",
    "*",
    "a" * 3000,
]
GPUS = [
    "h100-sxm",
    "t4",
    "H100",
    "a100",
    "nvidia",
    "h100,t4",
    "mi300x",
    "none.toml",
    "/dev/null.toml",
    "8xh100-sxm",
    "gb200",
]
CLUSTERS = [
    "8xh100-sxm",
    "2x8xh100-sxm@ndr400",
    "16xp5",
    "dgx-h100",
    "0x8xh100@ndr400",
    "8xh100@x",
    "1x1xt4",
    "4xb200",
    "@",
    "x",
]
KEYS = [
    "family",
    "name",
    "op",
    "dtype",
    "shape",
    "phase",
    "module",
    "stream",
    "rank",
    "layer",
    "python",
    "op",
    "launch",
    "x",
]
WORDS = [
    "gemm",
    "attention",
    "collective",
    "memcpy",
    "aten::*",
    "aten::item",
    "*",
    "bf16",
    "forward",
    "[",
    "7",
    "",
    "cuda*",
    "'a,b'",
]

numbers = st.sampled_from(NUMBERS)
texts = st.one_of(st.sampled_from(TEXTS), st.text(max_size=12))
pairs = st.builds("{}={}".format, st.sampled_from(KEYS), st.one_of(st.sampled_from(WORDS), numbers, texts))
arguments = st.lists(st.one_of(pairs, numbers, st.sampled_from(WORDS), texts), max_size=3).map(", ".join)
edits = st.one_of(
    st.builds("{}({})".format, st.sampled_from([*EDITS]), arguments),
    st.builds("{}({})".format, st.sampled_from([*EDITS]), arguments),
    st.builds("{}({}".format, st.sampled_from([*EDITS]), arguments),
    texts,
)
gpus = st.one_of(st.sampled_from(GPUS), texts)
clusters = st.one_of(
    st.sampled_from(CLUSTERS),
    st.builds(
        "{}x{}x{}@{}{}".format,
        numbers,
        numbers,
        st.sampled_from(GPUS),
        st.sampled_from(["ndr", "roce", "x", ""]),
        numbers,
    ),
    texts,
)
OPTIONS: dict[str, st.SearchStrategy[str]] = {
    "--what-if": edits,
    "--host-speed": st.one_of(numbers, arguments),
    "--unprofiled-step": st.builds("{}{}".format, numbers, st.sampled_from(["ms", "us", "s", " ms", "", "m", "µs"])),
    "--price": st.builds("{}={}".format, gpus, numbers),
    "--samples": numbers,
    "--steps": st.one_of(numbers, st.builds("{}:{}".format, numbers, numbers), texts),
    "--source-gpu": gpus,
    "--gpu": gpus,
    "--cluster": clusters,
    "--source-cluster": clusters,
    "--without-rule": st.one_of(st.sampled_from(["launch-order", "launch-queue"]), texts),
    "--memory": st.builds("{}{}".format, numbers, st.sampled_from(["G", "M", "K", "", "T", "x"])),
    "--ranks": numbers,
    "--top": numbers,
    "--batch": numbers,
    "--pp-schedule": st.one_of(st.sampled_from(["1f1b", "zero-bubble"]), numbers.map("interleaved:{}".format), texts),
    **dict.fromkeys(("--world-size", "--dp", "--tp", "--pp", "--ep", "--micro-batches"), numbers),
}
option = st.sampled_from([*OPTIONS]).flatmap(lambda name: st.tuples(st.just(name), OPTIONS[name]).map(list))
TARGETS = (["--gpu", "h100-sxm"], ["--cluster", "2x8xh100-sxm@ndr400"])
TRACES = ("training.json", "two_ranks.json")
PLAIN = ("--fsdp", "--stacks", "--no-calibration", "--strict")


def check(case: dict[str, Any]) -> None:
    """Run the command with the options."""
    given = [word for name, value in case["options"] for word in (f"{name}={value}",)]
    outcome = check_command(
        case["command"], str(BASES / case["trace"]), "--json", *given, *case["switches"], codes=(0, 1, 2, 4)
    )
    if outcome.code == 0 and case["command"] == "predict":
        check_prediction(read_json(outcome.out))
    elif outcome.code == 0:
        check_numbers(read_json(outcome.out))


TARGET = Target(
    name="options",
    cases=st.fixed_dictionaries(
        {
            "command": st.sampled_from(["predict", "predict", "sweep", "report"]),
            "trace": st.sampled_from(TRACES),
            "options": st.tuples(st.sampled_from(TARGETS), st.lists(option, min_size=1, max_size=4)).map(
                lambda parts: [parts[0], *parts[1]]
            ),
            "switches": st.lists(st.sampled_from(PLAIN), max_size=1),
        }
    ),
    check=check,
    load=json.loads,
    dump=dump_case,
    suffix=".json",
    examples=15,
)
