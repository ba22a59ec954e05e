-- What stands under the outbox's name.
SELECT ENGINE AS engine, TABLE_TYPE AS kind, CREATE_OPTIONS LIKE '%partitioned%' AS partitioned
FROM information_schema.TABLES WHERE TABLE_SCHEMA = :database AND TABLE_NAME = :table
