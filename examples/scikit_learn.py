"""Fit a scikit-learn model on the decoded images: no torch needed after `decode`.

python scikit_learn.py run/artifact streetdigits
"""

import sys

from sklearn.linear_model import LogisticRegression

import tinyset


def main(artifact, source):
    ds = tinyset.load(artifact)
    images, labels = ds.decode()
    test = tinyset.load_images(source).test
    model = LogisticRegression(C=0.01, max_iter=1000)
    model.fit(images.flatten(1).numpy(), labels.numpy())
    accuracy = model.score((test.images / 255).flatten(1).numpy(), test.labels.numpy())
    print(f"{100 * accuracy:.1f} % of {len(test):,} test images")
    return accuracy


if __name__ == "__main__":
    main(*sys.argv[1:3])
