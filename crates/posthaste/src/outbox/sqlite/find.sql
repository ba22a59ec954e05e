-- Whether a name is taken. SQLite's names do not tell ASCII capitals from small letters.
SELECT 1 AS found FROM main.sqlite_master WHERE name = ?1 COLLATE NOCASE
