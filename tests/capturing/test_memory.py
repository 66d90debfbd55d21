"""The memory of captured steps in layouts, by hand and against PyTorch's own trackers."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

import tracekit as tk
from predictors import load_gpu
from tests.capturing.blocks import Block
from tracekit.bounds import MAX_METADATA_BYTES
from tracekit.capturing.program import CapturedProgram, capture
from tracekit.capturing.timed_trace import load_captured
from tracekit.models.captured import FACTS_KEY, CaptureFacts
from tracekit.parallelism.layout import Layout
from tracekit.prediction.memory import MemoryFit, judge_memory_fit
from tracekit.run import prepare_run

WIDTH, LAYERS, ROWS = 1024, 6, 512
WEIGHTS_BYTES = 4 * WIDTH * WIDTH
MIB = 2**20


def capture_layers(**options: object) -> CapturedProgram:
    """Capture a training step of equal linear layers of 4 MiB each."""
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.GELU()) for _ in range(LAYERS)))
        rows = torch.zeros(ROWS, WIDTH)
    return capture(model, rows, training=True, **options)  # type: ignore[arg-type]


def judge(program: CapturedProgram, new: Layout) -> MemoryFit:
    """Judge the memory of a rank in a layout."""
    run = prepare_run(load_captured(program))
    return judge_memory_fit(run.program, None, load_gpu("h100-sxm"), (Layout(), new))


def test_moments_tell_gradients_activations_and_the_update_apart():
    facts = capture_layers(optimizer="adamw").facts
    gradients, activations, update = facts.peaks[-1]
    assert gradients == LAYERS * WEIGHTS_BYTES
    assert activations <= 2 * 4 * ROWS * WIDTH + 1024  # the output and the loss
    assert update == LAYERS * WEIGHTS_BYTES  # torch._foreach_sqrt of the second moments
    assert facts.held_bytes + max(map(sum, facts.peaks)) == facts.peak_bytes
    assert facts.state_bytes == 2 * LAYERS * WEIGHTS_BYTES
    # Forward each layer keeps its linear layer's output and GELU's: 4 MiB.
    assert max(kept for _, kept, _ in facts.peaks) >= LAYERS * 2 * 4 * ROWS * WIDTH


def test_fsdp_shards_the_state_and_gathers_layers():
    program = capture_layers(optimizer="adamw")
    whole, sharded = judge(program, Layout()), judge(program, Layout(dp=8, sharded=True))
    assert whole.min_bytes == whole.max_bytes == program.facts.peak_bytes
    assert sharded.min_bytes is not None
    assert sharded.max_bytes is not None
    # Parameters and two moments of 24 MiB each, over 8 ranks; the input; 24 MiB of activations; gathered layers.
    kept = max(kept for _, kept, _ in program.facts.peaks)
    fixed = 3 * LAYERS * WEIGHTS_BYTES / 8 + 4 * ROWS * WIDTH
    assert sharded.min_bytes >= fixed + kept + WEIGHTS_BYTES
    assert sharded.max_bytes <= fixed + kept + 5 * WEIGHTS_BYTES + LAYERS * WEIGHTS_BYTES / 8


def test_ddp_adds_buckets_and_a_batch_grows_activations_alone():
    program = capture_layers()
    assert judge(program, Layout(dp=2)).max_bytes == program.facts.peak_bytes + LAYERS * WEIGHTS_BYTES
    # Compressed buckets take half as much again.
    halved = judge(program, Layout(dp=2, gradient_compression="bf16"))
    assert halved.max_bytes == program.facts.peak_bytes + 1.5 * LAYERS * WEIGHTS_BYTES
    largest = max(ours + 2 * kept for ours, kept, _ in program.facts.peaks)
    assert judge(program, Layout(batch=2.0)).max_bytes == program.facts.held_bytes + largest


def test_facts_without_moments_are_still_read():
    facts = capture_layers().facts.to_dict()
    del facts["peaks"], facts["state_bytes"]
    read = CaptureFacts.from_metadata({FACTS_KEY: facts})
    assert read is not None
    assert read.peaks == ()


def test_without_moments_gradients_may_be_of_what_a_batch_grows():
    """Of what the step makes, 24 MiB may be gradients, which don't grow with the batch."""
    program = capture_layers()
    facts = replace(program.facts, peaks=())
    found = judge(replace(program, facts=facts), Layout(batch=2.0))
    most = facts.held_bytes + 2 * (facts.peak_bytes - facts.held_bytes)
    assert (found.min_bytes, found.max_bytes) == (most - LAYERS * WEIGHTS_BYTES, most)


