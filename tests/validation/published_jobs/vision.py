"""Image classifiers in plain PyTorch, layer by layer as timm builds them; a table of benchmarks checks their sizes."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

CLASSES = 1000
Build = Callable[[], nn.Module]


def conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """A convolution that keeps the size but for its stride, without bias."""
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)


def normed(
    inputs: int,
    outputs: int,
    kernel: int = 1,
    stride: int = 1,
    groups: int = 1,
    act: type[nn.Module] | None = nn.ReLU,
) -> nn.Sequential:
    """A convolution, batch norm and, if any, an activation."""
    layers: list[nn.Module] = [conv(inputs, outputs, kernel, stride, groups), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([act(inplace=True)] if act else []))


class Pooled(nn.Module):
    """The mean over all pixels of [N, C, H, W], or over all tokens of [N, T, C]."""

    def forward(self, x: Tensor) -> Tensor:
        """Return [N, C]."""
        return x.mean((2, 3)) if x.dim() == 4 else x.mean(1)


class SqueezeExcite(nn.Module):
    """Scale each channel by what the mean of all channels says."""

    def __init__(self, width: int, reduced: int, act: type[nn.Module] = nn.ReLU) -> None:
        super().__init__()
        self.squeeze, self.act, self.excite = nn.Conv2d(width, reduced, 1), act(), nn.Conv2d(reduced, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return [N, C, H, W]."""
        return x * self.excite(self.act(self.squeeze(x.mean((2, 3), keepdim=True)))).sigmoid()


class Residual(nn.Module):
    """``inner`` beside ``shortcut``, and an activation of the sum, if any."""

    def __init__(self, inner: nn.Module, shortcut: nn.Module | None = None, act: nn.Module | None = None) -> None:
        super().__init__()
        self.inner, self.shortcut, self.act = inner, shortcut or nn.Identity(), act or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return what has the shape of ``inner``'s result."""
        return self.act(self.inner(x) + self.shortcut(x))


