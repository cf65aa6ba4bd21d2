"""Hand-made digit skeletons and their distance fields: no system fonts, so every platform draws the same digits.

A skeleton is a list of strokes, a stroke a list of control points (x to the right, y downwards, the digit fills about
[-0.5, 0.5] x [-1, 1]). Two points are a straight line, more are a Catmull-Rom curve through all of them, a repeated
point is a corner. Every atlas entry bends one skeleton by a smooth random field, so joined strokes stay joined.
"""

import torch

Stroke = tuple[tuple[float, float], ...]
Skeleton = tuple[Stroke, ...]

FIELD = 40  # a distance field is FIELD x FIELD over [-EXTENT, EXTENT]^2
EXTENT = 1.5
POINTS = 6  # samples of a curve between two control points

_OVAL: Stroke = (
    (0, -1), (0.38, -0.72), (0.5, 0), (0.38, 0.72), (0, 1), (-0.38, 0.72), (-0.5, 0), (-0.38, -0.72), (0, -1),
)  # fmt: skip
_BOX: Stroke = (
    (-0.45, -1),
    (-0.45, -1),
    (0.45, -1),
    (0.45, -1),
    (0.45, 1),
    (0.45, 1),
    (-0.45, 1),
    (-0.45, 1),
    (-0.45, -1),
)

SKELETONS: dict[int, tuple[Skeleton, ...]] = {
    0: (
        (_OVAL,),
        (tuple((0.8 * x, y) for x, y in _OVAL),),
        (_BOX,),
        (_OVAL, ((0.25, -0.55), (-0.25, 0.55))),
    ),
    1: (
        (((0, -1), (0, 1)),),
        (((-0.35, -0.62), (0.05, -1)), ((0.05, -1), (0.05, 1))),
        (((-0.35, -0.62), (0, -1)), ((0, -1), (0, 1)), ((-0.38, 1), (0.38, 1))),
        (((-0.28, -0.85), (0, -1)), ((0, -1), (0, 1))),
    ),
    2: (
        (((-0.45, -0.6), (-0.2, -0.95), (0.2, -0.97), (0.45, -0.6), (0.3, -0.1), (-0.48, 1)), ((-0.48, 1), (0.5, 1))),
        (((-0.42, -0.85), (0.1, -1), (0.45, -0.6), (0.1, 0.05), (-0.35, 0.45), (-0.45, 1)), ((-0.45, 1), (0.48, 1))),
        (((-0.45, -1), (0.45, -1)), ((0.45, -1), (0.45, 0)), ((0.45, 0), (-0.45, 0)), ((-0.45, 0), (-0.45, 1)),
         ((-0.45, 1), (0.45, 1))),
    ),
    3: (
        (((-0.45, -0.7), (-0.1, -1), (0.38, -0.75), (0.3, -0.2), (-0.1, -0.05)),
         ((-0.1, -0.05), (0.35, 0.1), (0.47, 0.5), (0.1, 1), (-0.48, 0.72))),
        (((-0.42, -1), (0.42, -1)), ((0.42, -1), (-0.05, -0.2)),
         ((-0.05, -0.2), (0.38, 0.05), (0.45, 0.55), (0.05, 1), (-0.46, 0.75))),
        (((-0.45, -1), (0.45, -1)), ((0.45, -1), (0.45, 1)), ((0.45, 1), (-0.45, 1)), ((-0.3, 0), (0.45, 0))),
    ),
    4: (
        (((0.22, -1), (-0.5, 0.38)), ((-0.5, 0.38), (0.52, 0.38)), ((0.22, -1), (0.22, 1))),
        (((-0.25, -1), (-0.45, 0.2)), ((-0.45, 0.2), (0.5, 0.2)), ((0.25, -0.5), (0.2, 1))),
        (((-0.42, -1), (-0.42, 0.05)), ((-0.42, 0.05), (0.42, 0.05)), ((0.42, -1), (0.42, 1))),
    ),
    5: (
        (((0.42, -1), (-0.38, -1)), ((-0.38, -1), (-0.42, -0.1)),
         ((-0.42, -0.1), (0.1, -0.28), (0.48, 0.3), (0.15, 0.95), (-0.46, 0.78))),
        (((0.4, -1), (-0.3, -1)), ((-0.3, -1), (-0.38, -0.15)),
         ((-0.38, -0.15), (0.2, -0.2), (0.46, 0.4), (-0.05, 1), (-0.45, 0.7))),
        (((0.45, -1), (-0.45, -1)), ((-0.45, -1), (-0.45, 0)), ((-0.45, 0), (0.45, 0)), ((0.45, 0), (0.45, 1)),
         ((0.45, 1), (-0.45, 1))),
    ),
    6: (
        (((0.35, -0.95), (-0.2, -0.6), (-0.48, 0.3), (-0.25, 0.9), (0.2, 0.95), (0.47, 0.45), (0.2, -0.05),
          (-0.2, 0), (-0.46, 0.4)),),
        (((0.4, -0.78), (0.05, -1), (-0.4, -0.6), (-0.47, 0.4), (0, 1), (0.45, 0.45), (0.05, -0.12), (-0.45, 0.3)),),
        (((0.45, -1), (-0.45, -1)), ((-0.45, -1), (-0.45, 1)), ((-0.45, 1), (0.45, 1)), ((0.45, 1), (0.45, 0)),
         ((0.45, 0), (-0.45, 0))),
    ),
    7: (
        (((-0.45, -1), (0.45, -1)), ((0.45, -1), (-0.15, 1))),
        (((-0.45, -1), (0.46, -1)), ((0.46, -1), (0.1, -0.1), (-0.1, 1))),
        (((-0.45, -1), (0.45, -1)), ((0.45, -1), (-0.15, 1)), ((-0.2, 0), (0.38, 0))),
        (((-0.45, -0.7), (-0.45, -1)), ((-0.45, -1), (0.45, -1)), ((0.45, -1), (0.05, 1))),
    ),
    8: (
        (((0, -1), (0.38, -0.55), (0, -0.05), (-0.38, -0.55), (0, -1)),
         ((0, -0.05), (0.48, 0.45), (0, 1), (-0.48, 0.45), (0, -0.05))),
        (((0.38, -0.72), (-0.05, -1), (-0.35, -0.55), (0.3, 0.15), (0.3, 0.85), (-0.3, 0.85), (-0.3, 0.15),
          (0.25, -0.3), (0.38, -0.72)),),
        (_BOX, ((-0.45, 0), (0.45, 0))),
    ),
    9: (
        (((-0.35, 0.95), (0.2, 0.6), (0.48, -0.3), (0.25, -0.9), (-0.2, -0.95), (-0.47, -0.45), (-0.2, 0.05),
          (0.2, 0), (0.46, -0.4)),),
        (((0.42, -0.45), (0, 0.08), (-0.44, -0.45), (0, -1), (0.42, -0.45)), ((0.42, -0.45), (0.3, 1))),
        (((-0.45, 1), (0.45, 1)), ((0.45, 1), (0.45, -1)), ((0.45, -1), (-0.45, -1)), ((-0.45, -1), (-0.45, 0)),
         ((-0.45, 0), (0.45, 0))),
    ),
}  # fmt: skip


