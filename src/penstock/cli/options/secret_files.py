"""Files with secrets that only their owner can read, and passwords from a file, the environment or a prompt.

A password is never an argument of a command: arguments are seen by everyone on the machine (`ps`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from penstock.cli.options.shared import Options, options


def write_secret(path: Path, text: str) -> None:
    """Written atomically, with mode 0600 from the start."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(beside, path)


password_options: Options = options(
    click.option(
        "--password-file",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, allow_dash=True),
        help="Read the password from this file, which has one line; - is stdin.",
    ),
    click.option("--password-env", metavar="NAME", help="Read the password from this environment variable."),
)
"""The command gets `password_file` and `password_env`, for `read_password`."""


def read_password(who: str, file: str | None, variable: str | None) -> str:
    """The password from the source in the options, or typed twice at a prompt."""
    if file is not None and variable is not None:
        raise click.UsageError("give --password-file or --password-env, not both")
    if file is not None:
        return _one_line(file, sys.stdin.read() if file == "-" else _text(file))
    if variable is not None:
        value = os.environ.get(variable, "")
        if not value:
            raise click.UsageError(f"--password-env {variable}: the variable is not set")
        return value
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"no password for '{who}': give --password-file or --password-env, or run this on a terminal"
        )
    password: str = click.prompt(
        f"Password for {who}", hide_input=True, confirmation_prompt="Again", err=True
    )
    return password


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"--password-file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise click.UsageError(f"--password-file {path} is not text in UTF-8 (byte {error.start})") from error


def _one_line(path: str, text: str) -> str:
    lines = text.splitlines()
    if len(lines) != 1 or not lines[0]:
        raise click.UsageError(f"--password-file {path}: write the password on one line, and nothing else")
    return lines[0]
