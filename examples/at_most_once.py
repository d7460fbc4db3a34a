"""At most once: first the offset is committed, then the work is done.

Killed between the two, this program never does that piece of work. It never does one twice.
"""

from __future__ import annotations

from reading import Input, commit, connect, options, say
from results import open_results


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--database", default="results.sqlite", help="where the results go")
    arguments = parser.parse_args()
    database = open_results(arguments.database, "CREATE TABLE IF NOT EXISTS results (id TEXT, value TEXT)")
    consumer = connect(arguments, **{"enable.auto.commit": False})

    for message in Input(consumer, arguments.topic).messages(arguments.exit_at_end):
        commit(consumer, message)
        say("committed", message)
        row = (message.key().decode(), message.value().decode())
        database.execute("INSERT INTO results VALUES (?, ?)", row)
        say("done", message)
    consumer.close()


if __name__ == "__main__":
    main()
