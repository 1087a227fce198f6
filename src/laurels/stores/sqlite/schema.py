"""The file: its tables, how it is opened, who owns it, and what SQLite's errors mean."""

import contextlib
import os
import secrets
import socket
import sqlite3
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import msgspec

from laurels.errors import (
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreOwned,
    StoreReadOnly,
    StoreUnavailable,
    StoreVersion,
)
from laurels.stores.base import OwnerNote

APPLICATION_ID = 0x4C41524C  # "LARL"
WRITER_CACHE_KIB = 32_768
READER_CACHE_KIB = 8_192
# A segment's `rows` are packed (see `log`), `size` of them, the erased ones included; so are the `effects` of answers.
# `latest_places` has the place of each player's latest submission, packed, the players from `first` up to that of the
# next chunk. place = seq * 1024 + row. Entries carry the place of the submission that counts (of sums: the latest one).
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE games (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, definition TEXT NOT NULL, ids_seq INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE boards (
    id INTEGER PRIMARY KEY, game INTEGER NOT NULL REFERENCES games (id), name TEXT NOT NULL,
    version INTEGER NOT NULL, definition TEXT NOT NULL, ready INTEGER NOT NULL,
    UNIQUE (game, name, version)
);
CREATE TABLE segments (
    seq INTEGER PRIMARY KEY, game INTEGER NOT NULL REFERENCES games (id), accepted_at INTEGER NOT NULL,
    size INTEGER NOT NULL, rows BLOB NOT NULL, checksum INTEGER NOT NULL
);
CREATE INDEX segments_of_game ON segments (game, seq);
CREATE TABLE answers (seq INTEGER PRIMARY KEY, accepted_at INTEGER NOT NULL, effects BLOB NOT NULL);
CREATE TABLE instances (
    id INTEGER PRIMARY KEY, board INTEGER NOT NULL REFERENCES boards (id), place TEXT NOT NULL, window_start INTEGER,
    UNIQUE (board, place)
);
CREATE TABLE entries (
    instance INTEGER NOT NULL, player_id TEXT NOT NULL,
    term1 INTEGER, term2 INTEGER, term3 INTEGER, term4 INTEGER, term5 INTEGER, place INTEGER NOT NULL,
    PRIMARY KEY (instance, player_id)
) WITHOUT ROWID;
CREATE INDEX entries_of_player ON entries (player_id);
CREATE TABLE latest_places (
    chunk INTEGER PRIMARY KEY, game INTEGER NOT NULL, first TEXT NOT NULL, rows BLOB NOT NULL, UNIQUE (game, first)
);
CREATE TABLE profiles (
    game INTEGER NOT NULL, field TEXT NOT NULL, value TEXT NOT NULL, attributes TEXT NOT NULL,
    PRIMARY KEY (game, field, value)
) WITHOUT ROWID;
CREATE TABLE bans (
    game INTEGER NOT NULL, player_id TEXT NOT NULL, reason TEXT NOT NULL, since INTEGER NOT NULL,
    PRIMARY KEY (game, player_id)
) WITHOUT ROWID;
CREATE TABLE removals (
    game INTEGER NOT NULL, board TEXT NOT NULL, instance TEXT NOT NULL, player_id TEXT NOT NULL,
    place INTEGER NOT NULL, PRIMARY KEY (game, board, instance, player_id)
) WITHOUT ROWID;
CREATE TABLE id_runs (
    run INTEGER PRIMARY KEY, game INTEGER NOT NULL, size INTEGER NOT NULL, least BLOB NOT NULL,
    greatest BLOB NOT NULL, filter BLOB NOT NULL
);
CREATE TABLE id_chunks (
    run INTEGER NOT NULL, first BLOB NOT NULL, keys BLOB NOT NULL, places BLOB NOT NULL, PRIMARY KEY (run, first)
) WITHOUT ROWID;
CREATE TABLE operations (
    id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, at INTEGER NOT NULL, verb TEXT NOT NULL, details TEXT NOT NULL
);
CREATE VIEW standings AS
    SELECT
        g.name AS game, b.name AS board, i.place AS instance, e.player_id,
        e.term1, e.term2, e.term3, e.term4, e.term5, json_extract(b.definition, '$.order') AS "order", e.place
    FROM entries e JOIN instances i ON i.id = e.instance JOIN boards b ON b.id = i.board
    JOIN games g ON g.id = b.game
    WHERE b.ready;
"""

# `proof` is the SHA-256 of a key's secret, of a signer the secret itself; `game` is null of operators' keys.
KEYS = """
CREATE TABLE keys (
    key_id TEXT PRIMARY KEY, game INTEGER REFERENCES games (id), role TEXT NOT NULL, name TEXT NOT NULL,
    proof BLOB NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER
) WITHOUT ROWID;
CREATE TABLE secrets (purpose TEXT PRIMARY KEY, secret BLOB NOT NULL) WITHOUT ROWID;
"""

# What makes a file of each version out of one of the version before. A file opened for writing gets all it lacks.
VERSIONS = (SCHEMA, KEYS)
SCHEMA_VERSION = len(VERSIONS)


def connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """A connection in autocommit mode that any thread may use, one at a time. There is one that writes and several that
    read, so only the one has a large cache."""
    cache_kib = READER_CACHE_KIB if read_only else WRITER_CACHE_KIB
    uri = f"{path.resolve().as_uri()}?mode={'ro' if read_only else 'rw'}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10.0)
    try:
        connection.execute(f"PRAGMA cache_size = -{cache_kib}")
        connection.execute("PRAGMA temp_store = MEMORY")
    except BaseException:
        connection.close()
        raise
    return connection


def open_file(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """The writer's connection to a Laurels file, which is created if there is none.

    Raises StoreVersion for a file of a newer version or of something else, StoreDamaged, StoreReadOnly.
    """
    if read_only and not path.exists():
        raise StoreUnavailable(f"{path}: there is no such file")
    if not path.exists():
        try:
            path.touch(exist_ok=True)
        except OSError as error:
            raise StoreUnavailable(f"{path}: can't be created: {error.strerror}") from error
    with translated(path):
        connection = connect(path, read_only=read_only)
        try:
            _prepare(connection, path, read_only)
        except BaseException:
            connection.close()
            raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, read_only: bool) -> None:
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application_id != APPLICATION_ID and (tables or read_only):
        raise StoreVersion(f"{path}: is a SQLite file, but not one of Laurels")
    if version > SCHEMA_VERSION:
        raise StoreVersion(
            f"{path}: was written by a newer Laurels (file version {version}, this one reads up to {SCHEMA_VERSION})"
        )
    if not read_only:
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreReadOnly(f"{path}: write-ahead logging is not possible here (journal mode {mode})")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # the store checkpoints beside the writer
        if version < SCHEMA_VERSION:
            connection.executescript(
                f"BEGIN IMMEDIATE; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};"
                f"{''.join(VERSIONS[version:])} COMMIT;"
            )


def secret_of(connection: sqlite3.Connection, path: Path, *, read_only: bool) -> bytes:
    """The secret of the store, made if it has none. Of a file that can't be written: one for this time."""
    new = secrets.token_bytes(32)
    with translated(path):
        if not read_only:
            connection.execute("INSERT OR IGNORE INTO secrets VALUES ('store', ?)", (new,))
        elif not has_keys(connection):
            return new
        row = connection.execute("SELECT secret FROM secrets WHERE purpose = 'store'").fetchone()
        return new if row is None else bytes(row[0])


def has_keys(connection: sqlite3.Connection) -> bool:
    """Whether a file is of a version that keeps keys."""
    return bool(connection.execute("PRAGMA user_version").fetchone()[0] >= 2)


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's errors as errors of Laurels that name the file."""
    try:
        yield
    except sqlite3.Error as error:
        raise store_error(error, path) from error


def store_error(error: sqlite3.Error, path: Path) -> StoreError:
    """What an error of SQLite means."""
    name = getattr(error, "sqlite_errorname", None) or ""
    if name == "SQLITE_FULL":
        return StoreFull(f"{path}: no space left on the disk; reads go on, submissions are refused until there is")
    if name.startswith(("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
        return StoreReadOnly(f"{path}: can't be written ({error})")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return StoreDamaged(f"{path}: is damaged ({error}); restore a backup, or see `laurels verify`")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreUnavailable(f"{path}: is locked by another program ({error})")
    if name.startswith("SQLITE_CANTOPEN"):
        return StoreUnavailable(f"{path}: can't be opened ({error})")
    return StoreError(f"{path}: {error}" + (f" ({name})" if name else ""))


class Ownership:
    """One process owns a file: a lock on `<file>-owner`, which the system releases when the process ends, however."""

    def __init__(self, path: Path) -> None:
        """Raises StoreOwned, naming the owner, if another process has it."""
        self._path = path.with_name(path.name + "-owner")
        try:
            self._file: IO[bytes] = self._path.open("a+b")
        except FileNotFoundError as error:
            raise StoreUnavailable(f"{path}: its folder does not exist") from error
        except OSError as error:
            raise StoreReadOnly(f"{path}: its folder can't be written: {error.strerror}") from error
        if not _lock(self._file):
            self._file.seek(0)
            owner = _described(self._file.read())
            self._file.close()
            raise StoreOwned(f"{path}: is in use by {owner}; open it read-only, or stop that process")
        note = OwnerNote(os.getpid(), socket.gethostname(), datetime.now(UTC), " ".join(sys.argv)[:200])
        self._file.truncate(0)
        self._file.write(msgspec.json.encode(note))
        self._file.flush()

    def release(self) -> None:
        """Let go; the note goes too."""
        with contextlib.suppress(OSError):
            self._path.unlink()
        self._file.close()


def _described(note: bytes) -> str:
    try:
        owner = msgspec.json.decode(note, type=OwnerNote)
    except msgspec.DecodeError:
        return "another process"
    return f"process {owner.pid} on {owner.host} since {owner.since:%Y-%m-%d %H:%M:%S} UTC ({owner.command})"


if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[bytes]) -> bool:
        file.seek(2**30)  # beyond the note, which others may read
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        file.seek(0)
        return True
else:
    import fcntl

    def _lock(file: IO[bytes]) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True
