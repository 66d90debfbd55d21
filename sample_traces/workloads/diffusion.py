"""A block of a diffusion U-Net: residual convolutions with group norm, self- and cross-attention, up and down again."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from sample_traces.workloads.step import Step, infer

PROMPT_TOKENS = 77


class Residual(nn.Module):
    """Group norm, SiLU and a convolution, twice."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(
                layer
                for _ in range(2)
                for layer in (nn.GroupNorm(8, channels), nn.SiLU(), nn.Conv2d(channels, channels, 3, padding=1))
            )
        )

    def forward(self, image: Tensor) -> Tensor:
        """Return the image after this block."""
        return image + self.body(image)


class CrossAttention(nn.Module):
    """Every pixel attends to all pixels, then to the prompt."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.pixels = nn.MultiheadAttention(channels, heads, batch_first=True)
        self.prompt = nn.MultiheadAttention(channels, heads, batch_first=True)

    def forward(self, image: Tensor, prompt: Tensor) -> Tensor:
        """Return the image after this block."""
        tokens = image.flatten(2).transpose(1, 2)
        seen = self.norm(tokens)
        tokens = tokens + self.pixels(seen, seen, seen, need_weights=False)[0]
        tokens = tokens + self.prompt(self.norm(tokens), prompt, prompt, need_weights=False)[0]
        return tokens.transpose(1, 2).reshape(image.shape)


class UnetBlock(nn.Module):
    """Down by two, attention, up by two, with a skip."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.enter, self.leave = Residual(channels), Residual(channels)
        self.down = nn.Conv2d(channels, channels, 3, stride=2, padding=1)
        self.middle = CrossAttention(channels, heads)
        self.up = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, image: Tensor, prompt: Tensor) -> Tensor:
        """Return the image after this block."""
        image = self.enter(image)
        low = self.middle(self.down(image), prompt)
        return self.leave(image + self.up(functional.interpolate(low, scale_factor=2.0)))


def unet_step(device: str, small: bool) -> Step:
    """Run one denoising step of four images of 64x64 latents in fp16 (bf16 on a CPU)."""
    torch.manual_seed(0)
    channels, pixels, images = (16, 8, 1) if small else (320, 64, 4)
    dtype = torch.bfloat16 if device == "cpu" else torch.float16
    model = UnetBlock(channels, heads=8).to(device, dtype).eval()
    image = torch.randn(images, channels, pixels, pixels, device=device, dtype=dtype)
    prompt = torch.randn(images, PROMPT_TOKENS, channels, device=device, dtype=dtype)
    return infer(lambda: model(image, prompt))


WORKLOADS = {"unet_step": unet_step}
