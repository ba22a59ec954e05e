-- Which tables of these names there are.
SELECT TABLE_NAME AS name FROM information_schema.TABLES WHERE TABLE_SCHEMA = :database AND TABLE_NAME IN (:tables)
