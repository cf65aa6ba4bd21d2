"""Networks by name: `build("convnet3", ...)`, `build("convnet3:width=64,norm=batch", ...)`, `build("package.module:factory", ...)`."""

from tinyset.networks.base import Network, reset, weights_hash
from tinyset.networks.registry import build, list_networks

__all__ = ["Network", "build", "list_networks", "reset", "weights_hash"]
