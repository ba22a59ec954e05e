-- What stands under the outbox's name: whether the table is there, whether its migrations are recorded, and whether
-- that record is ours.
SELECT to_regclass($1) IS NOT NULL AS outbox, to_regclass($2) IS NOT NULL AS migrations,
       to_regclass($3) IS NOT NULL AS inbox, to_regnamespace($4) IS NOT NULL AS schema,
       EXISTS (SELECT FROM pg_catalog.pg_attribute WHERE attrelid = to_regclass($1) AND attname = 'lane'
               AND attgenerated = 's') AS ours
