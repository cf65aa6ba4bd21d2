"""Families: several sets of codes and decoders side by side in one, each code with the decoders it was made for."""

from pathlib import Path
from typing import Any

import pytest
import torch

import tinyset
from tests.report.made import ROOMY, codes_set, families_set, splits
from tinyset.condensed import CondensedSet
from tinyset.downstream.living import forget, grow
from tinyset.downstream.merge import merge
from tinyset.downstream.slim import slim
from tinyset.errors import UserError
from tinyset.evaluation.storage import variants
from tinyset.parameterizations.codes import Codes
from tinyset.report.explorer import explorer_data
from tinyset.report.following import _samples
from tinyset.rng import generator


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


@pytest.fixture(scope="module")
def three(place: Path) -> CondensedSet:
    return families_set(place)


@pytest.fixture(scope="module")
def parts(place: Path, three: CondensedSet) -> list[CondensedSet]:
    return [tinyset.load(place / f"family{seed}") for seed in range(3)]


def codes_of(condensed: CondensedSet) -> Codes:
    assert isinstance(condensed.parameterization, Codes)
    return condensed.parameterization


def test_each_keeps_its_images(three: CondensedSet, parts: list[CondensedSet]) -> None:
    for c in range(3):
        assert torch.equal(three.images(c), torch.cat([part.images(c) for part in parts]))


def test_any_part_of_a_class_is_decoded_alike(three: CondensedSet) -> None:
    """Runs across families, single images and shuffled ones: three ways of the code."""
    made = codes_of(three)
    whole = made.decode(1)
    count = made.counts[1]
    assert count == 36 and made.families == 3 and made.per_code == 3
    for index in (torch.arange(5, 29), torch.arange(11, 13), torch.tensor([30]), torch.tensor([35, 0, 12, 12])):
        torch.testing.assert_close(made.decode(1, index), whole[index])
    shuffled = torch.randperm(count, generator=generator(0))
    torch.testing.assert_close(made.decode(1, shuffled), whole[shuffled])
    out = torch.empty(18, *three.image_shape)
    made.decode_into(out, 1, torch.arange(9, 27))
    torch.testing.assert_close(out, whole[9:27])


def test_a_class_may_have_no_codes() -> None:
    for families in (1, 2):
        made = Codes((3, 16, 16), [0, 4], (12, 2, 2), (12, 9, 6, 3), 3, families)
        assert made.decode(0).shape == (0, 3, 16, 16) and made.decode(1).shape == (12, 3, 16, 16)


def test_it_is_stored_and_counted(three: CondensedSet, parts: list[CondensedSet], tmp_path: Path) -> None:
    again = tinyset.load(three.save(tmp_path / "set"))
    assert "0 steps after 3 sets were put side by side" in (tmp_path / "set" / "README.md").read_text()
    assert again.config.spec["families"] == 3 and again.fingerprint == three.fingerprint
    assert torch.equal(again.images(), three.images())
    ledger, ledgers = three.ledger(), [part.ledger() for part in parts]
    assert ledger["params_per_class"] == pytest.approx(sum(one["params_per_class"] for one in ledgers), abs=1e-3)
    assert (ledger["codes_per_class"], ledger["decoders"], ledger["synthetic_per_class"]) == (12, 3, 36)
    assert ledger["families"] == 3 and "families" not in ledgers[0]
    assert "families" not in parts[0].config.spec  # older readers go on reading what they could read


def test_all_of_it_is_trained_from_there(three: CondensedSet, place: Path, tmp_path: Path) -> None:
    moved, still = codes_of(families_set(place, steps=2)), codes_of(three)
    assert not torch.equal(moved.codes, still.codes)
    changes = (moved.decoders.weights[0] - still.decoders.weights[0]).abs().amax((1, 2, 3, 4))
    assert len(changes) == 9 and changes.min() > 0
    families = three.save(tmp_path / "families")  # one set that has families already
    again = codes_of(codes_set(**{**ROOMY, "steps": 2, "start": str(families)}))
    assert torch.equal(again.codes, moved.codes)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"params_per_class": 2000}, "the 3 families have 2,790 .* and the budget is 2,060"),
        ({"params_per_class": None, "budget_bytes": 30_000}, "the 3 families have .* bytes, and the budget is 30,000"),
        ({"decoders": 3}, "leave --codes and --decoders out"),
    ],
)
def test_what_does_not_fit_is_refused(place: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        families_set(place, **settings)


def test_sets_of_other_sizes_are_refused(place: Path, tmp_path: Path) -> None:
    other = codes_set(codes=5, steps=0).save(tmp_path / "five")
    with pytest.raises(UserError, match=f"--start {other}: its codes"):
        families_set(place, start=f"{place / 'family0'},{other}")


def test_a_file_that_lies_about_its_families_is_refused(three: CondensedSet) -> None:
    made = codes_of(three)
    for families in (0, 5, 2):
        with pytest.raises(UserError, match=r"families|shape"):
            Codes.restore({**made.spec(), "families": families}, made.tensors())


def test_what_may_be_dropped(three: CondensedSet, parts: list[CondensedSet]) -> None:
    fewer = three.drop(decoders=[1])
    assert torch.equal(fewer.images(2), torch.cat([part.drop(decoders=[1]).images(2) for part in parts]))
    fewer = three.drop(codes=3)
    assert torch.equal(fewer.images(2), torch.cat([part.drop(codes=1).images(2) for part in parts]))
    with pytest.raises(UserError, match="3 at a time"):
        three.drop(codes=2)
    assert [name for name, _ in variants(three)][-1].endswith("decoders")
    left = forget(three, three.class_names[0])
    assert torch.equal(left.images(0), three.images(1))


def test_what_would_mix_families_is_refused(three: CondensedSet, parts: list[CondensedSet]) -> None:
    for change in (
        lambda: grow(forget(three, three.class_names[0]), splits(), three.class_names[0]),
        lambda: slim(three, splits(), 10_000),
        lambda: merge(three, parts[0]),
        lambda: merge(parts[0], three),
    ):
        with pytest.raises(UserError, match="several families"):
            change()


def test_the_pages_show_the_right_decoders(three: CondensedSet, place: Path, tmp_path: Path) -> None:
    shown = explorer_data("three", three, None, False)
    assert (shown["row"], shown["column"], shown["columns"], shown["rows"][0]) == ("code", "decoder", 3, 12)
    assert len(shown["sprites"]) == 3 and "layers" not in shown
    start = ",".join(str(place / f"family{seed}") for seed in range(3))
    folder = tmp_path / "run"
    tinyset.condense(
        splits(), out=folder, start=start, steps=1, **{**_quick(), **ROOMY, "rates": {"codes": 0, "decoders": 0}}
    )
    picture = _samples(sorted(folder.glob("checkpoint-*"))[-1])
    assert picture.tobytes() == _expected(three).tobytes()


def _quick() -> dict[str, Any]:
    return {"networks": 2, "network": "convnet1:width=4", "device": "cpu", "compile": "never"}


def _expected(three: CondensedSet) -> Any:
    """Code k of a row by decoder k of its family."""
    from tinyset.pictures import grid, short
    from tinyset.report.following import ACROSS

    rows = []
    for c, name in enumerate(three.class_names):
        place = torch.linspace(0, 11, min(ACROSS, 12)).round().long()
        images = three.images(c).view(12, 3, *three.image_shape)
        rows.append((short(name), [images[code, k % 3] for k, code in enumerate(place.tolist())]))
    return grid(rows)
