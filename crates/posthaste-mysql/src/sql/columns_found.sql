-- The columns of the outbox, as far as this user may see them.
SELECT LOWER(COLUMN_NAME) AS name, LOWER(COLUMN_TYPE) AS type, DATETIME_PRECISION AS digits
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = :database AND TABLE_NAME = :table