@pytest.mark.heavy
def test_a_sweep_tries_layouts_where_none_is_asked_for_and_leaves_out_what_cannot_fit():
    with torch.device("meta"):
        model = nn.Sequential(*(Block() for _ in range(4)))
        rows = torch.zeros(2, 128, 256)
    trace = tk.capture(model, rows, training=True)
    found = tk.sweep(trace, cluster="8xh100-sxm", micro_batches=16).table
    tried = set(found.filter(ranks=8).select("dp", "tp", "pp").iter_rows())
    assert {(8, 1, 1), (4, 2, 1), (4, 1, 2), (2, 2, 2), (2, 4, 1)} <= tried
    assert set(found["fsdp"]) == set(found["sequence_parallel"]) == {False, True}
    assert set(tk.sweep(trace, cluster="8xh100-sxm", tp=2).table["tp"]) == {2}


TOLERANCE = 0.05
TRACKER_WARNS = pytest.mark.filterwarnings("ignore:Module is None")


def build_model(kind: str) -> tuple[nn.Module, torch.Tensor]:
    """Build a small language model, without dropout, which a CPU computes by other kernels than a GPU."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    import transformers

    configs = {
        "llama": transformers.LlamaConfig(
            hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16, vocab_size=32000
        ),
        "gpt2": transformers.GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0),
        "bert": transformers.BertConfig(hidden_dropout_prob=0, attention_probs_dropout_prob=0),
    }
    head = transformers.AutoModelForMaskedLM if kind == "bert" else transformers.AutoModelForCausalLM
    model = head.from_config(configs[kind], attn_implementation="sdpa")
    return model.train(), torch.zeros(4, 512, dtype=torch.int64)


def capture_model(kind: str) -> CapturedProgram:
    """Capture its training step with AdamW."""
    with torch.device("meta"):
        model, words = build_model(kind)
    keywords = {"input_ids": words, "labels": words, "use_cache": False}
    return capture(model, training=True, optimizer="adamw", keywords=keywords)


@pytest.fixture
def mesh():
    """Eight ranks that exchange nothing."""
    from torch.distributed import destroy_process_group, init_process_group
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    yield init_device_mesh("cpu", (8,))
    destroy_process_group()


def track(model: nn.Module, words: torch.Tensor, tracker: object, optimizer: torch.optim.Optimizer) -> float:
    """Return the most bytes of the second step, as a tracker of PyTorch counts them."""
    with tracker as mode:  # type: ignore[attr-defined]
        for step in range(2):
            output = model(input_ids=words, labels=words, use_cache=False)
            output.loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == 0:
                mode.reset_mod_stats()
    return float(max(sizes["Total"] for sizes in mode.get_tracker_snapshot("peak").values()))


@pytest.mark.heavy
@TRACKER_WARNS
@pytest.mark.parametrize("kind", ["llama", "gpt2", "bert"])
def test_memory_is_that_of_torchs_tracker(kind):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    with FakeTensorMode():
        model, words = build_model(kind)
        optimizer, tracker = torch.optim.AdamW(model.parameters(), foreach=True), MemTracker()
        tracker.track_external(model, optimizer, words)
        truth = track(model, words, tracker, optimizer)
    assert capture_model(kind).facts.peak_bytes == pytest.approx(truth, rel=TOLERANCE)


@pytest.mark.heavy
@TRACKER_WARNS
def test_fsdp_memory_is_that_of_torchs_tracker(mesh):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.distributed.fsdp import fully_shard

    with FakeTensorMode():
        model, words = build_model("llama")
        for layer in model.model.layers:  # type: ignore[union-attr]
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        tracker = FSDPMemTracker(model, optimizer)
        tracker.track_inputs((words,))
        truth = track(model, words, tracker, optimizer)
    found = judge(capture_model("llama"), Layout(dp=8, sharded=True))
    assert found.min_bytes == pytest.approx(truth, rel=TOLERANCE)
    assert found.max_bytes == pytest.approx(truth, rel=TOLERANCE)


class Stacked(nn.Module):
    """Blocks between two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(256, 256, bias=False), nn.Linear(256, 512, bias=False)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what they make of it."""
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def capture_stacked(**options: bool) -> CapturedProgram:
    """Capture a training step of blocks with 2 sequences of 128 tokens, in fp32."""
    with torch.device("meta"):
        model, rows = Stacked(), torch.zeros(2, 128, 256)
    return capture(model, rows, training=True, optimizer="adamw", **options)


class Looped(nn.Module):
    """Layers that run twice in a pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in [*self.layers, *self.layers]:
            x = layer(x)
        return x


