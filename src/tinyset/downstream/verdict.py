"""What the searches on each set were worth, once the best few of each have been trained on the real images.

regret = best real score of any candidate - real score of the set's answer, in points of accuracy
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tinyset.downstream.arena import CONDENSED, REAL, Arena, Candidate, Score
from tinyset.downstream.ranking import spearman

Scores = dict[Candidate, Score]
TUNED = ("rate", "momentum", "weight_decay", "batch", "augmentation", "cutmix")


def verdict(arena: Arena, searched: Mapping[str, Scores]) -> dict[str, Any]:
    """Real scores for the best of every set, and what each set's search was worth."""
    confirmed = {name: best(scores)[: arena.settings.confirm] for name, scores in searched.items()}
    asked = [*confirmed.values(), *(searched.values() if arena.settings.all_real else ())]  # the answers come first
    chosen = list(dict.fromkeys(candidate for candidates in asked for candidate in candidates))
    real = dict(zip(chosen, arena.scores(REAL, chosen, "train on real images"), strict=True))
    known: dict[str, Scores] = {REAL: real}
    for name, scores in searched.items():  # the same candidates for every set: correlations can be compared
        missing = [candidate for candidate in chosen if candidate not in scores]
        others = arena.scores(name, missing, f"rank on {name}") if missing else []
        known[name] = {**scores, **dict(zip(missing, others, strict=True))}
    count = max(len(scores) for scores in searched.values())
    real_s = statistics.fmean(score.seconds for score in real.values()) * count
    rows = [_row(arena, name, searched[name], confirmed[name], known, real_s) for name in searched]
    top = best(real)[0]
    rows.append(
        {
            **_about(arena, REAL),
            "candidates": count,
            "search_seconds": round(real_s, 1),
            "search_images": round(statistics.fmean(score.images for score in real.values()) * count),
            "measured": len(real),
            "answer": described(top),
            "answer_real": real[top].accuracy,
            "regret": 0.0,
        }
    )
    every = list(dict.fromkeys(candidate for scores in known.values() for candidate in scores))
    return {**_conditions(arena), "rows": rows, "candidates": [_scored(c, known) for c in every]}


def _row(
    arena: Arena, name: str, scores: Scores, few: Sequence[Candidate], known: Mapping[str, Scores], real_s: float
) -> dict[str, Any]:
    real, ours = known[REAL], known[name]
    top = max(score.accuracy for score in real.values())
    answer = max(few, key=lambda candidate: real[candidate].accuracy)
    search_s = arena.prepared_s[name] + sum(score.seconds for score in scores.values())
    confirm_s = sum(real[candidate].seconds for candidate in few)
    correlation = spearman([ours[c].accuracy for c in real], [real[c].accuracy for c in real])
    return {
        **_about(arena, name),
        "candidates": len(scores),
        "prepare_seconds": arena.prepared_s[name],
        "search_seconds": round(search_s, 1),
        "confirm_seconds": round(confirm_s, 1),
        "search_images": sum(score.images for score in scores.values()),
        "confirm_images": sum(real[candidate].images for candidate in few),
        "times_faster": round(real_s / (search_s + confirm_s), 2) if search_s + confirm_s else None,
        "spearman": None if correlation is None else round(correlation, 4),
        "spearman_n": len(real),
        "first": described(few[0]),
        "first_real": real[few[0]].accuracy,
        "first_regret": round(top - real[few[0]].accuracy, 4),
        "answer": described(answer),
        "answer_real": real[answer].accuracy,
        "regret": round(top - real[answer].accuracy, 4),
    }


def best(scores: Scores) -> list[Candidate]:
    """The highest score first; of equal ones the first found."""
    return sorted(scores, key=lambda candidate: -scores[candidate].accuracy)


def described(candidate: Candidate) -> dict[str, Any]:
    return {"network": candidate.network} | {key: getattr(candidate.protocol, key) for key in TUNED}


def _scored(candidate: Candidate, known: Mapping[str, Scores]) -> dict[str, Any]:
    scores = {name: found[candidate].accuracy for name, found in known.items() if candidate in found}
    seconds = {name: found[candidate].seconds for name, found in known.items() if candidate in found}
    return {**described(candidate), "accuracy": scores, "seconds": seconds}


def _about(arena: Arena, name: str) -> dict[str, Any]:
    return {"set": name, "images": len(arena.sets[name].images), "bytes": arena.sets[name].bytes}


def _conditions(arena: Arena) -> dict[str, Any]:
    settings, data = arena.settings, arena.lab.data
    return {
        "data": data.name,
        "artifact": arena.sets[CONDENSED].key,
        "validation_images": len(arena.lab.test),
        **{key: getattr(settings, key) for key in ("steps", "real_steps", "real_per_class", "confirm", "repeats", "seed")},
    }  # fmt: skip
