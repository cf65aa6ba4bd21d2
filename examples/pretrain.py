"""Does a start on the condensed set speed up training on the full one? Test accuracy along the real training.

python pretrain.py run/artifact streetdigits
"""

import sys

import tinyset
from tinyset.networks import build, redraw
from tinyset.protocols import protocol
from tinyset.training import predict, train

NETWORK, MARKS = "convnet3:width=32", (25, 50, 100, 200, 400)


def main(artifact, source, first_steps=200, marks=MARKS, network=NETWORK, seed=0):
    ds, data = tinyset.load(artifact), tinyset.load_images(source)
    images, labels = ds.decode()
    channels, height, width = ds.image_shape
    shape = {"channels": channels, "image_size": (height, width), "classes": len(ds.class_names)}
    common = {"normalisation": ds.normalisation, "mirror": ds.mirror, "seed": seed}

    def along(steps_before):
        """(steps, seconds, accuracy) at each mark of a training on real images; the start's seconds are counted."""
        net, points = build(network, **shape), []
        redraw(net, network, seed, **shape)
        before = train(net, images, labels, protocol(f"steps:{first_steps}"), **common).seconds if steps_before else 0.0

        def measure(stats, net):
            right = predict(net, data.test.images, normalisation=ds.normalisation) == data.test.labels
            points.append((stats.steps, before + stats.seconds, 100 * right.float().mean().item()))

        train(net, data.train.images, data.train.labels, protocol(f"steps:{marks[-1]}"), **common,
              at_steps=dict.fromkeys(marks, measure))  # fmt: skip
        return points

    curves = {"from scratch": along(0), f"after {first_steps} steps on the condensed set": along(first_steps)}
    for name, points in curves.items():
        print(name, "  ".join(f"{steps}: {accuracy:.1f} % ({seconds:.0f} s)" for steps, seconds, accuracy in points))
    return curves


if __name__ == "__main__":
    main(*sys.argv[1:3])