def resnet(
    depths: Sequence[int], *, wide: bool = True, width: int = 64, groups: int = 1, excites: bool = False
) -> nn.Module:
    """ResNet and its kin: ResNeXt has groups, wide ResNets a larger width, SE-ResNet scales channels."""
    layers: list[nn.Module] = [normed(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, depth in enumerate(depths):
        planes, inner = 64 << stage, (width * groups if groups > 1 else width) << stage
        outputs = 4 * planes if wide else planes
        for block in range(depth):
            stride = 2 if stage and not block else 1
            if wide:
                body = nn.Sequential(
                    normed(inputs, inner),
                    normed(inner, inner, 3, stride, groups),
                    normed(inner, outputs, act=None),
                    *([SqueezeExcite(outputs, outputs // 16)] if excites else []),
                )
            else:
                body = nn.Sequential(normed(inputs, planes, 3, stride), normed(planes, planes, 3, act=None))
            shortcut = None if (stride, inputs) == (1, outputs) else normed(inputs, outputs, 1, stride, act=None)
            layers.append(Residual(body, shortcut, nn.ReLU(inplace=True)))
            inputs = outputs
    return nn.Sequential(*layers, Pooled(), nn.Linear(inputs, CLASSES))


def vgg(depths: Sequence[int]) -> nn.Module:
    """VGG, whose classifier is three convolutions in timm."""
    layers: list[nn.Module] = []
    inputs = 3
    for outputs, depth in zip((64, 128, 256, 512, 512), depths, strict=True):
        for _ in range(depth):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
            inputs = outputs
        layers.append(nn.MaxPool2d(2, 2))
    layers += [nn.Conv2d(512, 4096, 7), nn.ReLU(inplace=True), nn.Conv2d(4096, 4096, 1), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, Pooled(), nn.Linear(4096, CLASSES))


class DenseLayer(nn.Module):
    """Join its input with ``growth`` new channels of it."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            *(nn.BatchNorm2d(inputs), nn.ReLU(inplace=True), conv(inputs, 4 * growth)),
            *(nn.BatchNorm2d(4 * growth), nn.ReLU(inplace=True), conv(4 * growth, growth, 3)),
        )

    def forward(self, features: list[Tensor]) -> list[Tensor]:
        """Return the features with one more."""
        return [*features, self.inner(torch.cat(features, 1))]


class DenseBlock(nn.Module):
    """Layers that each see what all before them found."""

    def __init__(self, depth: int, inputs: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(inputs + growth * i, growth) for i in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        """Return [N, inputs + depth * growth, H, W]."""
        features = [x]
        for layer in self.layers:
            features = layer(features)
        return torch.cat(features, 1)


def densenet(depths: Sequence[int], growth: int = 32) -> nn.Module:
    """DenseNet."""
    width = 2 * growth
    layers: list[nn.Module] = [normed(3, width, 7, 2), nn.MaxPool2d(3, 2, 1)]
    for stage, depth in enumerate(depths):
        layers.append(DenseBlock(depth, width, growth))
        width += depth * growth
        layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        if stage < len(depths) - 1:
            layers += [conv(width, width // 2), nn.AvgPool2d(2, 2)]
            width //= 2
    return nn.Sequential(*layers, Pooled(), nn.Linear(width, CLASSES))


def inverted(rows: Sequence[tuple[int, int, int, int, int]], act: type[nn.Module], *, excites: bool) -> nn.Module:
    """MobileNetV2 and EfficientNet: depth, kernel, stride, expansion and channels of each stage."""
    layers: list[nn.Module] = [normed(3, 32, 3, 2, act=act)]
    inputs = 32
    for depth, kernel, stride, expansion, outputs in rows:
        for block in range(depth):
            width, step = inputs * expansion, stride if block == 0 else 1
            body = nn.Sequential(
                *([normed(inputs, width, act=act)] if expansion > 1 else []),
                normed(width, width, kernel, step, width, act=act),
                *([SqueezeExcite(width, max(inputs // 4, 1), act)] if excites else []),
                normed(width, outputs, act=None),
            )
            layers.append(Residual(body) if (step, inputs) == (1, outputs) else body)
            inputs = outputs
    return nn.Sequential(*layers, normed(inputs, 1280, act=act), Pooled(), nn.Linear(1280, CLASSES))


class Scaled(nn.Module):
    """Each channel, the last axis, by its own factor."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return what has the shape of ``x``."""
        return x * self.factor


class ChannelsMoved(nn.Module):
    """``inner``, which takes channels last, of a tensor that has them first; or of their transpose."""

    def __init__(
        self, *inner: nn.Module, axes: Sequence[int] = (0, 2, 3, 1), back: Sequence[int] = (0, 3, 1, 2)
    ) -> None:
        super().__init__()
        self.inner, self.axes, self.back = nn.Sequential(*inner), tuple(axes), tuple(back)

    def forward(self, x: Tensor) -> Tensor:
        """Return what has the axes of ``x``."""
        return self.inner(x.permute(self.axes)).permute(self.back)


def convnext(depths: Sequence[int], widths: Sequence[int]) -> nn.Module:
    """ConvNeXt."""
    layers: list[nn.Module] = []
    inputs = 3
    for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
        size, norm = (2, inputs) if stage else (4, width)
        layers += [nn.Conv2d(inputs, width, size, size), ChannelsMoved(nn.LayerNorm(norm))][:: -1 if stage else 1]
        for _ in range(depth):
            mlp = nn.LayerNorm(width), *feed_forward(width, 4 * width), Scaled(width)
            depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
            layers.append(Residual(nn.Sequential(depthwise, ChannelsMoved(*mlp))))
        inputs = width
    return nn.Sequential(*layers, Pooled(), nn.LayerNorm(inputs), nn.Linear(inputs, CLASSES))


def feed_forward(width: int, inner: int) -> tuple[nn.Module, ...]:
    """Two linear layers with a GELU between them."""
    return nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width)


class Attention(nn.Module):
    """Self-attention over all tokens; by a fused kernel, or in products as before PyTorch 2."""

    def __init__(self, width: int, heads: int, *, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return [N, T, C]."""
        batch, tokens, width = x.shape
        query, key, value = self.qkv(x).reshape(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind()
        if self.fused:
            mixed = functional.scaled_dot_product_attention(query, key, value)
        else:
            mixed = ((query @ key.transpose(-2, -1)) * query.shape[-1] ** -0.5).softmax(-1) @ value
        return self.projection(mixed.transpose(1, 2).reshape(batch, tokens, width))


class Patches(nn.Module):
    """Cut the image into tokens; adds a class token and positions where ``positions`` says how many."""

    def __init__(self, width: int, patch: int, positions: int = 0) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.empty(1, 1, width)) if positions else None
        self.positions = nn.Parameter(torch.empty(1, positions, width)) if positions else None

    def forward(self, x: Tensor) -> Tensor:
        """Return [N, T, C]."""
        tokens = self.cut(x).flatten(2).transpose(1, 2)
        if self.first is None or self.positions is None:
            return tokens
        return torch.cat([self.first.expand(x.shape[0], -1, -1), tokens], 1) + self.positions


class First(nn.Module):
    """The class token."""

    def forward(self, x: Tensor) -> Tensor:
        """Return [N, C]."""
        return x[:, 0]


def vit(width: int, depth: int, heads: int, patch: int = 16, size: int = 224, *, fused: bool = True) -> nn.Module:
    """Vision transformer; DeiT is the same."""
    layers: list[nn.Module] = [Patches(width, patch, (size // patch) ** 2 + 1)]
    for _ in range(depth):
        layers.append(Residual(nn.Sequential(nn.LayerNorm(width), Attention(width, heads, fused=fused))))
        layers.append(Residual(nn.Sequential(nn.LayerNorm(width), *feed_forward(width, 4 * width))))
    return nn.Sequential(*layers, nn.LayerNorm(width), First(), nn.Linear(width, CLASSES))


def mixer(width: int, depth: int, patch: int = 16) -> nn.Module:
    """MLP-Mixer."""
    layers: list[nn.Module] = [Patches(width, patch)]
    for _ in range(depth):
        over_tokens = ChannelsMoved(*feed_forward((224 // patch) ** 2, width // 2), axes=(0, 2, 1), back=(0, 2, 1))
        layers.append(Residual(nn.Sequential(nn.LayerNorm(width), over_tokens)))
        layers.append(Residual(nn.Sequential(nn.LayerNorm(width), *feed_forward(width, 4 * width))))
    return nn.Sequential(*layers, nn.LayerNorm(width), Pooled(), nn.Linear(width, CLASSES))


MOBILE = ((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (3, 3, 2, 6, 32), (4, 3, 2, 6, 64), (3, 3, 1, 6, 96), (3, 3, 2, 6, 160),
          (1, 3, 1, 6, 320))  # fmt: skip
EFFICIENT = ((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112),
             (4, 5, 2, 6, 192), (1, 3, 1, 6, 320))  # fmt: skip

MODELS: dict[str, Build] = {
    "resnet18": partial(resnet, (2, 2, 2, 2), wide=False),
    "resnet34": partial(resnet, (3, 4, 6, 3), wide=False),
    "resnet50": partial(resnet, (3, 4, 6, 3)),
    "resnet101": partial(resnet, (3, 4, 23, 3)),
    "resnet152": partial(resnet, (3, 8, 36, 3)),
    "wide_resnet50_2": partial(resnet, (3, 4, 6, 3), width=128),
    "resnext50_32x4d": partial(resnet, (3, 4, 6, 3), width=4, groups=32),
    "resnext101_32x4d": partial(resnet, (3, 4, 23, 3), width=4, groups=32),
    "resnext101_32x8d": partial(resnet, (3, 4, 23, 3), width=8, groups=32),
    "seresnet50": partial(resnet, (3, 4, 6, 3), excites=True),
    "seresnext101_32x4d": partial(resnet, (3, 4, 23, 3), width=4, groups=32, excites=True),
    "vgg11": partial(vgg, (1, 1, 2, 2, 2)),
    "vgg16": partial(vgg, (2, 2, 3, 3, 3)),
    "vgg19": partial(vgg, (2, 2, 4, 4, 4)),
    "densenet121": partial(densenet, (6, 12, 24, 16)),
    "densenet169": partial(densenet, (6, 12, 32, 32)),
    "densenet201": partial(densenet, (6, 12, 48, 32)),
    "mobilenetv2_100": partial(inverted, MOBILE, nn.ReLU6, excites=False),
    "efficientnet_b0": partial(inverted, EFFICIENT, nn.SiLU, excites=True),
    "convnext_tiny": partial(convnext, (3, 3, 9, 3), (96, 192, 384, 768)),
    "convnext_small": partial(convnext, (3, 3, 27, 3), (96, 192, 384, 768)),
    "convnext_base": partial(convnext, (3, 3, 27, 3), (128, 256, 512, 1024)),
    "convnext_large": partial(convnext, (3, 3, 27, 3), (192, 384, 768, 1536)),
    "vit_tiny_patch16_224": partial(vit, 192, 12, 3),
    "vit_small_patch16_224": partial(vit, 384, 12, 6),
    "vit_base_patch32_224": partial(vit, 768, 12, 12, 32),
    "vit_base_patch16_224": partial(vit, 768, 12, 12),
    "vit_large_patch16_224": partial(vit, 1024, 24, 16),
    "mixer_b16_224": partial(mixer, 768, 12),
    "mixer_l16_224": partial(mixer, 1024, 24),
}
"""By timm's names."""
