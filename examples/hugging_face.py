"""Hand a condensed set over to Hugging Face `datasets` (pip install 'tinyset[hf]').

python hugging_face.py run/artifact digits.parquet
"""

import sys

from datasets import ClassLabel, Dataset, Features, Image, load_dataset

import tinyset
from tinyset.exchange import export


def main(artifact, parquet):
    ds = tinyset.load(artifact)

    # as a file that `load_dataset` reads anywhere, with class names and PNG images inside
    export(ds, parquet, "parquet", overwrite=True)
    from_file = load_dataset("parquet", data_files=str(parquet), split="train")

    # or in memory: an image is decoded when it is asked for
    def rows():
        for image, label in ds:
            yield {"image": (image.permute(1, 2, 0) * 255).round().byte().numpy(), "label": label}

    features = Features({"image": Image(), "label": ClassLabel(names=list(ds.class_names))})
    in_memory = Dataset.from_generator(rows, features=features)
    print(from_file, in_memory.features["label"].names)
    return from_file, in_memory


if __name__ == "__main__":
    main(*sys.argv[1:3])
