-- The version of the schema. Runs first in every transaction, so it has to be cheap: the last key of a table of a
-- few rows.
SELECT max(version) FROM main.{outbox_migrations}
