"""The REST API: requests, answers and views, a room for each noun."""
