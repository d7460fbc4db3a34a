"""The child process that runs protoc: reads and writes one line of JSON per text. It imports none of
Penstock's modules.

protoc is C++: it prints errors to the process's standard error, may take long, and a crash ends the process.
All three are harmless in here.
"""

from __future__ import annotations

import json
import os
import resource
import sys

MAX_MEMORY = 2 << 30


def main() -> None:
    from grpc_tools import protoc

    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        request = json.loads(line)
        os.chdir(request["directory"])
        errors = os.open("errors", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(errors, 2)
        os.close(errors)
        arguments = ["protoc", "-I", "files"]
        for path in request["include"]:
            arguments += ["-I", path]
        arguments += [
            "--include_imports",
            "--include_source_info",
            "--retain_options",
            "-o",
            "out",
            request["main"],
        ]
        code = protoc.main(arguments)
        os.chdir("/")
        sys.stdout.write(f"{code}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
