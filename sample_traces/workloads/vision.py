"""ResNet-50 and a ViT-B/16, trained in mixed precision."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from sample_traces.workloads.step import Step, half, train

RESNET50_BLOCKS = (3, 4, 6, 3)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions around a residual (He et al., 2015)."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            *_convolution(inputs, width, 1, 1),
            nn.ReLU(inplace=True),
            *_convolution(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *_convolution(width, outputs, 1, 1),
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Sequential(*_convolution(inputs, outputs, 1, stride))

    def forward(self, image: Tensor) -> Tensor:
        """Return the features after this block."""
        return functional.relu(self.body(image) + self.shortcut(image), inplace=True)


class ResNet(nn.Module):
    """ResNet of bottleneck blocks."""

    def __init__(self, blocks: tuple[int, ...], width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        stem = [*_convolution(3, width, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        stages, inputs = [], width
        for stage, count in enumerate(blocks):
            for block in range(count):
                stages.append(Bottleneck(inputs, width << stage, 2 if stage and not block else 1))
                inputs = 4 * (width << stage)
        self.features = nn.Sequential(*stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(inputs, classes)

    def forward(self, image: Tensor) -> Tensor:
        """Return the logits."""
        return self.head(self.features(image))


class Vit(nn.Module):
    """Vision transformer on 16x16 patches (Dosovitskiy et al., 2020)."""

    def __init__(self, width: int, layers: int, heads: int, pixels: int, classes: int = 1000) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.positions = nn.Parameter(torch.zeros(1, (pixels // 16) ** 2, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        """Return the logits."""
        tokens = self.patches(image).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.layers(tokens).mean(1))


def resnet50_train(device: str, small: bool) -> Step:
    """Train ResNet-50 on images in channels-last layout."""
    model = ResNet((1, 1), 8) if small else ResNet(RESNET50_BLOCKS)
    return _classify(model, device, batch=2 if small else 64, pixels=32 if small else 224)


def vit_train(device: str, small: bool) -> Step:
    """Train ViT-B/16."""
    pixels = 32 if small else 224
    model = Vit(32, 2, 2, pixels) if small else Vit(768, 12, 12, pixels)
    return _classify(model, device, batch=2 if small else 64, pixels=pixels)


WORKLOADS = {"resnet50_train": resnet50_train, "vit_train": vit_train}


def _classify(model: nn.Module, device: str, batch: int, pixels: int) -> Step:
    torch.manual_seed(0)
    model = model.to(device, memory_format=torch.channels_last)
    images = torch.randn(batch, 3, pixels, pixels, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (batch,), device=device)
    return train(model.parameters(), lambda: functional.cross_entropy(model(images), labels), half(device))


def _convolution(inputs: int, outputs: int, kernel: int, stride: int) -> tuple[nn.Module, nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return convolution, nn.BatchNorm2d(outputs)
