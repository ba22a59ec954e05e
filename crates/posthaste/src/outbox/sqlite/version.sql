-- The version of the schema, for saying what is wrong with it after a statement failed.
SELECT max(version) AS version FROM main.{outbox_migrations}
