"""Change the status of jobs, segments and exports; the only writer of these columns.

Each step is one conditional UPDATE, fenced by the claim's token: a late worker changes nothing.
"""
