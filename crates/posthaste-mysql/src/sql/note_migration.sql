-- Notes a migration when all of its statements are done: one that was cut off half-way is run again from its start.
INSERT IGNORE INTO {outbox_migrations} (version, name) VALUES (:version, :name)
