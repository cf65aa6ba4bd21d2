"""The two ways a command can end badly, and their exit codes."""


class TinysetError(Exception):
    """Anything we explain in one sentence instead of a traceback."""

    exit_code = 1


class UserError(TinysetError):
    """The request is wrong: one sentence that names the flag or file; exit code 2, nothing half-written."""

    exit_code = 2


class RunError(TinysetError):
    """The request was right and the world was not (full disk, damaged file, exploding loss); exit code 1."""


def needs_extra(package: str, extra: str, purpose: str) -> UserError:
    """The error for an optional dependency that is not installed."""
    return UserError(f"{purpose} needs {package}: install it with `pip install 'tinyset[{extra}]'`.")
