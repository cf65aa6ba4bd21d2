"""The two ways a command can end badly, and their exit codes."""


class TinysetError(Exception):
    """Anything we explain in one sentence instead of a traceback."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


MOST_LETTERS = 2000  # ten long paths fit


def one_line(text: str) -> str:
    """What is quoted may come from a stranger's file: no line breaks, no terminal codes, no end of it."""
    text = " ".join(printable(text[: 2 * MOST_LETTERS]).split())
    return text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 1] + "…"


def printable(text: str) -> str:
    """Names may come from a stranger's file: what a terminal would obey becomes a blank; lines stay lines."""
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text)


class UserError(TinysetError):
    """The request is wrong: one sentence that names the flag or file; exit code 2, nothing half-written."""

    exit_code = 2


class RunError(TinysetError):
    """The request was right and the world was not (full disk, damaged file, exploding loss); exit code 1."""


class Diverged(RunError):
    """The loss of a training is no longer a number."""


def needs_extra(package: str, extra: str, purpose: str) -> UserError:
    """The error for an optional dependency that is not installed."""
    return UserError(f"{purpose} needs {package}: install it with `pip install 'tinyset[{extra}]'`.")
