"""Sessions, and what else many machines share, in a PostgreSQL database.

The only modules that import psycopg. `skillbelt.store.open_store` imports them when the setting
`store` names a database.
"""
