-- What stands under the outbox's name: whether the table is there, whether its migrations are recorded, whether
-- that record is ours, and whether a trigger calls for plain INSERTs.
SELECT to_regclass($1) IS NOT NULL AS outbox, to_regclass($2) IS NOT NULL AS migrations,
       to_regclass($3) IS NOT NULL AS inbox, to_regnamespace($4) IS NOT NULL AS schema,
       EXISTS (SELECT FROM pg_catalog.pg_attribute WHERE attrelid = to_regclass($1) AND attname = 'lane'
               AND attgenerated = 's') AS ours,
       EXISTS (SELECT FROM pg_catalog.pg_trigger WHERE tgrelid = to_regclass($1) AND tgname = $5) AS calls
