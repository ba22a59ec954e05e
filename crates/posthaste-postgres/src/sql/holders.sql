-- Which transactions hold the lock that an INSERT takes on the outbox before it takes a number, and keeps until its
-- end. Every role can see the locks of every session.
SELECT DISTINCT l.virtualtransaction AS holder FROM pg_catalog.pg_locks l
WHERE l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.granted
  AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
  AND (l.relation = $1::regclass
       OR l.relation IN (SELECT inhrelid FROM pg_catalog.pg_inherits WHERE inhparent = $1::regclass))