def atlas(variants: int, generator: torch.Generator) -> torch.Tensor:
    """Distance fields 10 x variants x FIELD x FIELD: how far each point is from the nearest stroke of the digit."""
    axis = torch.linspace(-EXTENT, EXTENT, FIELD)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), -1).reshape(-1, 2)
    fields = torch.empty(10, variants, FIELD * FIELD)
    for digit, skeletons in SKELETONS.items():
        curves = [[_curve(stroke) for stroke in skeleton] for skeleton in skeletons]
        for variant in range(variants):
            bend, thick = _bend(generator), 1 + 0.25 * (2 * torch.rand(2, generator=generator) - 1)
            segments = [(points[:-1], points[1:]) for points in map(bend, curves[variant % len(curves)])]
            starts, ends = (torch.cat(side) for side in zip(*segments, strict=True))
            fields[digit, variant] = _distance(grid, starts, ends, thick)
    return fields.reshape(10, variants, FIELD, FIELD)


def _curve(stroke: Stroke) -> torch.Tensor:
    """Points along a stroke: the line itself, or a Catmull-Rom curve that closes smoothly where it ends as it began."""
    control = torch.tensor(stroke, dtype=torch.float32)
    if len(control) == 2:
        return control
    closed = stroke[0] == stroke[-1] and stroke[0] != stroke[1]
    before, after = (control[-2:-1], control[1:2]) if closed else (control[:1], control[-1:])
    p = torch.cat([before, control, after])
    t = torch.linspace(0, 1, POINTS + 1)[:-1, None, None]
    p0, p1, p2, p3 = p[:-3], p[1:-2], p[2:-1], p[3:]
    cubic = 2 * p1 + (p2 - p0) * t + (2 * p0 - 5 * p1 + 4 * p2 - p3) * t**2 + (3 * p1 - p0 - 3 * p2 + p3) * t**3
    points = 0.5 * cubic.transpose(0, 1).reshape(-1, 2)
    return torch.cat([points, control[-1:]])


class _bend:
    """A smooth random displacement of the plane: every point moves by a few slow sine waves."""

    def __init__(self, generator: torch.Generator) -> None:
        self.amplitude = 0.07 * torch.randn(3, 2, generator=generator)
        self.frequency = 1.6 * torch.randn(3, 2, generator=generator)
        self.phase = 6.2832 * torch.rand(3, generator=generator)

    def __call__(self, points: torch.Tensor) -> torch.Tensor:
        waves = torch.sin((points[:, None] * self.frequency).sum(-1) + self.phase)
        return points + (waves[:, :, None] * self.amplitude).sum(1)


def _distance(grid: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor, thick: torch.Tensor) -> torch.Tensor:
    """From each grid point to the nearest segment. `thick` stretches the metric: upright and level strokes differ."""
    grid, starts, ends = grid / thick, starts / thick, ends / thick
    along_x, along_y = (ends - starts).unbind(1)
    x, y = grid[:, :1] - starts[:, 0], grid[:, 1:] - starts[:, 1]
    t = ((x * along_x + y * along_y) / (along_x.square() + along_y.square()).clamp_min(1e-9)).clamp_(0, 1)
    return torch.addcmul((x - t * along_x).square_(), y := y - t * along_y, y).amin(1).sqrt()
