"""Take many texts or many books at once, and follow them to their end."""
