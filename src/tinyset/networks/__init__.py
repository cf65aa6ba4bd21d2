"""Networks by name: `convnet3`, `resnet18:norm=batch`, `package.module:factory`."""

from tinyset.networks.base import Network, reset, weights_hash
from tinyset.networks.registry import build, identity, list_networks, redraw

__all__ = ["Network", "build", "identity", "list_networks", "redraw", "reset", "weights_hash"]
