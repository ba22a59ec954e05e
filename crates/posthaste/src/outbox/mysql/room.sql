-- How many bytes the server takes at once. A statement that is larger would cost the connection.
SELECT CAST(@@max_allowed_packet AS SIGNED) AS most
