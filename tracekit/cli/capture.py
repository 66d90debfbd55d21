"""``tracekit capture``: a program that never ran, predicted from its code or its config."""

from typing import Annotated

import typer

from tracekit.cli.options import Json, Quiet

ProgramName = Annotated[
    str,
    typer.Argument(
        metavar="FILE.py:FUNCTION|CONFIG.json",
        help="A function that returns a model and its inputs, or a Hugging Face config (needs transformers).",
    ),
]
Targets = Annotated[list[str] | None, typer.Option("--gpu", "-g", metavar="NAME", help="A target GPU.")]
Train = Annotated[bool, typer.Option("--train", help="A training step: forward, backward and the optimizer.")]
OptimizerName = Annotated[
    str | None,
    typer.Option("--optimizer", metavar="NAME", help="adamw, adam or sgd, or fused-adamw and so on; default none."),
]
AutocastType = Annotated[str | None, typer.Option("--autocast", metavar="TYPE", help="Mixed precision: bf16 or fp16.")]
Tf32 = Annotated[bool, typer.Option("--tf32", help="Products of fp32 run in TF32.")]
CudaGraph = Annotated[bool, typer.Option("--cuda-graph", help="One CUDA graph launches all kernels.")]
Batch = Annotated[
    str, typer.Option("--batch", metavar="N", help="Of a config: sequences, or max for the most that a GPU holds.")
]
Tokens = Annotated[int, typer.Option("--seq", metavar="N", min=1, help="Of a config: tokens of each.")]
Dtype = Annotated[str, typer.Option("--dtype", metavar="TYPE", help="Of a config: bf16, fp16 or fp32.")]


def capture(
    program: ProgramName,
    gpu: Targets = None,
    train: Train = False,
    optimizer: OptimizerName = None,
    autocast: AutocastType = None,
    tf32: Tf32 = False,
    cuda_graph: CudaGraph = False,
    batch: Batch = "1",
    seq: Tokens = 2048,
    dtype: Dtype = "bf16",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """How long a program that never ran would take on GPUs, from its code or config; needs PyTorch, no GPU.

    Example: tracekit capture model.py:make --gpu h100-sxm --train --optimizer adamw

    It runs once on tensors without data, so it takes no memory and downloads nothing.
    """
    from tracekit.capturing.request import CaptureRequest, answer_capture
    from tracekit.cli.output import emit, show_progress
    from tracekit.messages import stages
    from tracekit.render import captured as render

    request = CaptureRequest(
        program=program,
        training=train,
        optimizer=optimizer,
        autocast=autocast,
        tf32=tf32,
        cuda_graph=cuda_graph,
        batch=batch,
        tokens=seq,
        dtype=dtype,
    )
    with show_progress(quiet) as stage:
        stage(stages.CAPTURING())
        found = answer_capture(request, gpu or [])
    emit(
        render.render_captured(found.program, found.steps),
        lambda: render.serialize_captured(found.program, found.steps),
        json=json,
    )
