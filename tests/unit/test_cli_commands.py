"""The command line without a cluster: help, usage errors, exit codes, completion, start-up cost."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from penstock.admin import words
from penstock.admin.cluster import parse_bootstrap
from penstock.cli import output
from penstock.cli.bench import percentile
from penstock.cli.failure import CommandFailed, UnknownTopic, did_you_mean, reason
from penstock.cli.main import COMMANDS, cli, run
from penstock.cli.options.shared import address_options, client_of
from penstock.cli.reference import render
from tests.unit.test_docs import check_command

NOWHERE = "127.0.0.1:1"


def invoke(*arguments, **environment):
    return CliRunner().invoke(cli, arguments, prog_name="penstock", env=environment)


def every_command():
    def walk(command, path):
        yield path, command
        if isinstance(command, click.Group):
            with click.Context(command) as context:
                for name in command.list_commands(context):
                    yield from walk(command.get_command(context, name), (*path, name))

    return dict(walk(cli, ()))


@pytest.mark.promise(
    "commands", "Every command has help, JSON output where it prints data, and meaningful exit codes"
)
def test_every_command_has_help():
    for path, command in every_command().items():
        result = invoke(*path, "--help")
        assert result.exit_code == 0, path
        assert command.help, path
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not isinstance(parameter.type, click.Choice):
                assert parameter.help or parameter.name in ("timeout",), (path, parameter.name)


def test_the_help_lines_of_the_lazy_table_are_those_of_the_commands():
    with click.Context(cli) as context:
        for name, (_, _, line) in COMMANDS.items():
            assert cli.get_command(context, name).get_short_help_str(limit=100) == line


@pytest.mark.promise(
    "commands", "Every command has help, JSON output where it prints data, and meaningful exit codes"
)
def test_every_command_that_gives_data_has_json():
    for path, command in every_command().items():
        if not isinstance(command, click.Group) and path not in (("completion",), ("mcp",)):
            assert any("--json" in parameter.opts for parameter in command.params), path


@pytest.mark.promise("commands", "Every command's help has an example, and every option a description")
def test_every_command_has_an_example_and_every_option_a_description():
    for path, command in every_command().items():
        undescribed = [
            each.opts
            for each in command.params
            if isinstance(each, click.Option) and not each.help and not each.hidden
        ]
        assert undescribed == [], path
        if isinstance(command, click.Group) and not command.invoke_without_command:
            continue
        examples = re.findall(r"(?:^ *|\| |\$\()(penstock [^|\n#]*)", command.help or "", re.M)
        own = f"penstock {' '.join(path)}"
        assert [line for line in examples if f"{line} ".startswith(f"{own} ")], path
        for line in examples:
            check_command(re.split(r" >>? |\)\"", line)[0])


@pytest.mark.promise(
    "commands", "Every command has help, JSON output where it prints data, and meaningful exit codes"
)
def test_help_documents_the_exit_codes():
    assert "0 done, 1 the operation failed, 2 wrong usage, 130" in " ".join(invoke("--help").output.split())


@pytest.mark.promise("docs", "The reference pages match the code")
def test_the_reference_page_is_up_to_date():
    page = Path(__file__).parents[2] / "docs" / "cli.md"
    assert page.read_text() == render(), "run: python -m penstock.cli.reference > docs/cli.md"


@pytest.mark.promise(
    "commands", "Every command has help, JSON output where it prints data, and meaningful exit codes"
)
@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("topics", "create"),
        ("topics", "create", "t", "--partitions", "0"),
        ("topics", "create", "t", "--partitions", "100001"),
        ("topics", "create", "t", "--replication-factor", "10001"),
        ("topics", "create", "t", "--config", "novalue"),
        ("topics", "alter", "t"),
        ("configs", "describe", "group", "g"),
        ("configs", "describe", "broker", "one"),
        ("produce", "t", "--format", "xml"),
        ("produce", "t", "--format", "json", "--key-separator", ":"),
        ("produce", "t", "--key-separator", ""),
        ("consume", "t", "--format", "xml"),
        ("consume", "t", "--format", "%z"),
        ("consume", "t", "--from", "yesterday"),
        ("consume", "t", "--follow", "--until-end"),
        ("consume", "t", "--bootstrap", "host:port"),
        ("offsets", "t", "--at", "noon"),
        ("up", "--set", "x"),
        ("up", "--port", "70000"),
        ("up", "--host", "0.0.0.0"),
        ("completion", "tcsh"),
    ],
)
def test_wrong_usage_exits_2_and_says_what_is_wrong(arguments, capfd):
    assert run([*arguments]) == 2
    assert "Error: " in capfd.readouterr().err


def test_a_wrong_command_gets_a_suggestion(capfd):
    assert run(["topcis", "list"]) == 2
    assert "no command 'topcis'. Did you mean 'topics'?" in capfd.readouterr().err


@pytest.mark.promise("commands", "Failures print one clear line that names the topic, setting or address")
@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "list"),
        ("topics", "create", "t"),
        ("topics", "delete", "t"),
        ("configs", "describe", "topic", "t"),
        ("produce", "t"),
        ("consume", "t"),
        ("offsets", "t"),
        ("cluster",),
        ("bench", "produce"),
    ],
)
def test_an_unreachable_broker_is_one_line_and_exit_1(arguments, capfd):
    assert run([*arguments, "--bootstrap", NOWHERE]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f"Error: cannot reach a broker at {NOWHERE} (connection refused). "
        "Start one with `penstock up`, or name another with --bootstrap."
    ]


def test_the_bootstrap_comes_from_the_option_then_the_environment_then_the_client_config(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=127.0.0.1:3\n")
    assert "127.0.0.1:2 " in invoke("cluster", PENSTOCK_BOOTSTRAP="127.0.0.1:2").output
    assert f"{NOWHERE} " in invoke("cluster", "-b", NOWHERE, PENSTOCK_BOOTSTRAP="127.0.0.1:2").output
    assert "127.0.0.1:3 " in invoke("cluster", "--client-config", str(file), PENSTOCK_BOOTSTRAP=None).output
    assert f"{NOWHERE} " in invoke("cluster", "-b", NOWHERE, "--client-config", str(file)).output


def test_bootstrap_lists_are_parsed_as_kafka_does():
    assert parse_bootstrap("a:1, SSL://b:2,[::1]:3,c") == [("a", 1), ("b", 2), ("::1", 3), ("c", 9092)]
    for bad in ("", ",", "a:b", "a:0", "a:65536"):
        with pytest.raises(click.UsageError):
            parse_bootstrap(bad)


def test_an_unknown_topic_suggests_a_near_one_or_creation():
    assert UnknownTopic("ordres", ["orders", "users"]).message == (
        "no topic 'ordres' in this cluster. Did you mean 'orders'?"
    )
    assert "penstock topics create x" in UnknownTopic("x", []).message
    assert did_you_mean("ORDERS", ["orders"]) == " Did you mean 'orders'?"


def test_reasons_are_free_of_librdkafkas_states_and_prefixes():
    class Error:
        def __init__(self, text):
            self.str = lambda: text

    connect = (
        "127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Refused (after 0ms in state CONNECT)"
    )
    assert reason(Error(connect)) == "connect to 127.0.0.1:1 failed: Refused"
    assert reason(Error("Local: Timed out.")) == "timed out"
    assert reason(Error("SSL handshake failed")) == "SSL handshake failed"


@pytest.mark.promise("commands", "Failures print one clear line that names the topic, setting or address")
def test_a_failure_is_always_one_line():
    assert CommandFailed("a\n  b\tc").message == "a b c"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell):
    result = invoke("completion", shell)
    assert result.exit_code == 0
    assert "_PENSTOCK_COMPLETE" in result.output


def complete(*words, **environment):
    """What the shell is offered after `penstock words`."""
    line = " ".join(("penstock", *words))
    found = subprocess.run(
        [sys.executable, "-m", "penstock"],
        env=os.environ
        | {"_PENSTOCK_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words))}
        | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stderr == ""
    return [item.partition(",")[2] for item in found.stdout.splitlines() if item]


@pytest.mark.promise("commands", "Shell completion knows commands, settings and topics")
def test_completion_offers_commands_and_settings():
    assert complete("to") == ["topics"]
    assert "retention.ms=" in complete("topics", "create", "t", "--config", "retention")


def test_completion_is_quiet_when_the_cluster_cannot_be_reached():
    assert complete("consume", "x", PENSTOCK_BOOTSTRAP=NOWHERE) == []


@pytest.mark.promise("commands", "`--help` and the broker import neither rich nor confluent-kafka")
@pytest.mark.parametrize("arguments", [["--help"], ["consume", "--help"], ["broker", "--help"]])
def test_help_imports_neither_rich_nor_confluent_kafka(arguments):
    check = (
        "import sys; from penstock.cli.main import run; run(sys.argv[1:]);"
        "bad = {'rich', 'confluent_kafka', 'kio', 'asyncio'} & set(sys.modules);"
        "sys.exit(repr(bad) if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", check, *arguments], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.promise("commands", "`--help` and the broker import neither rich nor confluent-kafka")
def test_starting_a_broker_imports_neither_rich_nor_confluent_kafka():
    check = (
        "import sys, penstock.cli.up.commands, penstock.cli.broker, penstock.broker.main;"
        "bad = {'rich', 'confluent_kafka', 'hypothesis'} & set(sys.modules);"
        "sys.exit(repr(bad) if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", check], check=True)


def test_a_full_disk_is_one_line():
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "penstock", "topics", "--help"]
        process = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert process.returncode == 1
    assert process.stderr == "Error: input/output: No space left on device\n"


def test_a_table_in_a_pipe_is_aligned_columns_with_numbers_to_the_right(capsys):
    output.table(("name", "count"), [("a", 1), ("longer", None), ("b", 200)])
    assert capsys.readouterr().out == "NAME    COUNT\na           1\nlonger      -\nb         200\n"


def test_a_table_on_a_terminal_shows_values_as_they_are(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    output.table(("setting", "value"), [("x", "[bold]y[/bold]")], title="[red]")
    shown = capsys.readouterr().out
    assert "[bold]y[/bold]" in shown and "[red]" in shown


def test_json_is_one_line(capsys):
    output.emit_json({"a": ["é", None]})
    text = capsys.readouterr().out
    assert text == '{"a":["é",null]}\n' and json.loads(text) == {"a": ["é", None]}


def test_sizes_and_counts_for_people():
    assert [words.human_bytes(n) for n in (0, 1536, 3 << 40)] == ["0 B", "1.5 KiB", "3.0 TiB"]
    assert [words.plural(n, "record") for n in (1, 2000)] == ["1 record", "2,000 records"]


def test_percentiles_are_values_that_were_measured():
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, p) for p in (50, 95, 99, 99.9)] == [50, 95, 99, 100]
    assert percentile([7.0], 50) == 7.0


@pytest.mark.parametrize(
    "words, reached",
    [
        ([], "127.0.0.1:9092"),
        (["--client-config", "FILE"], "file:1"),
        (["--client-config", "FILE", "-X", "bootstrap.servers=x:1"], "x:1"),
        (["--client-config", "FILE", "-X", "bootstrap.servers=x:1", "-b", "b:1"], "b:1"),
    ],
)
def test_the_brokers_of_a_client_config_count_unless_others_are_named(tmp_path, words, reached):
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\nsecurity.protocol=ssl\n")

    @click.command()
    @address_options("client")
    def command(**given):
        bootstrap, settings = client_of(**given)
        assert settings == ({"security.protocol": "ssl"} if words else {})
        click.echo(bootstrap)

    line = [str(file) if word == "FILE" else word for word in words]
    answer = CliRunner().invoke(command, line, env={"PENSTOCK_BOOTSTRAP": None})
    assert answer.output == f"{reached}\n", answer.exception
