-- Which tables of these names there are, and of which engine.
SELECT TABLE_NAME AS name, ENGINE AS engine FROM information_schema.TABLES
WHERE TABLE_SCHEMA = :database AND TABLE_NAME IN (:tables)
