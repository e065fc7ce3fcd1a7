"""Sessions, and other data that many machines share, in a PostgreSQL database.

Only these modules import psycopg. `skillbelt.store.open_store` imports them when the setting
`store` names a database.
"""
