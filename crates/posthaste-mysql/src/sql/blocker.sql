-- The earliest row that holds back a row's key and stands before it, by one probe into the index of what is held back. Keys
-- are compared as bytes, whatever the collation of the columns; the number is only the way to them. A subquery in the
-- select list is always run as it stands: as EXISTS it could become a join that starts at the wrong end. MySQL sees the order
-- of the index only where all of it is asked for, and sorts otherwise.
CASE WHEN OCTET_LENGTH({row}.aggregate_id) > 0 THEN (
    SELECT b.id FROM {outbox} b FORCE INDEX (posthaste_held)
    WHERE b.held_key = CRC32({row}.aggregate_id) + 31 * CRC32({row}.aggregate_type)
      AND CAST(b.aggregate_id AS BINARY) = CAST({row}.aggregate_id AS BINARY)
      AND CAST(b.aggregate_type AS BINARY) = CAST({row}.aggregate_type AS BINARY)
      AND (b.created_at < {row}.created_at OR (b.created_at = {row}.created_at AND b.id < {row}.id))
    ORDER BY b.held_key, b.created_at, b.id LIMIT 1) END
