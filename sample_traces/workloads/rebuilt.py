"""Jobs of public traces, rebuilt with the same shapes: each is named after the trace that its prediction starts from.

The transformers come from Hugging Face's library, with random weights; nothing is downloaded. Preparing the input on
the CPU, of which some of these traces hold more than the model, isn't part of the step: compare the time on the GPU.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from sample_traces.workloads.step import Step, infer
from sample_traces.workloads.vision import RESNET50_BLOCKS, ResNet

VGG13 = (64, 64, 0, 128, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0)
"""Filters of the 3x3 convolutions; 0 halves the image (Simonyan and Zisserman, 2014, column B)."""
TINY: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2}
FORWARDS = 5
"""How often the trace of OWLv2 runs the model in a step."""


def vgg13_train(device: str, small: bool) -> Step:
    """Train VGG-13 in fp32, convolutions in TF32, by Adam."""
    filters, batch, pixels, hidden = ((8, 0), 2, 14, 16) if small else (VGG13, 512, 224, 4096)
    features: list[nn.Module] = []
    channels = 3
    for outputs in filters:
        if outputs:
            features += [nn.Conv2d(channels, outputs, 3, padding=1), nn.ReLU(inplace=True)]
            channels = outputs
        else:
            features.append(nn.MaxPool2d(2))
    features += [nn.AdaptiveAvgPool2d(7), nn.Flatten()]
    classifier: list[nn.Module] = []
    for inputs in (49 * channels, hidden):
        classifier += [nn.Linear(inputs, hidden), nn.ReLU(inplace=True), nn.Dropout()]
    model = nn.Sequential(*features, *classifier, nn.Linear(hidden, 1000)).to(device)
    return _classify(model, device, batch, pixels, torch.optim.Adam(model.parameters()))


def resnet50_train(device: str, small: bool) -> Step:
    """Train ResNet-50 in fp32, by SGD."""
    model = (ResNet((1, 1), 8) if small else ResNet(RESNET50_BLOCKS)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    return _classify(model, device, *((2, 32) if small else (32, 224)), optimizer)


def vit_inference(device: str, small: bool) -> Step:
    """Run ViT-B/16 on four images."""
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(**({**TINY, "image_size": 32} if small else {}))
    model = _random(ViTModel, config, device, "sdpa")
    pixels = _image(device, 4, 3, config.image_size)
    return infer(lambda: model(pixels).pooler_output)


def timesformer_inference(device: str, small: bool) -> Step:
    """Run TimeSformer on 128 frames, which the model of 8 frames takes for a higher image."""
    from transformers import TimesformerConfig, TimesformerForVideoClassification

    config = TimesformerConfig(num_labels=400, **({**TINY, "image_size": 32} if small else {}))
    model = _random(TimesformerForVideoClassification, config, device, "eager")
    pixels = _image(device, 1, 16 if small else 128, 3, config.image_size)
    return infer(lambda: model(pixels).logits)


def owlv2_inference(device: str, small: bool) -> Step:
    """Run OWLv2-large, one query on one image, five times over."""
    from transformers import Owlv2Config, Owlv2ForObjectDetection

    large = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
    text = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
    vision = {**(TINY if small else large), "image_size": 28 if small else 1008, "patch_size": 14}
    config = Owlv2Config(vision_config=vision, text_config=TINY if small else text, projection_dim=64 if small else 768)
    model = _random(Owlv2ForObjectDetection, config, device, "eager")
    pixels = _image(device, 1, 3, vision["image_size"])
    query = torch.ones(1, 5, dtype=torch.long, device=device)
    return infer(lambda: [model(query, pixels, query).logits for _ in range(FORWARDS)][-1])


WORKLOADS = {
    "h100_vit_inference": vit_inference,
    "h100_timesformer_inference": timesformer_inference,
    "h100_owlv2_large_inference": owlv2_inference,
    "h100_vgg13_train_bs512": vgg13_train,
    "v100_resnet50_train_6steps_2021": resnet50_train,
}


def _random(kind: Any, config: Any, device: str, attention: str) -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = kind._from_config(config, dtype=torch.bfloat16, attn_implementation=attention)
    return model.to(device).eval()


def _image(device: str, *size: int) -> torch.Tensor:
    return torch.randn(*size, size[-1], device=device, dtype=torch.bfloat16)


def _classify(model: nn.Module, device: str, batch: int, pixels: int, optimizer: torch.optim.Optimizer) -> Step:
    images = torch.randn(batch, 3, pixels, pixels, device=device)
    labels = torch.randint(1000, (batch,), device=device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step
