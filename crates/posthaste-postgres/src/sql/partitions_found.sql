-- The partitions that there are, with their bounds as text, and whether the outbox is partitioned at all.
SELECT o.relkind = 'p' AS partitioned, c.relname::text AS name, pg_get_expr(c.relpartbound, c.oid) AS bounds,
       (extract(epoch FROM now()) * 1000)::bigint AS now
FROM pg_catalog.pg_class o
LEFT JOIN pg_catalog.pg_inherits i ON i.inhparent = o.oid
LEFT JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
WHERE o.oid = to_regclass($1)
ORDER BY c.relname