def test_layers_that_run_twice_in_a_pass_tell_no_stages():
    with torch.device("meta"):
        model, rows = Looped(), torch.zeros(4, 8)
    assert capture(model, rows, training=True).facts.layers is None


def test_layers_tell_what_stages_hold():
    facts = capture_stacked().facts
    layers = facts.layers
    assert layers is not None
    of_block = 4 * (2 * 256 + 256 + 256 * 768 + 768 + 256 * 1024 + 1024 + 1024 * 256 + 256)
    assert layers.parameter_bytes == (of_block,) * LAYERS
    assert (layers.first_parameter_bytes, layers.last_parameter_bytes) == (4 * 256 * 256, 4 * 512 * 256)
    # Norms, products of 768 and 1024 columns, GELU, attention and residuals, of 256 tokens in 4 bytes.
    row = 4 * 256
    assert all(
        row * (768 + 2 * 1024 + 4 * 256) <= kept <= row * (768 + 2 * 1024 + 9 * 256) for kept in layers.kept_bytes
    )
    assert layers.first_kept_bytes == row * 256
    most = max(kept for _, kept, _ in facts.peaks)
    held = layers.first_kept_bytes + sum(layers.kept_bytes)
    assert held < most <= held + max(*layers.extra_bytes, layers.last_extra_bytes)
    # As many layers on each stage of the one pass that a pipeline of one micro-batch has.
    fit = judge(capture_stacked(), Layout(pp=2, micro_batches=1))
    assert fit.min_bytes == fit.max_bytes
    assert fit.max_bytes is not None
    assert facts.peak_bytes / 2 < fit.max_bytes < 0.7 * facts.peak_bytes


def test_tensor_parallel_ranks_keep_the_part_that_shapes_tell():
    program = capture_stacked()
    split, sequence = (judge(program, Layout(tp=4, sequence_parallel=also)) for also in (False, True))
    assert split.min_bytes == split.max_bytes
    assert sequence.min_bytes is not None
    assert sequence.max_bytes is not None
    assert split.max_bytes is not None
    assert sequence.min_bytes < sequence.max_bytes <= split.max_bytes
    assert sequence.min_bytes == pytest.approx(program.facts.peak_bytes / 4, rel=0.15)


def test_context_parallel_ranks_keep_their_part_of_the_activations():
    """On 4 ranks DDP's buckets come on top, as on 4 replicas."""
    program = capture_stacked()
    replicas, split = (judge(program, layout).max_bytes for layout in (Layout(dp=4), Layout(cp=4)))
    assert replicas is not None
    assert split is not None
    least = max(one + held / 4 + other for one, held, other in program.facts.peaks)
    most = max(map(sum, program.facts.peaks))
    assert replicas - split == most - least


def test_a_compiled_step_never_makes_what_one_kernel_writes_and_reads():
    eager, compiled = (capture_stacked(compiled=on).facts for on in (False, True))
    assert max(sum(one) for one in compiled.peaks) <= max(sum(one) for one in eager.peaks)
    assert compiled.layers is not None
    assert eager.layers is not None
    assert sum(compiled.layers.extra_bytes) < sum(eager.layers.extra_bytes)


def test_a_trace_keeps_the_facts_of_many_layers():
    """Its metadata has room for 4 KB of a key."""
    facts = capture_stacked().facts
    assert facts.layers is not None
    deep = replace(facts, layers=replace(facts.layers, order=(0,) * 128))
    assert len(json.dumps(deep.to_dict())) < MAX_METADATA_BYTES
    assert CaptureFacts.from_metadata({FACTS_KEY: json.loads(json.dumps(deep.to_dict()))}) == deep


class Draft(nn.Module):
    """A linear layer beside 64 copies of its rows, which no backward pass needs."""

    def __init__(self) -> None:
        super().__init__()
        self.product = nn.Linear(64, 64, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the product."""
        with torch.no_grad():
            x.repeat(1, 64)
        found: torch.Tensor = self.product(x)
        return found


def test_a_layer_needs_what_its_forward_pass_makes_for_a_moment():
    with torch.device("meta"):
        model, rows = nn.Sequential(nn.ModuleList([Draft(), Draft()])), torch.zeros(1024, 64)
        model.forward = lambda x: model[0][1](model[0][0](x))  # type: ignore[method-assign,index,operator]
    layers = capture(model, rows, training=True).facts.layers
    assert layers is not None
    own = 1024 * 64 * 4
    assert layers.kept_bytes == (own, own)
    assert min(layers.extra_bytes) >= 63 * own
