"""Numbers as they are stored: float32, float16, or int8 with one scale per channel."""

from collections.abc import Mapping

import torch

PRECISIONS = ("float32", "float16", "int8")
SCALE = ".scale"


def pack(tensors: Mapping[str, torch.Tensor], precision: str) -> dict[str, torch.Tensor]:
    """Float tensors in `precision`; integer tensors as they are. int8 adds `NAME.scale`, float32, per channel (axis 1)."""
    packed: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or precision == "float32":
            packed[name] = tensor.contiguous()
        elif precision == "float16":
            packed[name] = tensor.half().contiguous()
        else:
            peak = tensor.abs().amax([d for d in range(tensor.ndim) if d != _channel_axis(tensor)], keepdim=True)
            scale = (peak / 127).clamp_min(1e-12)
            packed[name] = (tensor / scale).round().clamp(-127, 127).to(torch.int8).contiguous()
            packed[name + SCALE] = scale.flatten().contiguous()
    return packed


def unpack(packed: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The float32 tensors that `pack` stored, rounded as the precision rounds."""
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in packed.items():
        if name.endswith(SCALE) and name.removesuffix(SCALE) in packed:
            continue
        if tensor.dtype == torch.int8 and name + SCALE in packed:
            shape = [1] * tensor.ndim
            shape[_channel_axis(tensor)] = -1
            tensors[name] = tensor.float() * packed[name + SCALE].view(shape)
        elif tensor.is_floating_point():
            tensors[name] = tensor.float()
        else:
            tensors[name] = tensor
    return tensors


def _channel_axis(tensor: torch.Tensor) -> int:
    """Codes and images are N x channels x H x W; decoder weights D x in x out x 2 x 2 are scaled per decoder."""
    return 1 if tensor.ndim == 4 else 0
