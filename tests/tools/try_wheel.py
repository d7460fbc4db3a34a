"""`make dist` ends with this: the wheel in an empty environment, used as a newcomer would.

`python -m tests.tools.try_wheel dist/penstock-….whl` installs the wheel without extras, starts a broker with
`penstock up`, and sends a record through it; then it installs the extras and imports what they are for. It
does so with each supported Python that is on the PATH or that pyenv has, and names those that are not here.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
# What each extra is for: a module that does not import without it.
EXTRAS = {
    "registry": "penstock.registry.http.app",
    "connect": "penstock.connect.worker",
    "oauth": "jwt",
    "secure": "cryptography",
    "cluster": "penstock.metadata.zookeeper",
    "spark": "penstock.spark.source.data_source",
    "sql": "penstock.sql.server.http",
}


# The versions of pyproject.toml's classifiers.
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def main(wheel: Path) -> None:
    for version in PYTHONS:
        python = _python(version)
        if python is None:
            print(f"Python {version}: not here", flush=True)
            continue
        print(f"Python {version}: {python}", flush=True)
        _try(python, wheel)


def _python(version: str) -> str | None:
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    places = [shutil.which(f"python{version}"), *map(str, pyenv.glob(f"versions/{version}.*/bin/python3"))]
    for place in filter(None, places):
        # pyenv's shims are on the PATH for versions that are not chosen, and fail.
        if subprocess.run([place, "-c", "import venv, ssl"], capture_output=True).returncode == 0:
            return place
    return None


def _try(interpreter: str, wheel: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        environment = directory / "venv"
        _run([interpreter, "-m", "venv", str(environment)], directory)
        python = environment / "bin" / "python"
        _install(python, str(wheel), directory)
        _send_a_record(environment / "bin" / "penstock", directory)
        print("without extras: a broker took a record and gave it back", flush=True)
        _install(python, f"{wheel}[{','.join(EXTRAS)}]", directory)
        for extra, module in EXTRAS.items():
            _run([str(python), "-c", f"import {module}"], directory)
            print(f"{extra}: {module} is there", flush=True)


def _install(python: Path, what: str, directory: Path) -> None:
    print(f"installing {Path(what).name}", flush=True)
    _run([str(python), "-m", "pip", "install", "-q", "-c", str(CONSTRAINTS), what], directory)


def _send_a_record(penstock: Path, directory: Path) -> None:
    ready = directory / "ready.json"
    command = [
        str(penstock),
        "up",
        "--port=0",
        "--no-registry",
        "--no-connect",
        f"--data={directory / 'data'}",
    ]
    with subprocess.Popen([*command, f"--ready-file={ready}", "--json"], stdout=subprocess.PIPE) as up:
        try:
            assert up.stdout is not None
            bootstrap = json.loads(up.stdout.readline())["bootstrap"]
            options = ["--bootstrap", bootstrap]
            _run([str(penstock), "topics", "create", "t", *options], directory)
            _run([str(penstock), "produce", "t", *options], directory, "17\n")
            found = _run([str(penstock), "consume", "t", "--max", "1", *options], directory)
            assert found.strip() == "17", found
        finally:
            up.send_signal(signal.SIGINT)


def _run(command: list[str], directory: Path, text: str | None = None) -> str:
    """Away from the checkout and from its environment, so that only the wheel can be found."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    environment["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    done = subprocess.run(command, input=text, cwd=directory, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
