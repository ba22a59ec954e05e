//! diesel-async 0.9: PostgreSQL, MySQL and MariaDB, and SQLite through its wrapper of blocking connections.
