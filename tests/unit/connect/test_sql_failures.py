"""Errors of databases: the server's, the login's, the record's."""

from __future__ import annotations

import sqlite3
from typing import Any

import duckdb
import psycopg2.errors
import pymysql
import pytest
from sqlalchemy import exc

from penstock.connect.connectors.sql.failures import Fault, fault_of


def wrapped(error: Exception, base: type[Exception]) -> exc.DBAPIError:
    """As SQLAlchemy does it."""
    found: Any = exc.DBAPIError.instance("INSERT", (), error, base)
    return found


@pytest.mark.promise(
    "connect", "SQL: an error of the server or of the login is not reported as an error of a record"
)
@pytest.mark.parametrize(
    ("fault", "codes"),
    [
        (Fault.SERVER, "25006 53100 53200 53300 57014 57P01 57P02 57P03 08000 08006 40001 40P01 55P03 58030"),
        (Fault.LOGIN, "42501 28000 28P01"),
        (Fault.RECORD, "23502 23505 22001 22003 22P02 42703 42804 54000 54001 0A000 25P02"),
    ],
)
def test_postgresql(fault: Fault, codes: str) -> None:
    for code in codes.split():
        error = psycopg2.errors.lookup(code)()
        error.__setstate__({"pgcode": code})
        assert (code, fault_of(wrapped(error, psycopg2.Error), "postgresql")) == (code, fault)


@pytest.mark.promise(
    "connect", "SQL: an error of the server or of the login is not reported as an error of a record"
)
@pytest.mark.parametrize(
    ("fault", "codes"),
    [
        (Fault.SERVER, [1021, 1114, 1129, 1158, 1159, 1160, 1161, 1203, 1226, 1317, 1792, 1836, 3024]),
        (Fault.SERVER, [1040, 1053, 1205, 1213, 1290, 1927, 1969, 2002, 2003, 2006, 2013, 2055]),
        (Fault.LOGIN, [1044, 1045, 1142, 1143, 1227, 1370, 1410, 1698]),
        (Fault.RECORD, [1048, 1054, 1062, 1264, 1265, 1366, 1406, 1452, 1146]),
    ],
)
def test_mysql(fault: Fault, codes: list[int]) -> None:
    for code in codes:
        for kind in (pymysql.err.OperationalError, pymysql.err.InternalError):
            assert (code, fault_of(wrapped(kind(code, "x"), pymysql.Error), "mysql")) == (code, fault)


@pytest.mark.promise(
    "connect", "SQL: an error of the server or of the login is not reported as an error of a record"
)
def test_databases_without_codes() -> None:
    for text, fault in [
        ("database is locked", Fault.SERVER),
        ("database or disk is full", Fault.SERVER),
        ("attempt to write a readonly database", Fault.LOGIN),
        ("UNIQUE constraint failed: t.a", Fault.RECORD),
    ]:
        assert fault_of(wrapped(sqlite3.OperationalError(text), sqlite3.Error), "sqlite") is fault
    for error, fault in [
        (duckdb.IOException("x"), Fault.SERVER),
        (duckdb.PermissionException("x"), Fault.LOGIN),
        (duckdb.ConstraintException("x"), Fault.RECORD),
    ]:
        assert fault_of(wrapped(error, duckdb.Error), "duckdb") is fault
    lost = psycopg2.OperationalError("could not connect to server")
    assert fault_of(wrapped(lost, psycopg2.Error), "postgresql") is Fault.SERVER
