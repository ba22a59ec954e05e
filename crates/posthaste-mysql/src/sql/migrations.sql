-- Which migrations were applied.
SELECT version FROM {outbox_migrations} ORDER BY version
