"""`penstock cluster`: describe it, move partitions between its brokers, elect leaders, take a broker out."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import click

from penstock.admin.cluster import Cluster, TopicDescription
from penstock.admin.partitions.execution import (
    asking,
    begin,
    cancel,
    change_throttle,
    cluster_state,
    copied_bytes,
    elect,
    requested_moves,
)
from penstock.admin.partitions.moves import Key, Move, TooFewBrokers, rebalance, vacate
from penstock.admin.partitions.state import ClusterPlacement, read_moving, read_sizes
from penstock.admin.wire_client import WireCluster, failure
from penstock.admin.words import human_bytes, plural
from penstock.cli.cluster.run import show_moving, wait_for_moves
from penstock.cli.failure import CommandFailed, UnknownTopic
from penstock.cli.options.shared import cluster_options, complete_topics, json_option
from penstock.cli.output import emit_json, note, table
from penstock.errors import ApiError


class DescribeByDefault(click.Group):
    """`penstock cluster` without a command describes the cluster."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_option = bool(args) and args[0].startswith("-") and args[0] not in ctx.help_option_names
        if not args or is_option:
            args = ["describe", *args]
        return super().parse_args(ctx, args)


throttle_option = click.option(
    "--throttle",
    metavar="BYTES",
    type=click.IntRange(min=1),
    help="Limit the copying on each broker to this many bytes a second, until it is done.",
)
no_wait_option = click.option("--no-wait", is_flag=True, help="Start, and do not wait until it is done.")
preview_option = click.option("--preview", is_flag=True, help="Show what would be moved, and move nothing.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


@click.group("cluster", cls=DescribeByDefault)
def cluster() -> None:
    """Describe the cluster, move partitions, elect leaders.

    Without a command, describe the cluster.
    """


@cluster.command()
@json_option
@cluster_options
def describe(as_json: bool, cluster: Cluster) -> None:
    """Show the brokers with their replicas, and partitions that are offline or under-replicated.

    \b
      penstock cluster describe
    """
    future = cluster.admin.describe_cluster(request_timeout=cluster.timeout)
    found = cluster.wait(future, "cannot describe the cluster")
    controller = found.controller.id if found.controller is not None else None
    topics = cluster.topics()
    sizes, moving = _sizes_and_moves(cluster)
    leaders, replicas = _carried(topics)
    brokers = [
        {
            "id": node.id,
            "host": node.host,
            "port": node.port,
            "rack": node.rack or None,
            "leaders": leaders[node.id],
            "replicas": replicas[node.id],
            "bytes": None if sizes is None else sizes[node.id],
        }
        for node in sorted(found.nodes, key=lambda node: node.id)
    ]
    up = {broker["id"] for broker in brokers}
    partitions = [(info.name, one) for info in topics.values() for one in info.partitions]
    offline = [f"{name}-{one.index}" for name, one in partitions if one.leader < 0]
    behind = [f"{name}-{one.index}" for name, one in partitions if len(one.isr) < len(one.replicas)]
    away = sorted(set(replicas) - up)
    if as_json:
        emit_json(
            {
                "id": found.cluster_id,
                "controller": controller,
                "brokers": brokers,
                "away": away,
                "partitions": len(partitions),
                "without_leader": offline,
                "under_replicated": behind,
                "moving": moving,
            }
        )
        return
    rows = [
        (
            b["id"],
            b["host"],
            b["port"],
            b["rack"],
            "controller" if b["id"] == controller else "",
            b["leaders"],
            b["replicas"],
            None if b["bytes"] is None else human_bytes(b["bytes"]),
        )
        for b in brokers
    ]
    columns = ("broker", "host", "port", "rack", "role", "leaders", "replicas", "size")
    table(columns, rows, title=f"cluster {found.cluster_id}")
    for broker in away:
        note(f"Broker {broker} is not up; it has {plural(replicas[broker], 'replica')}.")
    _tell("without a leader", offline)
    _tell("with replicas that are not in sync", behind)
    _tell("moving", moving or [])


def _carried(topics: dict[str, TopicDescription]) -> tuple[Counter[int], Counter[int]]:
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    for info in topics.values():
        for one in info.partitions:
            leaders[one.leader] += 1
            replicas.update(one.replicas)
    return leaders, replicas


def _sizes_and_moves(cluster: Cluster) -> tuple[Counter[int] | None, list[str] | None]:
    """None if the cluster does not respond to this request: an older one, or one that denies it."""
    sizes: Counter[int] = Counter()
    try:
        with WireCluster(cluster) as wire:
            for (_, broker), size in read_sizes(wire).items():
                sizes[broker] += size
            moving = [f"{topic}-{index}" for topic, index in sorted(read_moving(wire))]
    except (ApiError, CommandFailed):
        return None, None
    return sizes, moving


def _tell(what: str, partitions: list[str]) -> None:
    if partitions:
        more = "" if len(partitions) <= 5 else f" and {len(partitions) - 5} more"
        note(f"{plural(len(partitions), 'partition')} {what}: {', '.join(partitions[:5])}{more}.")


@cluster.command("rebalance")
@click.option("--topic", "topics", multiple=True, shell_complete=complete_topics, help="Only this topic.")
@preview_option
@throttle_option
@no_wait_option
@yes_option
@json_option
@cluster_options
def rebalance_command(
    topics: tuple[str, ...],
    preview: bool,
    throttle: int | None,
    no_wait: bool,
    yes: bool,
    as_json: bool,
    cluster: Cluster,
) -> None:
    """Balance replicas and leaders over the brokers, moving as little as possible.

    \b
      penstock cluster rebalance --preview
      penstock cluster rebalance --throttle 20000000
    """
    state = cluster_state(cluster)
    _check_topics(state, topics)
    placed = {key: one for key, one in state.placed.items() if not topics or key[0] in topics}
    moves = rebalance(placed, state.racks)
    _move(cluster, state, moves, "The brokers are balanced.", preview, throttle, no_wait, yes, as_json)


@cluster.command()
@click.argument("broker", type=click.IntRange(min=0))
@preview_option
@throttle_option
@no_wait_option
@yes_option
@json_option
@cluster_options
def decommission(
    broker: int,
    preview: bool,
    throttle: int | None,
    no_wait: bool,
    yes: bool,
    as_json: bool,
    cluster: Cluster,
) -> None:
    """Move all replicas off a broker, so that it can be removed. It may already be down.

    \b
      penstock cluster decommission 4 --preview
    """
    empty = f"Broker {broker} has no replicas. It can be stopped."
    begun = False
    while True:
        state = cluster_state(cluster)
        if broker not in state.racks and not any(broker in placed for placed in state.placed.values()):
            known = ", ".join(map(str, sorted(state.racks)))
            raise CommandFailed(
                f"broker {broker} does not exist and has no replicas; the cluster has {known}."
            )
        try:
            moves = vacate(state.placed, state.racks, broker)
        except TooFewBrokers as error:
            raise CommandFailed(
                f"cannot decommission broker {broker}: {error}. Add a broker first."
            ) from None
        if begun and not moves:
            break
        done = _move(
            cluster, state, moves, empty, preview, throttle, no_wait, yes or begun, as_json, quiet=begun
        )
        if not done:
            return
        begun = True  # partitions may have been created on it in the meantime: check again
    if not as_json:
        click.echo(empty)


@cluster.command("reassign")
@click.option(
    "--move",
    "wanted",
    metavar="TOPIC:PARTITION=B1,B2",
    multiple=True,
    help="The target brokers of a partition; the first becomes its preferred leader.",
)
@click.option(
    "--file",
    "file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Moves as JSON, in the form of kafka-reassign-partitions.",
)
@click.option(
    "--status",
    is_flag=True,
    help="Show ongoing reassignments, and remove a throttle that is no longer needed.",
)
@click.option("--wait", is_flag=True, help="Wait until no reassignment is ongoing.")
@click.option(
    "--cancel", "cancels", is_flag=True, help="Cancel all ongoing reassignments, or only those of --topic."
)
@click.option("--topic", "topics", multiple=True, shell_complete=complete_topics, help="Only this topic.")
@preview_option
@throttle_option
@no_wait_option
@json_option
@cluster_options
def reassign_command(
    wanted: tuple[str, ...],
    file: Path | None,
    status: bool,
    wait: bool,
    cancels: bool,
    topics: tuple[str, ...],
    preview: bool,
    throttle: int | None,
    no_wait: bool,
    as_json: bool,
    cluster: Cluster,
) -> None:
    """Move partitions to other brokers; show or cancel ongoing reassignments.

    \b
      penstock cluster reassign --move orders:0=2,3,4 --move orders:1=3,4,2
      penstock cluster reassign --status
      penstock cluster reassign --cancel
    """
    chosen = [bool(wanted or file), status, wait, cancels]
    if not any(chosen) and throttle is not None:
        change_throttle(cluster, throttle)
        show_moving(cluster, as_json)
        return
    if sum(chosen) != 1:
        raise click.UsageError("give --move or --file, or one of --status, --wait and --cancel")
    if status:
        show_moving(cluster, as_json)
    elif wait:
        wait_for_moves(cluster, None, show=not as_json)
        show_moving(cluster, as_json)
    elif cancels:
        _cancel(cluster, topics, as_json)
    else:
        state = cluster_state(cluster)
        asked = {**(_from_file(file) if file else {}), **dict(map(_parse_move, wanted))}
        _check_partitions(state, asked)
        _move(
            cluster,
            state,
            requested_moves(state, asked),
            "The replicas are already in place.",
            preview,
            throttle,
            no_wait,
            True,
            as_json,
        )


def _cancel(cluster: Cluster, topics: tuple[str, ...], as_json: bool) -> None:
    state = cluster_state(cluster)
    _check_topics(state, topics)
    keys = [key for key in state.moving if not topics or key[0] in topics]
    refused = cancel(cluster, keys)
    back = [key for key in keys if key not in refused]
    if as_json:
        emit_json({"cancelled": [{"topic": topic, "partition": index} for topic, index in back]})
    elif not keys:
        note("No reassignment is in progress.")
    else:
        click.echo(f"Cancelled: {plural(len(back), 'partition')}.")
    show_moving(cluster, as_json=False, quiet=True)
    _fail_for(refused, "cannot cancel the reassignment of")


@cluster.command("elect")
@click.option("--topic", "topic", shell_complete=complete_topics, help="Only this topic. Default: all.")
@click.option(
    "--partition",
    "-p",
    "partitions",
    metavar="N",
    multiple=True,
    type=click.IntRange(min=0),
    help="Only this partition of the topic.",
)
@click.option(
    "--unclean",
    is_flag=True,
    help="Elect a replica that is not in sync where no in-sync replica is available. May lose records.",
)
@yes_option
@json_option
@cluster_options
def elect_command(
    topic: str | None, partitions: tuple[int, ...], unclean: bool, yes: bool, as_json: bool, cluster: Cluster
) -> None:
    """Elect the preferred leaders: the first replica of each partition, if it is in sync.

    \b
      penstock cluster elect
      penstock cluster elect --topic orders --unclean
    """
    if partitions and topic is None:
        raise click.UsageError("--partition needs --topic")
    state = cluster_state(cluster)
    asked: dict[str, list[int]] | None = None
    if topic is not None:
        _check_topics(state, (topic,))
        asked = {
            topic: list(partitions) or [index for name, index in sorted(state.partitions) if name == topic]
        }
    if unclean and not yes:
        click.confirm("Acknowledged records may be lost. Continue?", abort=True, err=True)
    results = elect(cluster, asked, unclean=unclean)
    elected, failed = results.elected, results.failed
    if as_json:
        emit_json({"elected": [{"topic": name, "partition": index} for name, index in elected]})
    elif elected:
        click.echo(f"{plural(len(elected), 'partition')} with another leader.")
    elif not failed:
        click.echo("No election is needed.")
    _fail_for(failed, "cannot elect a leader of")


# Shared


def _check_topics(state: ClusterPlacement, topics: tuple[str, ...]) -> None:
    known = {topic for topic, _ in state.partitions}
    for topic in topics:
        if topic not in known:
            raise UnknownTopic(topic, known)


def _check_partitions(state: ClusterPlacement, asked: dict[Key, tuple[int, ...]]) -> None:
    _check_topics(state, tuple(topic for topic, _ in asked))
    for topic, index in asked:
        if (topic, index) not in state.partitions:
            raise CommandFailed(f"topic '{topic}' has no partition {index}.")


def _parse_move(text: str) -> tuple[Key, tuple[int, ...]]:
    name, _, brokers = text.partition("=")
    topic, _, index = name.rpartition(":")
    words = [word.strip() for word in brokers.split(",")]
    if not topic or not index.isdecimal() or not all(word.isdecimal() for word in words):
        raise click.UsageError(f"--move: '{text}' is not TOPIC:PARTITION=BROKER,BROKER")
    return (topic, int(index)), tuple(map(int, words))


def _from_file(path: Path) -> dict[Key, tuple[int, ...]]:
    try:
        found = json.loads(path.read_text())["partitions"]
        return {(one["topic"], int(one["partition"])): tuple(map(int, one["replicas"])) for one in found}
    except (ValueError, KeyError, TypeError) as error:
        raise CommandFailed(
            f"{path}: not the JSON of a reassignment, "
            '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}: '
            f"{error!r}"
        ) from error


def _move(
    cluster: Cluster,
    state: ClusterPlacement,
    moves: list[Move],
    nothing: str,
    preview: bool,
    throttle: int | None,
    no_wait: bool,
    yes: bool,
    as_json: bool,
    *,
    quiet: bool = False,
) -> bool:
    """Shows the moves and starts them. Returns whether they were started and are complete."""
    copies = sum(len(move.adding) for move in moves)
    sizes = None if quiet else copied_bytes(cluster, state, moves)
    size = None if sizes is None else sum(sizes.values())
    if as_json and not quiet:
        emit_json(
            {
                "moves": [
                    {
                        "topic": move.topic,
                        "partition": move.partition,
                        "from": list(move.old),
                        "to": list(move.new),
                        "bytes": None if sizes is None else sizes.get((move.topic, move.partition), 0),
                    }
                    for move in moves
                ],
                "copies": copies,
                "bytes": size,
            }
        )
    elif not moves and not quiet:
        click.echo(nothing)
    elif not quiet:
        rows = [
            (
                m.topic,
                m.partition,
                _numbers(m.old),
                _numbers(m.new),
                None if sizes is None else human_bytes(sizes.get((m.topic, m.partition), 0)),
            )
            for m in moves
        ]
        table(("topic", "partition", "from", "to", "copied"), rows)
        amount = "" if size is None else f", {human_bytes(size)}"
        note(
            f"{plural(len(moves), 'partition')}, {plural(copies, 'copy').replace('copys', 'copies')}{amount}."
        )
    if preview or not moves:
        return False
    if not yes:
        click.confirm("Move them?", abort=True, err=True)
    refused = asking(lambda: begin(cluster, state, moves, throttle), "cannot move partitions")
    _fail_for(refused, "cannot move")
    if no_wait:
        if throttle is not None:
            note("The throttle stays until `penstock cluster reassign --wait` or `--status` finds it done.")
        return False
    wait_for_moves(cluster, moves, show=not as_json)
    return True


def _numbers(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids))


def _fail_for(refused: dict[Key, ApiError], doing: str) -> None:
    for (topic, index), error in sorted(refused.items()):
        note(f"Error: {failure(error, f'{doing} {topic}-{index}').message}")
    if refused:
        raise CommandFailed(f"{plural(len(refused), 'partition')} could not be changed.")
