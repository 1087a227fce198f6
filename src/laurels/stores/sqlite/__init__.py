"""The embedded engine: one SQLite file.

`schema` has the tables, `log` the form of a row of the log, `reader` what is read beside the writer, `state` what the
writer knows, `writer` the one thread that commits, `behind` what it writes when nothing waits, and `store` puts them
together.
"""

from laurels.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
