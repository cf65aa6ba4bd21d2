"""`tinyset VERB ...`. Arguments are parsed before torch is imported, so that --help and typos answer at once."""

import contextlib
import errno
import importlib
import io
import os
import re
import shlex
import sys
from typing import Any, TextIO

from tinyset import processes

# verb -> (module with `Args` and `run`, what it does)
VERBS = {
    "condense": ("tinyset.cli.condense", "turn a labelled image dataset into a file of kilobytes"),
    "evaluate": ("tinyset.cli.evaluate", "train networks on a condensed set and test them on real images"),
    "train": ("tinyset.cli.train", "train a network on a condensed set and keep its weights"),
    "search": ("tinyset.cli.search", "hyper-parameters or a network, searched on a condensed set"),
    "compare": ("tinyset.cli.compare", "every method at the same storage and wall-clock"),
    "continual": ("tinyset.cli.continual", "learn classes step by step with a memory of so many bytes"),
    "grow": ("tinyset.cli.grow", "add a class to a condensed set"),
    "forget": ("tinyset.cli.forget", "remove a class from a condensed set"),
    "slim": ("tinyset.cli.slim", "put a condensed set into fewer bytes"),
    "merge": ("tinyset.cli.merge", "make one condensed set of two"),
    "privacy": ("tinyset.cli.privacy", "what a condensed set gives away of its training images"),
    "inspect": ("tinyset.cli.inspect", "what a condensed set holds and what it costs"),
    "show": ("tinyset.cli.show", "pictures: one decoder x all codes, one code x all decoders"),
    "bank": ("tinyset.cli.bank", "pre-compute the mean embeddings of the real images"),
    "data": ("tinyset.cli.data", "which datasets are here; fetch one"),
    "report": ("tinyset.cli.report", "one page to look at: results, charts, an explorer of codes and decoders"),
    "watch": ("tinyset.cli.watch", "follow a run in the browser while it works"),
    "record": ("tinyset.cli.record", "keep what a run was and measured, to make it again"),
    "reproduce": ("tinyset.cli.reproduce", "make a recorded run again and compare"),
    "export": ("tinyset.cli.export", "a condensed set as ordinary image files"),
    "import": ("tinyset.cli.import_", "condensed images of other tools as a condensed set"),
    "hub": ("tinyset.cli.hub", "push to or pull from the Hugging Face hub"),
    "demo": ("tinyset.cli.demo", "condense the embedded dataset and compare, in a few minutes"),
}


TOGETHER = {"condense", "evaluate", "bank"}  # verbs whose work several processes divide

# the world's fault wherever it shows, in our files or in a library's
WORLD = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM}


def main(argv: list[str] | None = None) -> int:
    """Exit codes: 0; 1 failure; 2 usage; 130 after SIGINT; 143 after SIGTERM."""
    try:
        code = _main(argv)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:  # before there was anything to save
        return _complain("interrupted", 130)
    except BrokenPipeError:  # who read has gone, as `head` does
        _hush(sys.stdout)
        return 0


def _main(argv: list[str] | None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if arguments[0] in ("-V", "--version"):
        from tinyset.version import __version__

        print(f"tinyset {__version__}")
        return 0
    verb = arguments[0]
    if verb not in VERBS:
        return _complain(f"unknown command {verb!r}: choose one of {', '.join(VERBS)}", 2)
    if processes.launched_size() > 1 and verb not in TOGETHER:
        return _complain(f"tinyset {verb} is the work of one process: start it without torchrun", 2)
    module = importlib.import_module(VERBS[verb][0])
    parsed = _parse(module.Args, verb, arguments[1:], module.__doc__ or "")
    if isinstance(parsed, int):
        return parsed
    return _run(module, parsed, shlex.join(["tinyset", *arguments]))


def _overview() -> str:
    lines = [f"  {verb:<9} {text}" for verb, (_, text) in VERBS.items()]
    return "usage: tinyset COMMAND ...\n\n" + "\n".join(lines) + "\n\n`tinyset COMMAND --help` explains one."


def _parse(kind: Any, verb: str, arguments: list[str], description: str) -> Any:
    """The verb's `Args`, or an exit code. tyro explains errors in a box of text; people get one sentence of it."""
    import tyro

    words = io.StringIO()
    try:
        with contextlib.redirect_stderr(words):
            return tyro.cli(
                kind,
                prog=f"tinyset {verb}",
                args=arguments,
                description=description.strip(),
                config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes),
            )
    except SystemExit as leaving:
        if not leaving.code:
            return 0
        return _complain(_sentence(words.getvalue()), 2)


def _sentence(boxed: str) -> str:
    """One sentence out of tyro's box."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", boxed)
    text = re.sub(r"\s+", " ", re.sub(r"[\u2500-\u257f]+", " ", text))
    text = re.split(r" Argument helptext| For full helptext| Perhaps you meant| Arguments similar| Similar", text)[0]
    if match := re.search(r"Error parsing (\S+?):.*?(INT|FLOAT)?.*? from \[(.*?)\]", text):
        kind = {"INT": "whole number", "FLOAT": "number"}.get((re.search(r"INT|FLOAT", text) or [""])[0], "valid value")
        return f"{match[1]}: {match[3]} is not a {kind}"
    if "Missing from" in text or "Required" in text:
        missing = re.findall(r"(--[\w-]+|\b[A-Z]{3,})(?= [A-Z])", text)
        return f"missing {' and '.join(dict.fromkeys(missing)) or 'arguments'}"
    if match := re.search(r"invalid choice (.*?) for argument .*?(--[\w-]+)\W*. Expected one of \((.*?)\)", text):
        choices = sorted(re.findall(r"'([^']+)'", match[3].replace("'None'", "")))
        return f"{match[2]}: {match[1]} is not one of {', '.join(choices)}"
    return (
        re.sub(r"^\s*(Parsing error|Value error|Unrecognized options(?=.*Unrecognized))\s*", "", text).strip(" .")
        or "wrong arguments"
    )


def _complain(message: str, code: int) -> int:
    if processes.speaks():
        try:
            print(f"tinyset: {message.rstrip('.')}.", file=sys.stderr)
        except BrokenPipeError:  # the code stands, whether or not anybody reads
            _hush(sys.stderr)
    return code


def _hush(stream: TextIO) -> None:
    """What the exit would still flush goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(module: Any, args: Any, command: str) -> int:
    from tinyset.cli.console import Console, Silence
    from tinyset.errors import TinysetError
    from tinyset.interrupts import Interrupted

    console = Console(json_output=args.json, quiet=args.quiet, command=command)
    try:
        if processes.launched_size() > 1:
            from tinyset.machine import pick_device

            if not processes.join(cuda=pick_device(args.device).type == "cuda").leads:
                console = Silence(command=command)
        code = int(module.run(args, console))
        processes.leave()
        return code
    except TinysetError as error:
        console.progress.finish()
        return _complain(str(error), error.exit_code)
    except Interrupted as leaving:
        console.progress.finish()
        _complain(str(leaving), leaving.exit_code)
        return leaving.exit_code
    except KeyboardInterrupt:
        console.progress.finish()
        return _complain("interrupted", 130)
    except OSError as error:
        if error.errno not in WORLD:
            raise
        console.progress.finish()
        where = f" ({error.filename})" if error.filename else ""
        return _complain(f"{error.strerror}{where}", 1)
